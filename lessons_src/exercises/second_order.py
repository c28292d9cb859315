"""The second derivative of an answer: is it right, what would a reader see, and why."""

import torch
from torch.autograd import grad

from lessons_src.diagnosis import diagnose
from lessons_src.graphs import walk

from .compare import Pair, explain, relation
from .reply import raised, wrong

CAUSES = (  # findings of diagnose that explain a wrong second derivative
    "once_differentiable",
    "extra_output_gradient_ignored",
    "input_copy_saved",
    "intermediate_saved",
    "intermediate_on_ctx",
    "noncontiguous_input",
    "grad_out_path_cut",
    "numpy_in_backward",
    "untracked_backward",
    "path_counted_twice",
    "in_place_without_mark_dirty",
    "no_derivative_formula",
)


def check_second_derivative(task, fn):
    """Differentiate backward by each of its variables, the inputs and grad_out.

    If all of these are right, every second derivative is right, whatever stands around fn.
    """
    groups = [_derivatives_of_backward(task, fn, args) for args in task.points]
    bad = [i for i, group in enumerate(groups) if any(pair.wrong for pair in group)]
    if not bad:
        return
    args = task.points[bad[0]]
    advice = (
        _extra_outputs(task, fn, args)
        or _second_function(task, fn, args, groups)
        or _cause(task, fn, dict.fromkeys((0, bad[0])))
        or _missing(groups)
        or explain(groups)
        or _otherwise(fn, task.fresh(args))
    )
    seen = _seen(task, fn, args) or _differing(groups)
    wrong(f"the second derivative is wrong. {seen}.", advice)


def _differing(groups):
    pair = next(pair for group in groups for pair in group if pair.wrong)
    return f"The derivative of backward with respect to {pair.what}, {pair}"


def _derivatives_of_backward(task, fn, args):
    """`Pair` for each input, and for grad_out last; grad_out and the vector h are no ones."""
    results = []
    for function in (fn, task.truth):
        xs = task.fresh(args)
        out = function(*xs)
        grad_out = task.grad_out(out, varied=True).requires_grad_()
        variables = [*task.tensors(xs), grad_out]
        try:
            first = grad(out, task.tensors(xs), grad_out, create_graph=True, allow_unused=True)
            h = [_steps(x) for x in task.tensors(xs)]
            total = sum((g * v).sum() for g, v in zip(first, h, strict=True))
            second = [None] * len(variables)
            if total.requires_grad:
                second = grad(total, variables, allow_unused=True)
        except Exception as error:
            raised("backward, differentiated itself,", error)
        zeros = map(torch.zeros_like, variables)
        results.append([z if s is None else s for s, z in zip(second, zeros, strict=True)])
    given, g = task.named(args), grad_out.detach()
    factors = {"grad_grad_x": h[0], "grad_out": g, **given}
    slips = {advice: formula(h[0], g, *args) for advice, formula in task.second_slips.items()}
    names = [*task.differentiated(args), "grad_out"]
    return [
        Pair(name, yours, true, given, factors, slips if name == names[0] else {})
        for name, yours, true in zip(names, *results, strict=True)
    ]


def _steps(x):
    """3, 4, 5 ...: a vector in which no two elements are alike."""
    return torch.arange(3, 3 + x.numel(), dtype=x.dtype).reshape(x.shape)


def _seen(task, fn, args):
    """What a reader sees who differentiates twice: the first formula with a wrong number."""
    names = task.differentiated(args)
    inner = ", ".join(task.inputs)
    squared = ", ".join(f"{n}²" if n in names else n for n in task.inputs)
    formulas = {
        f"F({inner})": lambda f, xs: f(*xs),
        f"F({inner})²": lambda f, xs: f(*xs) ** 2,
        f"F({squared})": lambda f, xs: f(*_squares(xs)),
        f"F({squared})²": lambda f, xs: f(*_squares(xs)) ** 2,
    }
    missing, note = ("", ""), task.note(args)
    if task.weights is not None:
        note = f", grad_out = {task.weights.tolist()}{note}"
    for label, formula in formulas.items():
        true = _twice(task, task.truth, formula, args)
        try:
            yours = _twice(task, fn, formula, args)
        except Exception as error:
            text = str(error).splitlines()[0].rstrip(".")
            missing = (
                missing if missing[0] else (f"{label} raises an error; ", f"{label} raises: {text}")
            )
            continue
        for name, a, b in zip(names, yours, true, strict=True):
            pair = Pair(name, a, b, task.named(args), note=note)
            if pair.wrong:
                by = f", with respect to {name}," if len(names) > 1 else ""
                return f"{missing[0]}{label}{by} {pair}"
    return missing[1]


def _squares(xs):
    return [x**2 if torch.is_tensor(x) else x for x in xs]


