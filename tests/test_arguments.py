"""Misuse of a verb: one sentence at the call, and nothing of the reader's has run by then."""

import math

import numpy as np
import pytest
import torch

from double_backward import (
    assert_all_double_backward,
    assert_double_backward,
    detect_intermediates,
    diagnose,
    diagnose_all,
)
from lessons_src.saving_inputs import Square


def never(*_):
    raise AssertionError("it was called")


def x():
    return torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)


def in_detect(ignore):
    with detect_intermediates(ignore=ignore):
        never()


OF_FN = [
    lambda **given: diagnose(never, x(), **given),
    lambda **given: assert_double_backward(never, x(), **given),
]
OF_A_STEP = [
    lambda **given: diagnose_all(never, **given),
    lambda **given: assert_all_double_backward(never, **given),
]
ORDER = "order takes 2 or 3, not {}"
RTOL = "rtol takes a finite number, 0 or more, or None, not {}"
ATOL = "atol takes a finite number, 0 or more, not {}"
TIMEOUT = "timeout takes a number of seconds above 0, or None for no limit, not {}"
IGNORE = "ignore takes a list of Function classes, registered operators, or their names, not {}"
WRONG = [
    ("order", ORDER, TypeError, ["2", True, 2.0, None, [3]]),
    ("order", ORDER, ValueError, [4, 7, 1, 0, -1, np.int64(4)]),
    ("rtol", RTOL, TypeError, ["0.1", True, 1j, [0.1], torch.tensor(0.1)]),
    ("rtol", RTOL, ValueError, [-1, -1e-9, math.nan, math.inf, np.float32("nan")]),
    ("atol", ATOL, TypeError, ["0", None, False]),
    ("atol", ATOL, ValueError, [-1, math.nan, math.inf]),
    ("timeout", TIMEOUT, TypeError, ["3s", True, [3]]),
    ("timeout", TIMEOUT, ValueError, [0, -1, -0.5, math.nan, math.inf]),
    ("ignore", IGNORE, TypeError, ["Square", Square, 3, None, Square.apply]),
]
ITEMS = [3, None, int, torch.sin, Square.apply, x().relu()]
ROWS = [
    *(
        (n, error, given, said.format(repr(given)))
        for n, said, error, all_ in WRONG
        for given in all_
    ),
    *(("ignore", TypeError, [Square, item], IGNORE.format(repr(item))) for item in ITEMS),
]


NAMES = [f"{name} {i}" for i, (name, *_) in enumerate(ROWS)]  # a value's text may have an address


@pytest.mark.parametrize("name, error, given, said", ROWS, ids=NAMES)
def test_what_no_verb_takes(name, error, given, said):
    verbs = OF_FN + OF_A_STEP if name != "order" else OF_FN
    for verb in [*verbs, *([in_detect] if name == "ignore" else [])]:
        with pytest.raises(error) as raised:
            verb(**{name: given})
        assert str(raised.value) == said


@pytest.mark.parametrize(
    "given",
    [
        {"order": np.int64(3)},
        {"rtol": np.float32(0.01), "atol": 0, "timeout": np.int64(60)},
        {"rtol": 0, "atol": 1e-9, "timeout": 1e300},
        {"ignore": (each for each in [Square, "Square"])},
        {"ignore": {"Square": 1}},
    ],
    ids=["order", "limits", "limits at their edges", "a generator", "a dict"],
)
def test_what_diagnose_takes(given):
    assert diagnose(Square.apply, x(), **given).ok
