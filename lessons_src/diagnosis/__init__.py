"""diagnose: is the second derivative right, and if not, why. The findings and their lessons:"""

import contextlib
import gc
import html
import random
import sys
import textwrap
import time
import traceback
import warnings
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .evidence import kinds
from .findings import NOT_CHECKED, Finding, Rules, Verdict
from .measure import Row, flat, measure, shaped

__doc__ += "\n".join(f"    {rule.__name__:<31}{rule.lesson}" for rule in Rules.all())
WRAP = {"width": 100, "break_long_words": False, "break_on_hyphens": False}
__all__ = ["Diagnosis", "Finding", "Verdict", "assert_double_backward", "diagnose"]


class NotChecked(Exception):
    """A code of `NOT_CHECKED`, and the text for its {}."""


class Target:
    """fn as a function of the tensors that require grad, all in one dtype, under one seed.

    Everything else is handed over as a copy, the parameters and buffers of a module too.
    """

    def __init__(self, fn, inputs, dtype):
        self.fn, self.seed, self.calls, self.layout, self.kept = fn, 0, 0, None, None
        slots, self.tree = tree_flatten(inputs)
        module = fn if isinstance(fn, torch.nn.Module) else torch.nn.Module()
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self.state, self.slots = list(state), [*slots, *state.values()]
        for i, slot in enumerate(self.slots):
            if isinstance(slot, torch.Tensor):
                wanted = dtype if slot.is_floating_point() else None
                self.slots[i] = slot.detach().clone().to(wanted or slot.dtype)
                self.slots[i].requires_grad_(slot.requires_grad)
        names = ["x"] if len(slots) == 1 else [f"input {i}" for i in range(len(slots))]
        self.where = [i for i, s in enumerate(self.slots) if getattr(s, "requires_grad", False)]
        self.names = [(names + self.state)[i] for i in self.where]
        self.point = [self.slots[i].detach() for i in self.where]

    def __call__(self, xs):
        """The outputs that have a graph, complex ones as pairs of real numbers."""
        slots = [s.detach().clone() if isinstance(s, torch.Tensor) else s for s in self.slots]
        n, before = len(slots) - len(self.state), time.perf_counter()
        for i, x in zip(self.where, xs, strict=True):
            slots[i] = self.layout(x) if self.layout and i < n else x  # parameters are contiguous
        args = tree_unflatten(slots[:n], self.tree)
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(self.seed)
        state = dict(zip(self.state, slots[n:], strict=True))
        out = torch.func.functional_call(self.fn, state, args) if state else self.fn(*args)
        self.calls, seconds = self.calls + 1, time.perf_counter() - before
        if seconds > 2:
            print(f"diagnose: call {self.calls} of fn, {seconds:.0f} s", file=sys.stderr)
        ys = [y for y in tree_flatten(out)[0] if isinstance(y, torch.Tensor)]
        if self.kept is None:
            self.kept = [i for i, y in enumerate(ys) if y.requires_grad]
        kept = (ys[i] for i in self.kept)
        return [torch.view_as_real(y) if y.is_complex() else y for y in kept]

    def start(self, bent=False, shift=0.0):
        """Leaves t, and the inputs point + t (+ t**2/2 if bent) and outputs of fn."""
        zeros = [torch.zeros_like(x) for x in self.point]
        t = [s.requires_grad_() for s in shaped(flat(zeros) + shift, zeros)]
        xs = [x + s + s * s / 2 if bent else x + s for x, s in zip(self.point, t, strict=True)]
        return t, xs, self(xs)

    @property
    def scale(self):
        """Inputs of size 1 or more are moved by a step itself, smaller ones in proportion."""
        sizes = [x.abs().mean().item() for x in self.point if x.numel()]
        return min([1.0, *(max(size, 1e-3) for size in sizes if size > 0)])

    def place(self, index):
        """Where an element of the flattened inputs is: "x = 0.5" or "x[3, 7] = 0.5"."""
        for name, x in zip(self.names, self.point, strict=True):
            if index < x.numel():
                at = ", ".join(str(int(i)) for i in np.unravel_index(index, x.shape))
                alone = x.dim() == 0 or (x.numel() <= 8 and x.unique().numel() == x.numel())
                return f"{name if alone else f'{name}[{at}]'} = {x.reshape(-1)[index].item():.4g}"
            index -= x.numel()


