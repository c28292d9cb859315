"""The list: which Function or operator of which package, and how to call it.

The modules in `calls` fill the list with `listed` and `simple`. Nothing of a package is imported
before its call is made, so the list can be read where none of them is installed.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import torch

# Numba compiles for many seconds what a few small inputs take no time for.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

CALLS = {}


@dataclass(frozen=True)
class Call:
    """How to call one Function, or one registered operator.

    Attributes:
        package: the name on PyPI.
        function: where the Function stands, "package.module.Function"; of an operator its name,
            "namespace::operator".
        at: where it stands in the package's Python; an operator in C++, what calls or registers it.
        how: without arguments, returns fn and a list of inputs for it, and where one exists a
            reference: a callable of the same inputs, in plain torch, with the same values.
        surrogate: its documentation says that backward is not the derivative of forward.
        bare: the `__init__` of the packages around the module are not run: they import what the
            Function does not need.
        absent: packages that are imported beside it, not used by it, and not installed.
    """

    package: str
    function: str
    at: str
    how: Callable
    surrogate: bool
    bare: bool
    absent: tuple[str, ...]

    @property
    def name(self):
        return f"{self.package}:{last(self.function)}"

    @property
    def kind(self):
        return "operator" if "::" in self.function else "Function"

    def ready(self):
        """Prepare the import of the module."""
        for package in self.absent:
            if not any(getattr(finder, "package", "") == package for finder in sys.meta_path):
                sys.meta_path.insert(0, Pretended(package))
        if self.bare:
            skip_init(self.at)

    def make(self):
        """fn, a list of inputs for it, and maybe a reference; the same each time."""
        self.ready()
        torch.manual_seed(0)  # weights that a package draws
        return self.how()


def call(name):
    """fn and its inputs, for a name as it stands in RESULTS.md."""
    return CALLS[name].make()[:2]


def last(function):
    """The name of it alone: an operator's name has no dot."""
    return function.rsplit(".", 1)[-1]


def listed(package, function, *, at=None, surrogate=False, bare=False, absent=()):
    """Put the decorated function on the list, as the `how` of a `Call`."""

    def register(how):
        entry = Call(package, function, at or function, how, surrogate, bare, tuple(absent))
        if entry.name in CALLS:
            raise ValueError(f"{entry.name} stands on the list twice")
        CALLS[entry.name] = entry
        return how

    return register


def simple(package, function, *constants, x=None, reference=None, **options):
    """List a Function of one tensor, `Function.apply(x, *constants)`.

    Args:
        constants: the other arguments of apply.
        x: callable that returns the tensor; by default 2 x 3 normal numbers.
        reference: callable, tensor to tensor, plain torch.
    """

    def how():
        apply = load(function).apply
        given = x() if x else normal(2, 3)
        fn = (lambda x: apply(x, *constants)) if constants else apply
        return (fn, [given], reference) if reference else (fn, [given])

    listed(package, function, **options)(how)


def load(function):
    """The object at "package.module.Object"."""
    module, name = function.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


def skip_init(function):
    """Make the packages that a module lies in importable without running their `__init__`."""
    parts = function.split(".")[:-2]
    path = None
    for n in range(1, len(parts) + 1):
        name = ".".join(parts[:n])
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        path = list(spec.submodule_search_locations)
        if name not in sys.modules:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = path


class Pretended(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for a package and everything below it that is imported but not used."""

    def __init__(self, package):
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name == self.package or name.startswith(self.package + "."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return mock.MagicMock(name=spec.name, __path__=[], __version__="0", __spec__=spec)

    def exec_module(self, module):
        pass


def normal(*shape, seed=0, scale=1.0):
    """Normal numbers, float64, that require grad; the same on every call."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (x * scale).requires_grad_()


def uniform(*shape, low=0.0, high=1.0, seed=0):
    """Uniform numbers, float64, that require grad; the same on every call."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(shape, generator=generator, dtype=torch.float64)
    return (low + (high - low) * x).requires_grad_()


def positive_definite(n, seed=0):
    """A symmetric, well-conditioned, positive definite matrix that requires grad."""
    a = normal(n, n, seed=seed).detach()
    return (a @ a.T / n + torch.eye(n, dtype=a.dtype)).requires_grad_()
