"""Inside detect and recompute the user's Python objects are what they are without them."""

import array
import collections
import ctypes
import functools
import io
import itertools
import mmap
import types
import unittest
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from made_functions import function
from torch.autograd import grad

from double_backward import (
    SecondDerivativeError,
    UncheckedFunctionWarning,
    detect_intermediates,
    recompute_intermediates,
    surroundings,
)
from double_backward.remedies import known

REMEDIES = [detect_intermediates, recompute_intermediates]
counted = 0


class Tree:
    """As a Brownian tree: nodes with slots that lead to each other, and a cache at the top."""

    __slots__ = "__secret", "cache", "left", "parent", "right", "visits"

    def __init__(self, parent=None):
        self.parent, self.visits, self.__secret = parent, 0, 0
        self.cache = parent.cache if parent else Cache()

    def __call__(self, x):
        node = self
        for _ in range(12):
            node.visits += 1
            node.__secret -= 1
            if not hasattr(node, "left"):
                node.left, node.right = Tree(node), Tree(node)
            node.cache[node] = node.visits
            node = node.left if node.visits % 2 else node.right

    def state(self):
        below = [getattr(self, side, None) for side in ("left", "right")]
        return self.visits, self.__secret, *(node and node.state() for node in below)


class Cache(dict):
    """Forgets what came first; raises KeyError where only a part of it has been put back."""

    def __init__(self):
        super().__init__()
        self.order = []

    def __setitem__(self, key, value):
        if key in self:
            self.order.remove(key)
        elif len(self) >= 5:
            del self[self.order.pop(0)]
        super().__setitem__(key, value)
        self.order.append(key)


class OnItsClass:
    calls = 0

    def __call__(self, x):
        type(self).calls += 1
        self.twice(self.calls)

    @staticmethod
    @functools.lru_cache
    def twice(n):
        return 2 * n


class Lazy:
    """Has no attribute before it is called."""

    @functools.cached_property
    def weight(self):
        return 2.0

    def __call__(self, x):
        return self.weight * x


class ByAHelper:
    """Its method changes a global, an attribute of a function, and one of a module."""

    def __call__(self, x):
        global counted
        counted += 1
        helper.calls = getattr(helper, "calls", 0) + 1
        SETTINGS.calls += 1


def helper():
    pass


SETTINGS = types.ModuleType("settings")


class Several:
    def __init__(self):
        self.ordered = collections.OrderedDict(a=1, b=2)
        self.counter, self.queue = collections.Counter(), collections.deque(maxlen=3)
        self.draws = np.random.default_rng(0)
        self.kept = {}

    def __call__(self, x):
        self.ordered.move_to_end(next(iter(self.ordered)))
        self.counter["calls"] += 1
        self.queue.append(self.counter["calls"])
        self.latest = self.draws.normal()
        self.kept.setdefault("list", []).append(self.latest)

    def state(self):
        plain = {name: value for name, value in vars(self).items() if name != "draws"}
        return plain, self.draws.bit_generator.state["state"]


@functools.lru_cache(maxsize=4)
def by_size(size, calls=0):
    return size + calls


def a_tree():
    tree = Tree()
    return tree, lambda: (tree.state(), len(tree.cache), len(tree.cache.order))


def its_class():
    return OnItsClass(), lambda: (OnItsClass.calls, OnItsClass.twice.cache_info())


def what_a_helper_knows():
    return ByAHelper(), lambda: (counted, dict(vars(helper)), SETTINGS.calls)


def lazy_ones():
    """The first that is called at a trial was not called before."""
    lazy = [Lazy()]

    def change(x):
        lazy[-1](x)
        if len(lazy) < 3:
            lazy.append(Lazy())

    return change, lambda: [vars(each) for each in lazy]


def several():
    several = Several()
    return several, several.state


def a_cached_function():
    def change(x):
        by_size(x.sum().item())
        by_size(2)

    return change, by_size.cache_info


def a_default():
    def change(x, seen=[]):  # noqa: B006
        seen.append(len(seen))

    return change, lambda: change.__defaults__


def the_end_of_a_chain():
    chain: list = []
    end = chain
    for _ in range(300):
        end.append([])
        end = end[0]
    return lambda x: end.append(1), lambda: len(end)


def bytes_and_characters():
    """Written into, and in streams gone on in."""
    held, number = [bytearray(b"a"), array.array("d", [1.0])], ctypes.c_int(1)
    streams, part = [io.StringIO("some words"), io.BytesIO(b"bytes")], memoryview(bytearray(2))

    def change(x):
        held[0].extend(b"b")
        held[1].append(len(held[1]))
        number.value += 1
        part[0] = number.value
        streams[0].read(1)
        streams[1].write(b"x")

    return change, lambda: (
        held,
        number.value,
        part.tolist(),
        [s.tell() for s in streams],
        streams[1].getvalue(),
    )


