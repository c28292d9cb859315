"""What is said? Here are the evidence, the findings, the verdict and their words."""
