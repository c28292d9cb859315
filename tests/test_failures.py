"""Loud when blind: where torch has changed, or this package fails, it says so and blames nobody."""

import functools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from made_functions import function, x
from torch.autograd.function import BackwardCFunction

import double_backward
from double_backward import (
    SecondDerivativeError,
    assert_double_backward,
    calls,
    change,
    detect_intermediates,
    diagnose,
    diagnose_all,
    recompute_intermediates,
    trial,
)
from double_backward.failures import ToolFailure, handed_over, own
from double_backward.rehearsal import second_derivative
from double_backward.remedies.known import forget
from lessons_src.saving_inputs import Square
from lessons_src.what_not_to_do import SinhBad

ROOT = Path(__file__).resolve().parent.parent


def wrong_step():
    forget()  # what an earlier trial has found
    second_derivative(SinhBad, x())


def inside_detect():
    with detect_intermediates():
        wrong_step()


def inside_recompute():
    with recompute_intermediates():
        wrong_step()


VERBS = {
    "detect": inside_detect,
    "recompute": inside_recompute,
    "diagnose_all": lambda: diagnose_all(wrong_step),
}
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


def said_by(verb, function):
    """What a verb says of a Function, in a word: "loud" where it has failed itself."""
    forget()
    point = x()
    try:
        if verb == "diagnose":
            found = diagnose(function.apply, point)
            lost = any(finding.code == "tool_failed" for finding in found.findings)
            return "loud" if lost else found.verdict
        if verb == "diagnose_all":
            return diagnose_all(lambda: second_derivative(function, point)).rows[0].verdict
        remedy = detect_intermediates if verb == "detect" else recompute_intermediates
        with remedy():
            return second_derivative(function, point).tolist()
    except ToolFailure:
        return "loud"
    except SecondDerivativeError:
        return "wrong"


said_before = functools.cache(said_by)

# Each was told as a fault of the user's, or raised as a plain error, by a verb at least.
LESS = [
    (torch._C, "_TorchDispatchModeKey"),
    (torch.Tag, "pointwise"),
    (torch.autograd, "Variable"),
    (torch.cuda, "is_available"),
    (torch.autograd.function, "BackwardCFunction"),
    (torch.autograd.function._SingleLevelFunction, "jvp"),
    (torch.autograd.forward_ad, "unpack_dual"),
    (torch.utils._pytree, "TreeSpec"),
]


@pytest.mark.parametrize(("owner", "name"), LESS, ids=[name for _, name in LESS])
def test_without_a_name_of_torch_a_verb_is_loud_or_says_the_same(owner, name, monkeypatch):
    """Of a right Function and of a wrong one."""
    pairs = [(verb, f) for verb in (*VERBS, "diagnose") for f in (Square, SinhBad)]
    before = {pair: said_before(*pair) for pair in pairs}
    with monkeypatch.context() as without:
        without.delattr(owner, name)
        after = {pair: said_by(*pair) for pair in pairs}
    assert after == {pair: "loud" if after[pair] == "loud" else before[pair] for pair in pairs}


# What a new torch may do to us: a name is gone, or is there and does something else.
GONE = [
    (BackwardCFunction, "apply_jvp"),
    (torch.autograd, "_engine_run_backward"),
    (torch.autograd.forward_ad, "_set_fwd_grad_enabled"),
    (torch._functorch.autograd_function, "generate_single_level_function"),
]


@every_verb
@pytest.mark.parametrize(("owner", "name"), GONE, ids=[name for _, name in GONE])
def test_a_hook_that_torch_has_no_more_is_one_error_with_its_name(verb, owner, name, monkeypatch):
    VERBS["diagnose_all"]()  # it was there before, in this process
    monkeypatch.delattr(owner, name)
    with pytest.raises(ToolFailure, match=f"(?s)not what it was given.*{name}") as said:
        verb()
    assert torch.__version__ in str(said.value) and "Use another torch" in str(said.value)


