"""What are the numbers: fn and its derivatives, as models, dtypes and transforms ask for them."""
