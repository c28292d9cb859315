"""The exercises themselves: a file with a `TASK` for each."""
