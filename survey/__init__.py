"""Custom autograd Functions of published packages, called and put through `diagnose`."""

from double_backward import diagnose

from . import calls  # fills the list
from .listed import CALLS, call

__all__ = ["CALLS", "call", "calls", "diagnose"]
