"""What is to blame: a Function, what it keeps, a write in place, the first operation not finite."""