def another_backward(monkeypatch):
    """Torch takes the backward of a Function from elsewhere."""
    monkeypatch.setattr(BackwardCFunction, "apply", property(lambda node: lambda *_: node.moved()))


def another_engine(monkeypatch):
    """Torch records no backward, so that nothing of it is ever told to us."""
    engine = torch.autograd._engine_run_backward

    def run(tensors, grad_tensors, keep_graph, create_graph, *args, **kwargs):
        return engine(tensors, grad_tensors, True, False, *args, **kwargs)

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", run)


@every_verb
@pytest.mark.parametrize("changed", [another_backward, another_engine])
def test_a_torch_that_calls_otherwise_is_noticed_before_anything_runs(verb, changed, monkeypatch):
    verb_that_works = VERBS["diagnose_all"]
    verb_that_works()
    changed(monkeypatch)
    with pytest.raises(ToolFailure, match="the rehearsal of .* with RightRehearsal"):
        verb()
    monkeypatch.undo()
    assert verb_that_works()["SinhBad"].verdict == "silently_wrong"


@every_verb
@pytest.mark.parametrize(
    ("module", "attribute"), [(calls, "copied"), (trial, "Line"), (trial, "copied")]
)
def test_a_fault_of_ours_is_never_told_as_that_of_a_function(verb, module, attribute, monkeypatch):
    """Not even where the verb has worked before, so that it is not rehearsed again."""
    VERBS["diagnose_all"]()
    monkeypatch.setattr(module, attribute, None)
    try:
        found = verb()
    except ToolFailure as said:
        assert "not what it was given" in str(said) and "NoneType" in str(said)
    else:  # diagnose_all goes without it
        assert not found.ok and found["SinhBad"].verdict == "silently_wrong"


def test_diagnose_says_that_it_has_failed_itself(monkeypatch):
    monkeypatch.setattr(double_backward.diagnosis.preparation.target, "copied", None)
    found = diagnose(SinhBad.apply, x())
    assert (found.verdict, found.findings[0].code) == ("not_checked", "tool_failed")
    assert found.findings[0].message.startswith("This says nothing of fn. double_backward itself")


def raises(*_):
    raise AttributeError("mine")


@pytest.mark.parametrize(
    "forward, backward",
    [(lambda ctx, x: raises(), raises), (lambda ctx: None, raises), (lambda ctx, x: 2 * x, raises)],
    ids=["forward", "forward's signature", "backward"],
)
def test_an_error_of_the_users_is_theirs(forward, backward):
    """Whatever it is, and also where the call itself raises, in the line that is ours."""
    wrong = function(forward, backward)
    found = diagnose(wrong.apply, x())
    assert found.findings[0].code != "tool_failed"
    found = diagnose_all(lambda: wrong.apply(x()).sum().backward())
    assert type(found.error) in (AttributeError, TypeError)


def test_what_a_line_of_ours_raises_on_purpose_is_no_fault():
    """What a verb cannot be asked, and an assertion that fails; inside another verb, too."""
    found = diagnose_all(lambda: assert_double_backward(SinhBad.apply, x()))
    assert type(found.error) is AssertionError
    assert type(diagnose_all(lambda x: x).error) is TypeError
    with pytest.raises(ValueError, match="order takes 2 or 3"), detect_intermediates():
        diagnose(SinhBad.apply, x(), order=5)


def test_what_torch_misses_inside_itself_is_no_fault_of_fn(monkeypatch):
    source = "def cat(*tensors, **settings):\n    return torch.gone_by_now\n"
    inside, made = Path(torch.__file__).with_name("made.py"), {"torch": torch}
    exec(compile(source, str(inside), "exec"), made)
    monkeypatch.setattr(torch, "cat", made["cat"])
    found = diagnose(SinhBad.apply, x())
    assert found.findings[0].code == "tool_failed"
    assert "has no attribute 'gone_by_now'" in found.findings[0].message


