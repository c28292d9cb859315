"""What `torch.compile` does to the second derivative of torch's own operations.

operations   the list: torch's own, with the first sample of each
second       the second derivative, in five settings, by autograd and by differences
look         one operation, compiled: right, raises, silently wrong, could not be run
run          each operation in a process of its own
table, page  results.csv, and survey/COMPILED.md from it
"""

from .second import second_derivative

__all__ = ["second_derivative"]
