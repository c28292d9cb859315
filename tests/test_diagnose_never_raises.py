"""Whatever fn and the inputs are, `diagnose` returns in time, with a sentence."""

import collections
import contextlib
import dataclasses
import functools
import threading
import time

import pytest
import torch
from made_functions import function
from torch import nn

from double_backward import Diagnosis, diagnose
from double_backward.diagnosis.preparation.time_limit import TookTooLong, limited
from lessons_src.what_not_to_do import SinhBad

Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Result:
    a: object
    b: object = None


class NoText(Exception):
    def __str__(self):
        raise ValueError


class NoAttributes:
    def __getattr__(self, name):
        raise RuntimeError(name)

    def __call__(self, x):
        return x**2


class Mine(torch.Tensor):
    pass


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def scaled(self, x):
        return (self.weight * x) ** 2


def raises_without_text(x):
    raise NoText


def x(*values):
    return torch.tensor(values or (0.3, 0.9, -0.4), dtype=torch.float64, requires_grad=True)


def rows():
    return torch.ones(2, 4, requires_grad=True)


def jagged():
    parts = [torch.ones(2), torch.ones(3)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)


def cycle():
    found: list = []
    found.append(found)
    return found


@torch.jit.script
def scripted(x: torch.Tensor):
    return x**3


CALLS = {
    "nothing": (None, [x()], "fn_raises"),
    "no tensor": (torch.sin, [3], "no_input_requires_grad"),
    "no arguments": (torch.sin, [], "no_input_requires_grad"),
    "a list": (lambda a: a[0] * a[1], [[x(), x()]], ""),
    "a dict": (lambda a: a["u"] ** 2, [{"u": x()}], ""),
    "returns None": (lambda x: None, [x()], "no_output"),
    "returns a dict": (lambda x: {"y": x**2}, [x()], ""),
    "returns a named tuple": (lambda x: Pair(x**2, None), [x()], ""),
    "returns a dataclass": (lambda x: Result(x**2), [x()], ""),
    "lazy": (nn.LazyLinear(3), [rows()], "lazy_parameters"),
    "lazy inside": (nn.Sequential(nn.LazyLinear(3), nn.Tanh()), [rows()], "lazy_parameters"),
    "a lazy parameter": (lambda p: p * 2, [nn.UninitializedParameter()], "lazy_parameters"),
    "meta parameters": (nn.Linear(4, 2, device="meta"), [rows()], "meta_parameters"),
    "meta": (torch.sin, [torch.ones(3, device="meta", requires_grad=True)], "meta_input"),
    "sparse": (lambda s: s.to_dense() ** 2, [torch.eye(3).to_sparse().requires_grad_()], ""),
    "nested": (torch.sin, [jagged], "beyond_diagnose"),
    "a subclass": (lambda x: x**2, [x().detach().as_subclass(Mine).requires_grad_()], ""),
    "half a module": (nn.Linear(4, 2).half(), [rows()], "fn_raises"),
    "two precisions": (nn.Sequential(nn.Linear(4, 2).double()), [rows()], "fn_raises"),
    "partial": (functools.partial(torch.pow, exponent=3), [x()], ""),
    "bound": (Scaled().scaled, [x()], ""),
    "script": (scripted, [x()], ""),
    "a script module": (torch.jit.script(nn.Linear(4, 2)), [rows()], "fn_raises"),
    "vmap": (torch.vmap(lambda x: x**2), [x()], ""),
    "func.grad": (torch.func.grad(lambda x: (x**3).sum()), [x()], ""),
    "an error without text": (raises_without_text, [x()], "fn_raises"),
    "no attributes": (NoAttributes(), [x()], "beyond_diagnose"),
    "a list that holds itself": (lambda a, x: x**2, [cycle(), x()], "beyond_diagnose"),
    "a class": (nn.Linear, [x()], "fn_raises"),
}


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_a_diagnosis_comes_back(case):
    fn, inputs, code = CALLS[case]
    found = diagnose(fn, *(i() if i is jagged else i for i in inputs))  # imports Dynamo
    assert isinstance(found, Diagnosis) and str(found)
    if not code:
        assert found.ok, found
    else:
        assert found.verdict == "not_checked" and found.findings[0].code == code
        assert found.findings[0].message.endswith(".")


def differentiated_in_forward(ctx, x):
    with torch.enable_grad():
        y = x.detach().requires_grad_() ** 3
    ctx.save_for_backward(y, x)
    return y


def by_its_own_output(ctx, g):
    """Differentiates the output that forward saved, whose grad_fn is this Function."""
    y, x = ctx.saved_tensors
    return torch.autograd.grad(y, x, g, retain_graph=True)[0]


OwnOutput = function(differentiated_in_forward, by_its_own_output, "OwnOutput")


def test_a_backward_that_calls_itself_ends():
    found = diagnose(OwnOutput.apply, x())
    assert found.verdict == "raises" and found.findings[0].code == "endless_recursion"
    assert "differentiates an output of OwnOutput" in found.findings[0].message