def test_a_name_that_a_function_takes_for_one_of_torch_is_its_own_fault():
    f = function(lambda ctx, x: torch.sinhh(x), lambda ctx, g: g)
    assert diagnose(f.apply, x()).findings[0].code == "fn_raises"


@pytest.mark.parametrize("call", [lambda: torch.sin(1, 2, 3), lambda: torch.ones(2).view(3)])
def test_what_is_handed_over_may_be_written_in_c(call):
    with pytest.raises((TypeError, RuntimeError)) as raised:
        handed_over(call)
    assert own(raised.value) is None


def test_ctrl_c_and_a_full_memory_are_nobodys_fault():
    for kind in (KeyboardInterrupt, MemoryError, RecursionError):
        error = kind()
        try:
            change.fitting(Raising(error), x())
        except kind as raised:
            assert own(raised) is None


class Raising:
    """Raises in the line of ours that asks for its shape."""

    def __init__(self, error):
        self.error = error

    @property
    def shape(self):
        raise self.error


def test_our_own_line_is_named():
    with pytest.raises(AttributeError) as raised:
        change.fitting(None, x())
    said = str(own(raised.value))
    assert "double_backward/change.py, line " in said and "has no attribute 'shape'" in said


MOVED = """
from torch.autograd.function import BackwardCFunction

del BackwardCFunction.apply_jvp
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["detect", "recompute"])
def test_a_suite_of_tests_is_red_where_torch_has_moved(how, tmp_path):
    (tmp_path / "conftest.py").write_text(MOVED)
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    command = [sys.executable, "-m", "pytest", f"--double-backward={how}", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "has no torch.autograd.function.BackwardC" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--detect"], ["--recompute"], ["--strict"]])
def test_a_script_is_not_run_where_torch_has_moved(options, tmp_path):
    """Its own errors are shown without our lines; this one is ours."""
    (tmp_path / "sitecustomize.py").write_text("import double_backward.calls\n" + MOVED)
    (tmp_path / "train.py").write_text("print('ran')\n")
    command = [sys.executable, "-m", "double_backward", *options, "train.py"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("double_backward itself has failed")


def bad(tensor):
    raise SystemError


def in_backward(act):
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad_out):
            act()
            return grad_out

    F.apply(x()).sum().backward()


def within(manager):
    def run(act):
        with manager():
            act()

    return run


def in_threads(act):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: act(), range(4)))


PLACES = {
    "torch.func.grad": lambda act: torch.func.grad(lambda x: (act(), x.sin())[1])(torch.ones(())),
    "torch.func.vmap": lambda act: torch.func.vmap(lambda x: (act(), x.sin())[1])(torch.ones(3)),
    "inference_mode": within(torch.inference_mode),
    "no_grad": within(torch.no_grad),
    "autocast": within(lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "meta": within(lambda: torch.device("meta")),
    "hooks": within(lambda: torch.autograd.graph.saved_tensors_hooks(bad, bad)),
    "backward": in_backward,
    "threads": in_threads,
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_verb_can_be_begun_anywhere(place, monkeypatch):
    """Its rehearsal has nothing to do with what is active there, and leaves no trace."""
    engine = torch.autograd._engine_run_backward
    monkeypatch.setattr(torch.autograd, "_engine_run_backward", lambda *a, **k: engine(*a, **k))
    torch.manual_seed(0)
    before = torch.get_rng_state()

    def begin():
        for remedy in (detect_intermediates, recompute_intermediates):
            with remedy():
                pass
        diagnose_all(lambda: None)

    place(begin)
    assert torch.equal(before, torch.get_rng_state())


def test_a_name_that_torch_lacks_when_the_package_is_loaded_is_said(monkeypatch):
    def lacking(module):
        return torch.OutOfMemoryErrors

    monkeypatch.setattr(double_backward, "import_module", lacking)
    with pytest.raises(ImportError, match="no attribute 'OutOfMemoryErrors'.* another torch"):
        from double_backward import draw  # noqa: F401
