"""What is said: the evidence, the findings, the verdict and their words."""
