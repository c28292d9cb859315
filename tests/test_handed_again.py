"""A Function that takes something out of what it is handed gets the same in each call again."""

import array
import collections
import ctypes
import io
import types
from dataclasses import dataclass

import pytest
import torch
from made_functions import function, x
from torch.autograd import grad

from double_backward import (
    SecondDerivativeError,
    detect_intermediates,
    diagnose,
    diagnose_all,
    recompute_intermediates,
)
from double_backward.containers import anew


@dataclass
class Fields:
    powers: list


@dataclass(slots=True)
class Slots:
    powers: list


Pair = collections.namedtuple("Pair", "powers more")


class Own(dict):
    """Nothing of it lets itself be called by anybody but its owner."""

    def __init__(self, powers):
        dict.__setitem__(self, "p", powers)
        self.log = [0]

    def _refuse(self, *args):
        raise RuntimeError("this is for nobody")

    __copy__ = __deepcopy__ = __reduce_ex__ = __eq__ = __setitem__ = _refuse
    __hash__ = None


def of_a_stream(stream):
    return int(stream.read(1))


def of_a_number(number):
    number.value += 1
    return number.value


# What is handed over, and what a forward takes out of it: 3 where nobody has taken any before.
HANDED = {
    "dict": (lambda: {"p": 3}, lambda v: v.pop("p")),
    "nested": (lambda: {"a": [{"p": 3}]}, lambda v: v["a"][0].pop("p")),
    "list": (lambda: [3], lambda v: v.pop()),
    "appended to": (lambda: [0, 0, 0], lambda v: v.append(0) or len(v) - 1),
    "set": (lambda: {3}, lambda v: v.pop()),
    "deque": (lambda: collections.deque([3], maxlen=1), lambda v: v.pop()),
    "OrderedDict": (lambda: collections.OrderedDict(p=3), lambda v: v.popitem()[1]),
    "defaultdict": (lambda: collections.defaultdict(list, p=[3]), lambda v: v["p"].pop()),
    "Counter": (lambda: collections.Counter(p=3), lambda v: v.pop("p")),
    "fields": (lambda: Fields([3]), lambda v: v.powers.pop()),
    "slots": (lambda: Slots([3]), lambda v: v.powers.pop()),
    "a namespace": (lambda: types.SimpleNamespace(p=3), lambda v: vars(v).pop("p")),
    "in a tuple": (lambda: Pair([3], 0), lambda v: v.powers.pop()),
    "a class of one's own": (lambda: Own([3]), lambda v: v.log.pop() + v["p"].pop()),
    "bytearray": (lambda: bytearray([3]), lambda v: v.pop()),
    "array": (lambda: array.array("i", [3]), lambda v: v.pop()),
    "memoryview": (lambda: memoryview(bytearray([3])), lambda v: (v[0], v.__setitem__(0, 9))[0]),
    "ctypes": (lambda: ctypes.c_int(2), of_a_number),
    "StringIO": (lambda: io.StringIO("3"), of_a_stream),
    "BytesIO": (lambda: io.BytesIO(b"3"), of_a_stream),
}


def power(taken, right):
    def forward(ctx, x, options):
        ctx.n = n = taken(options)
        ctx.save_for_backward(x)
        ctx.slope = n * x ** (n - 1)
        return x**n

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (ctx.n * x ** (ctx.n - 1) if right else ctx.slope), None

    return function(forward, backward, "Power").apply


def second(f, options):
    (first,) = grad((f(point := x(), options) ** 2).sum(), point, create_graph=True)
    return grad(first.sum(), point)[0]


TRUE = 30 * x().detach() ** 4


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("name", HANDED)
def test_each_verb_hands_over_what_was_handed_over_first(name, right):
    make, taken = HANDED[name]
    f, verdict = power(taken, right), "supported" if right else "silently_wrong"
    assert diagnose(f, x(), make()).verdict == verdict
    (row,) = diagnose_all(lambda: second(f, make())).rows
    assert row.said == verdict
    with recompute_intermediates():
        torch.testing.assert_close(second(f, make()), TRUE)
    if right:
        with detect_intermediates():
            torch.testing.assert_close(second(f, make()), TRUE)
    else:
        with pytest.raises(SecondDerivativeError, match="ctx.slope"), detect_intermediates():
            second(f, make())


