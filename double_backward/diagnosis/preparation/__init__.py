"""Can it be checked: fn at a point, its Functions and what it holds, or the reason why not."""