OBJECTS = [a_tree, its_class, what_a_helper_knows, several, lazy_ones, a_cached_function, a_default,
           the_end_of_a_chain, bytes_and_characters]  # fmt: skip


def cube(change, right=True):
    def forward(ctx, x, change):
        change(x)
        ctx.save_for_backward(x)
        ctx.slope = 3 * x**2
        return x**3

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (3 * x**2 if right else ctx.slope), None

    return lambda x: function(forward, backward, "Cube").apply(x, change)


def second(f):
    x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    (first,) = grad((f(x) ** 2).sum(), x, create_graph=True)
    return grad(first.sum(), x)[0]


SECOND = second(lambda x: x**3)


def run(make, remedy, right=True):
    """The object as it was, and as it is after six steps; the second derivatives."""
    global counted
    counted = OnItsClass.calls = SETTINGS.calls = 0
    vars(helper).clear()
    by_size.cache_clear()
    OnItsClass.twice.cache_clear()
    known.forget()
    change, state = make()
    before, f = str(state()), cube(change, right)
    with remedy():
        results = [second(f) for _ in range(6)]
    return before, str(state()), results


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("make", OBJECTS, ids=lambda f: f.__name__)
def test_objects_that_forward_changes(make, remedy):
    before, after, _ = run(make, nullcontext)
    assert before != after
    now, inside, results = run(make, remedy)
    assert (now, inside) == (before, after)
    for result in results:
        torch.testing.assert_close(result, SECOND)


@pytest.mark.parametrize("make", [a_tree, several], ids=lambda f: f.__name__)
def test_objects_that_a_wrong_function_changes(make):
    _, after, _ = run(make, nullcontext)
    _, inside, results = run(make, recompute_intermediates, right=False)
    assert inside == after
    for result in results:
        torch.testing.assert_close(result, SECOND)
    with pytest.raises(SecondDerivativeError, match="ctx.slope"):
        run(make, detect_intermediates, right=False)


class Settings:
    """Its attributes come, change and go."""

    first, second = 1, 2

    def here(self):
        return {name: value for name, value in vars(type(self)).items() if name[0] != "_"}


def test_attributes_of_a_class_are_put_back_and_its_methods_left():
    own, around = Settings(), surroundings.Surroundings(Settings())
    before, method = list(own.here()), Settings.here
    for _ in range(2):
        with around.unchanged():
            Settings.first, Settings.third = 5, 3
            del Settings.second
        assert (Settings.first, Settings.second) == (1, 2)
        assert sorted(own.here()) == sorted(before)
    assert Settings.here is method and around.changed
    with (untouched := surroundings.Surroundings(own)).unchanged():
        pass
    assert not untouched.changed


def a_generator():
    numbers = (n for n in range(100))
    return lambda x: next(numbers), lambda: numbers.gi_frame.f_locals.get("n")


def a_count():
    following = itertools.count().__next__
    return lambda x: following(), lambda: following.__self__


def more_than_is_looked_at():
    many: list = [[] for _ in range(3_000)]
    return lambda x: many[-1].append(1), lambda: len(many[-1])


def a_file():
    file = io.TextIOWrapper(io.BytesIO())
    return lambda x: file.write("a"), file.tell


def a_mapped_file():
    mapped = mmap.mmap(-1, 8)

    def change(x):
        mapped[0] += 1

    return change, lambda: mapped[0]


def every_second_byte():
    memory = bytearray(4)
    part = memoryview(memory)[::2]

    def change(x):
        part[0] += 1

    return change, lambda: memory


GO_ON = [
    a_generator,
    a_count,
    more_than_is_looked_at,
    a_file,
    a_mapped_file,
    every_second_byte,
]


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("make", GO_ON, ids=lambda f: f.__name__)
def test_what_cannot_be_put_back_is_left_alone_loudly(make, remedy, monkeypatch):
    monkeypatch.setattr(surroundings, "MOST_LOOKED_AT", 2_000)
    before, after, _ = run(make, nullcontext)
    assert before != after
    with pytest.warns(UncheckedFunctionWarning, match="Cube.*, because") as said:
        now, inside, results = run(make, remedy)
    assert len(said) == 1 and said[0].filename == __file__
    assert (now, inside) == (before, after)
    for result in results:
        torch.testing.assert_close(result, SECOND)


class InATestCase(unittest.TestCase):
    """Functions inside tests use `self`, which leads to what runs the tests."""

    steps = 0

    def test_what_it_counts(self):
        def change(x):
            self.steps += 1

        def make():
            self.steps = 0
            return change, lambda: self.steps

        with warnings.catch_warnings():
            warnings.simplefilter("error", UncheckedFunctionWarning)
            assert run(make, detect_intermediates)[:2] == run(make, nullcontext)[:2]