@dataclass
class Diagnosis:
    """The answer of `diagnose`; printed, a text to read."""

    name: str  # of what was diagnosed
    verdict: Verdict  # also a string
    findings: list  # of `Finding`: code, message, lesson; the most important first
    first: Row | None = None  # the first derivative
    settings: dict = field(default_factory=dict)  # the second in each setting: name -> `Row`
    third: dict = field(default_factory=dict)  # the same for order=3, else empty
    saved: list = field(default_factory=list)  # of `Saved`: what custom Functions keep
    torch_func: str = ""  # "right", "zeros", "wrong" or the error that torch.func raises

    @property
    def ok(self):
        return self.verdict is Verdict.SUPPORTED

    def __str__(self):
        table = [("first derivative", "", _outcome(self.first))] if self.first else []
        for title, rows in (("second derivative", self.settings), ("third derivative", self.third)):
            table += [(title, name, _outcome(row)) for name, row in rows.items()]
        if self.torch_func and "setup_context" not in self.torch_func:
            table.append(("torch.func", "", self.torch_func))
        for s in self.saved:
            by = f"ctx.{s.name}" if s.name else "save_for_backward"
            table.append(("saved", "", f"{s.kind} {s.shape} {s.dtype}, {s.bytes} bytes, {by}"))
        early = bool(self.third) and all(row.outcome == "right" for row in self.settings.values())
        headline = self.verdict.headline.replace("second", "third" if early else "second")
        lines, last = [f"{self.name}: {headline}", ""], ""
        for title, name, text in table:
            head = ("" if title == last else title).ljust(20) + (name.ljust(16) if name else "")
            indent = " " * (44 if name else 28)
            lines += textwrap.wrap(head + text, subsequent_indent=indent, **WRAP)
            last = title
        lines += [""] if table else []
        width = max((len(f.code) for f in self.findings), default=0) + 2
        for f in self.findings:
            text, mark = f.code.ljust(width) + f.message, f"-> lesson {f.lesson}"
            text = textwrap.wrap(text, subsequent_indent=" " * width, **WRAP)
            text += [""] if len(text[-1]) + len(mark) > 98 else []
            lines += [*text[:-1], text[-1].ljust(100 - len(mark)) + mark]
        return "\n".join(lines).rstrip()

    __repr__ = __str__

    def _repr_html_(self):
        """The same words, in the colours of the theme."""
        return f'<pre style="color: inherit; background: none">{html.escape(str(self))}</pre>'


def _outcome(row):
    if row.outcome == "wrong" and row.where:
        digits = "z.4f" if 1e-2 <= max(abs(row.expected), abs(row.got)) < 1e5 else "z.4g"
        expected, got = format(row.expected, digits), format(row.got, digits)
        return f"WRONG   expected {expected:>7}, got {got} at {row.where}"
    return {
        "right": "right   (0; autograd raises: nothing depends on x)" if row.text else "right",
        "wrong": "WRONG   not the derivative of what backward returns",
        "raises": f"raises: {row.text}",
        "not finite": f"NOT FINITE at {row.where}" if row.where else "NOT FINITE",
        "unclear": "unclear (not smooth here, or noise)",
    }[row.outcome]


