"""What are the numbers? Here fn is differentiated in the ways of models, dtypes and transforms."""
