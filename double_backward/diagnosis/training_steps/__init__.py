"""Diagnoses a training step: each Function that it applies, as often as it is differentiated."""
