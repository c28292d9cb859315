"""A training step: each Function that it applies, and how often it is differentiated."""
