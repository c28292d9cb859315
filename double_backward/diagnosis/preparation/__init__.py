"""Can fn be checked? Here are fn at a point, its Functions and what it holds, or why it cannot."""
