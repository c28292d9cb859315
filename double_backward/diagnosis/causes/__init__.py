"""What is to blame? A Function, what it keeps, a write in place, an operation that is not
finite."""
