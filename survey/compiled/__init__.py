"""What `torch.compile` does to the second derivative of torch's own operations, and of small nets.

operations   the list: torch's own, with the first samples of each, by each argument
nets         small nets, with frozen and with trained weights
second       the second derivative, in five settings, by autograd and by differences
look         one of them, compiled: right, wrong without an error, raises; what the region keeps
run          each operation in a process of its own
table, page  results.csv, and survey/COMPILED.md from it
"""

from .second import second_derivative

__all__ = ["second_derivative"]