def _twice(task, function, formula, args):
    xs = task.fresh(args)
    out = formula(function, xs)
    weights = task.grad_out(out.detach(), varied=False)
    first = grad((weights * out).sum(), task.tensors(xs), create_graph=True)
    return grad(sum(g.sum() for g in first), task.tensors(xs))


def _extra_outputs(task, fn, args):
    """Is the gradient right that backward adds for each extra output that is saved?

    The truth is finite differences of the extra output itself.
    """
    xs = task.fresh(args)
    for number, kept in enumerate(_kept_extras(fn(*xs))):
        yours = grad(kept.sum(), xs, allow_unused=True, retain_graph=True)
        for i, x in enumerate(xs):
            mine = torch.zeros_like(x) if yours[i] is None else yours[i]
            true = torch.zeros_like(x)
            for k in range(x.numel()):
                step = torch.zeros_like(x)
                step.view(-1)[k] = 1e-5
                ends = [xs[:i] + [x + s] + xs[i + 1 :] for s in (step, -step)]
                up, down = (_kept_extras(fn(*end))[number].sum() for end in ends)
                true.view(-1)[k] = (up - down).item() / 2e-5
            pair = Pair(task.inputs[i], mine, true, task.named(args), {"the saved tensor": kept})
            if not torch.allclose(mine, true, rtol=1e-6, atol=1e-7):
                return _extra_advice(number, pair)
    return ""


def _extra_advice(number, pair):
    rounded = Pair(pair.what, pair.yours, pair.true.round(decimals=8), pair.given, pair.factors)
    words = ("first", "second", "third")[number] if number < 3 else "last"
    if not rounded.yours.any():
        advice = (
            f"The gradient of the {words} extra output is not used in backward. It arrives in the "
            "second backward: add it, times the derivative of that output."
        )
    else:
        how = relation([rounded])
        advice = f"backward's part for the {words} extra output is wrong, {rounded}" + (
            f". {how[0].upper()}{how[1:]}" if how else ""
        )
    return advice


def _kept_extras(out):
    """The saved tensors that are an output of their Function other than the first."""
    kept = [k for node in walk.walk(out).nodes if node.custom for k in node.kept]
    return [k.tensor for k in kept if k.role == walk.OUTPUT and k.position]


def _second_function(task, fn, args, groups):
    """If backward applies another Function: what is wrong in the backward of that one."""
    xs = task.fresh(args)
    out = fn(*xs)
    first = grad(out.sum(), task.tensors(xs), create_graph=True, allow_unused=True)
    before = {node.fn for node in walk.walk(out).nodes if node.custom}
    made = [g for g in first if g is not None and g.requires_grad]
    nodes = walk.walk(*made).nodes if made else []
    own = [node for node in nodes if node.custom and node.fn not in before]
    if not own:
        return ""
    names = dict.fromkeys(pair.what for group in groups for pair in group if pair.wrong)
    pairs = [pair for group in groups for pair in group if pair.wrong]
    if not any(pair.yours.any() for pair in pairs):
        said = f"It returns nothing for {' and '.join(names)}, but grad_x depends on that too."
    else:
        said = explain(groups)
        said = said or f"Its gradient for {' and '.join(names)} is wrong: derive it on paper."
    return f"Look at the backward of {own[0].title}. {said}"


def _cause(task, fn, where):
    """The first finding of diagnose that explains it, looked for at these points in turn."""
    for i in where:
        found = {f.code: f.message for f in diagnose(fn, *task.fresh(task.points[i])).findings}
        for code in CAUSES:
            if code in found:
                return found[code]
    return ""


def _missing(groups):
    """The variables of backward to which no graph leads from what it returns."""
    pairs = [pair for group in groups for pair in group]
    found = {pair.what for pair in pairs if pair.yours.any()}
    names = dict.fromkeys(pair.what for pair in pairs if pair.wrong and pair.what not in found)
    return names and (
        f"No graph leads from backward to {' and '.join(names)}. What backward takes for it is a "
        "constant: a copy made in forward, a number, or something detached."
    )


def _otherwise(fn, xs):
    """What is certain when no cause is known: the second derivative starts at what is kept."""
    kept = [k for node in walk.walk(fn(*xs)).nodes if node.custom for k in node.kept]
    told = {}
    for k in kept:
        own = f"ctx.{k.name}" if k.on_ctx else "a saved tensor that is neither input nor output"
        known = {walk.INPUT: "an input", walk.OUTPUT: "an output"}
        told[known.get(k.role, own)] = None
    if not told:
        return "The first derivative is right. Look at how backward makes it, step by step."
    return (
        f"The first derivative is right. Look at how backward makes it from what is kept "
        f"({', '.join(told)}), step by step: where does the graph end?"
    )