def forever(ctx, g):
    while True:
        pass


Forever = function(lambda ctx, x: x**2, forever)


def waits(x):
    while True:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("fn", "where"), [(Forever.apply, "forever, line "), (waits, "waits, line ")]
)
def test_after_a_while_it_ends_and_says_what_was_running(fn, where):
    diagnose(lambda x: x**2, x())  # imports what it needs
    before = time.monotonic()
    found = diagnose(fn, x(), timeout=0.5)
    assert time.monotonic() - before < 30
    assert found.verdict == "not_checked" and found.findings[0].code == "took_too_long"
    assert f"while this was running: {where}" in found.findings[0].message


def test_an_import_is_not_ended_half_way(tmp_path, monkeypatch):
    """A package of which one module is loaded, and the next is not, breaks all that comes later."""
    (tmp_path / "loads_slowly.py").write_text(
        "import time\nfor _ in range(60):\n    time.sleep(0.01)\nlast = 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loaded = []

    def loads():
        with limited(0.2):
            import loads_slowly

            loaded.append(loads_slowly.last)
            for _ in range(3000):
                time.sleep(0.01)

    with pytest.raises(TookTooLong):
        loads()
    assert loaded == [2]


def test_what_is_known_to_be_wrong_is_told_where_time_was_too_short_for_the_rest(monkeypatch):
    def late(*_):
        raise TookTooLong

    monkeypatch.setattr("double_backward.diagnosis.gather.observe", late)
    found = diagnose(SinhBad.apply, x(), timeout=60.0)
    codes = [finding.code for finding in found.findings]
    assert found.verdict == "silently_wrong" and codes[0] == "took_too_long"
    assert "intermediate_on_ctx" in codes and "seen before" in found.findings[0].message


def test_the_limit_holds_in_other_threads():
    found = []
    thread = threading.Thread(
        target=lambda: found.append(diagnose(Forever.apply, x(), timeout=0.5)), daemon=True
    )
    thread.start()
    thread.join(30)
    assert found and found[0].findings[0].code == "took_too_long"


caught, called = [], []


def waits_once(x):
    called.append(len(caught))
    try:
        waits(x)
    except:  # noqa: E722
        caught.append("bare")
    return x**2


def keeps_the_error(x):
    called.append(len(caught))
    try:
        waits(x)
    except BaseException as error:
        caught.append(error)
    return x**2


def tries_again(x):
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            caught.append("again")


def tries_again_around(x):
    while True:
        try:
            tries_again(x)
        except BaseException:
            caught.append("around")


def suppresses(x):
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.01)


def raises_another(x):
    while True:
        with contextlib.suppress(ValueError):
            try:
                time.sleep(0.01)
            except BaseException as error:
                caught.append("another")
                raise ValueError from error


def waits_in_backward(ctx, g):
    return waits_once(g)


@pytest.mark.parametrize(
    "fn, times",
    [
        (waits_once, 1),
        (function(lambda ctx, x: x**2, waits_in_backward).apply, 1),
        (keeps_the_error, 1),
        (tries_again, 1),
        (tries_again_around, 2),
        (suppresses, 0),
        (raises_another, 1),
    ],
)
def test_code_that_catches_everything_ends_and_is_not_called_again(fn, times):
    caught.clear(), called.clear(), diagnose(lambda x: x**2, x())
    found = []
    thread = threading.Thread(target=lambda: found.append(diagnose(fn, x(), timeout=0.5)))
    thread.daemon = True
    thread.start()
    thread.join(30)
    assert found and found[0].findings[0].code == "took_too_long"
    assert len(caught) <= times and not any(called)


def test_what_has_ended_leaves_no_error_behind():
    caught.clear()
    for _ in range(3):
        assert diagnose(keeps_the_error, x(), timeout=0.1).verdict == "not_checked"
    caught.clear()  # the errors that were kept are dropped here, when nothing runs any more
    assert diagnose(lambda x: x**2, x(), timeout=30).ok


def test_a_limit_that_is_reached_in_several_threads_stays_with_each():
    after = []

    def often():
        for seconds in [1e-9, 1e-6, 1e-4, 2e-4, 5e-4] * 40:
            try:
                with contextlib.suppress(TookTooLong), limited(seconds):
                    for _ in range(2000):
                        pass
                for _ in range(500):
                    pass
            except TookTooLong as late:
                after.append(late)

    threads = [threading.Thread(target=often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not after and diagnose(lambda x: x**2, x(), timeout=30).ok


def test_a_limit_that_is_not_reached_leaves_nothing():
    assert diagnose(lambda x: x**2, x(), timeout=30).ok
    assert diagnose(lambda x: x**2, x(), timeout=None).ok
    assert not [t for t in threading.enumerate() if isinstance(t, threading.Timer)]