@contextlib.contextmanager
def _no_trace():
    """Put back what a call of fn may change, and collect its warnings."""
    default, python, numpy = torch.get_default_dtype(), random.getstate(), np.random.get_state()
    kinds = torch.Tensor, torch.nn.Parameter
    leaves = [t for t in gc.get_objects() if type(t) in kinds and t.is_leaf and t.requires_grad]
    grads = [t.grad if t.grad is None else (t.grad, t.grad.clone()) for t in leaves]
    fork, mode, grad = torch.random.fork_rng(), torch.inference_mode(False), torch.enable_grad()
    with fork, mode, grad, warnings.catch_warnings(record=True, action="always") as met:
        try:
            yield met
        finally:
            torch.set_default_dtype(default)
            random.setstate(python)
            np.random.set_state(numpy)
            for t, grad in zip(leaves, grads, strict=True):
                t.grad = grad and grad[0]
                if grad:
                    grad[0].data.copy_(grad[1])


def diagnose(fn, *inputs, order=2):
    """Check first and second derivative of fn, and explain what is wrong.

    Args:
        fn: callable that returns a tensor or a container of tensors: `Function.apply`, a lambda, an
            `nn.Module` (its parameters count as inputs).
        *inputs: what to call fn with. Tensors that require grad, also in lists, are differentiated:
            any shape, real floating dtype, converted to float64 where fn allows it.
        order: 3 to check the third derivative also.

    Returns:
        `Diagnosis`; nothing is raised for a wrong fn, and nothing outside is changed.
    """
    name = getattr(getattr(fn, "__self__", fn), "__name__", type(fn).__name__)
    with _no_trace() as met:
        try:
            target, seeded = _prepare(fn, inputs)
        except NotChecked as reason:
            code, *text = reason.args
            finding = Finding(code, NOT_CHECKED[code].format(*text), 1)
            return Diagnosis(name, Verdict.NOT_CHECKED, [finding])
        generator = torch.Generator().manual_seed(0)
        probe, moved, given = measure(target, order, generator), False, target.point
        if not probe.wrong and probe.telling < 2:
            draws = [torch.rand(x.shape, generator=generator, dtype=x.dtype) for x in given]
            target.point = [x + 0.1 * target.scale * r for x, r in zip(given, draws, strict=True)]
            other = measure(target, order, generator)
            moved = other.wrong or other.telling > probe.telling
            moved = moved and other.first.outcome not in ("raises", "not finite")
            probe, target.point = (other, target.point) if moved else (probe, given)
        rules = Rules(probe, moved, seeded, generator, [str(w.message) for w in met])
    saved = [s for f in rules.functions for s in f.saved]
    about = probe.first, probe.second, probe.third, saved, rules.torch_func
    return Diagnosis(name, rules.verdict, list(rules.findings()), *about)


def _prepare(fn, inputs):
    """A `Target` that can be measured, and whether its output depends on the seed."""
    given = Target(fn, inputs, None)
    dtypes = {x.dtype for x in given.point}
    if not dtypes:
        raise NotChecked("no_input_requires_grad")
    if any(x.is_complex() or x.layout != torch.strided for x in given.point):
        raise NotChecked("complex_or_sparse_input")
    try:
        kept = kinds(given)
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
        where = f"in {frames[-1].name}, line {frames[-1].lineno}"
        raise NotChecked("fn_raises", f"{type(error).__name__}: {error} ({where}).") from error
    if not given.kept:
        raise NotChecked("output_without_graph")
    if dtypes & {torch.bfloat16, torch.float16}:
        raise NotChecked("half_precision")
    target = given
    with contextlib.suppress(Exception):  # fn may refuse float64, or do something else there
        double = Target(fn, inputs, torch.float64)
        target = double if kinds(double) == kept else given
    runs = []
    for target.seed in (1, 0, 0):
        runs.append(target.start()[2])
    if not all(map(torch.equal, *runs[1:])):
        raise NotChecked("random_output")
    return target, not all(map(torch.equal, *runs[:2]))


def assert_double_backward(fn, *inputs):
    """Raise AssertionError with the text of `diagnose` unless its verdict is "supported"."""
    if not (diagnosis := diagnose(fn, *inputs)).ok:
        raise AssertionError(str(diagnosis))