# A tensor that is handed over, and held by something else that is: who takes it from there when it
# is called again must find the one that it is handed then.


class Sine:
    def __init__(self, w):
        self.held = w

    def __call__(self, x):
        return (self.held * x).sin()


class Module(torch.nn.Module):
    def __init__(self, w):
        super().__init__()
        self.register_buffer("held", w)
        self.forward = types.MethodType(Sine.__call__, self)


def closing_over(held, found):
    return lambda x: (found(held) * x).sin()


HOLDERS = {
    "object": Sine,
    "module": Module,
    "cell": lambda w: closing_over(w, lambda held: held),
    "list": lambda w: closing_over([0, w], lambda held: held[1]),
    "tuple": lambda w: closing_over((0, (w,)), lambda held: held[1][0]),
    "dict": lambda w: closing_over({"a": [w]}, lambda held: held["a"][0]),
}


def integral(right):
    """sin(w x) of a function that holds w, which is handed over beside it."""

    def value(of, x):
        return of(x) if callable(of) else (of[0] * x).sin()

    def forward(ctx, of, x, w):
        ctx.of = of
        ctx.save_for_backward(x, w)
        ctx.slope = w * (w * x).cos()
        return value(of, x)

    def backward(ctx, g):
        x, w = ctx.saved_tensors
        with torch.enable_grad():
            (by_w,) = grad(value(ctx.of, x), w, g, create_graph=True)
        return None, g * (w * (w * x).cos() if right else ctx.slope), by_w

    return function(forward, backward, "Integral").apply


def second_of_both(f, make):
    point, w = x(), x(0.7, 0.4)
    first = grad((f(make(w), point, w) ** 2).sum(), (point, w), create_graph=True)
    return grad((first[0] * first[1]).sum(), (point, w))


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("name", HOLDERS)
def test_a_tensor_that_is_held_too_is_the_one_that_is_handed_over(name, right):
    make, f = HOLDERS[name], integral(right)
    truth = second_of_both(lambda of, x, w: (w * x).sin(), make)
    with recompute_intermediates():
        torch.testing.assert_close(second_of_both(f, make), truth)
    (row,) = diagnose_all(lambda: second_of_both(f, make)).rows
    assert row.said == ("supported" if right else "silently_wrong"), row.diagnosis
    if right:
        with detect_intermediates():
            torch.testing.assert_close(second_of_both(f, make), truth)
    else:
        with pytest.raises(SecondDerivativeError, match="ctx.slope"), detect_intermediates():
            second_of_both(f, make)


def test_what_is_handed_over_is_used_once_as_without():
    for remedy in (detect_intermediates, recompute_intermediates):
        options, f = {"p": [3, 3, 3, 3]}, power(lambda v: v["p"].pop(), True)
        with remedy():
            for left in (3, 2, 1, 0):
                torch.testing.assert_close(second(f, options), TRUE)
                assert options == {"p": [3] * left}


def test_what_holds_nothing_that_changes_is_not_copied():
    plain = x(), 1, "a", None, torch.Size([2]), (1, (2.0, x())), object(), frozenset({1})
    args, kwargs = anew(plain, {"b": (1,)})
    assert all(map(lambda a, b: a is b, args, plain)) and list(kwargs) == ["b"]
    only = x(), 2.0, None
    assert anew(only, {})[0] is only


def test_what_is_handed_over_twice_is_one_thing_and_a_circle_is_one():
    both: list = [1]
    both.append(both)
    (a, b), _ = anew((both, {"a": both}), {})
    assert a is b["a"] and a is not both and a[1] is a
    a.pop()
    assert len(both) == 2
