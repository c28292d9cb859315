"""One region, compiled: what became of its second derivative, by each argument, in each setting."""

import warnings

import torch

from .nets import NETS, Net, forms
from .operations import SAMPLES, Operation, samples
from .second import (
    SETTINGS,
    by_differences,
    compiled,
    differentiate_twice,
    loss_of,
    region,
    with_zeros,
)  # fmt: skip

BACKENDS = ("aot_eager", "inductor")
RIGHT, WRONG, NOT_RUN = "right", "wrong", "not run"
REFUSES, NO_WAY, FAILS = "refuses", "no way", "fails"  # three that raise
OUTCOMES = {
    RIGHT: "the number is right",
    WRONG: "a wrong number, and no error",
    REFUSES: "an error that names double backward, or donated buffers",
    NO_WAY: "autograd's error that nothing leads back to x",
    FAILS: "another error, which `why` has",
    NOT_RUN: "nothing can be said; `why` has the reason",
}
REFUSALS = "does not currently support double backward", "non-empty donated buffers"
NO_WAYS = "does not require grad and does not have a grad_fn", "appears to not have been used"
FACTS = "graphs", "backwards", "keeps", "follows"
TOLERANCE = 1e-4  # of the largest entry
# The long step is good to about 1e-7; near the edge of a domain, as in atanh, only a short one is
# inside of it, and near enough for the formula.
STEPS = (1e-3, 1e-5, 1e-7)


def look_at(name, kind, backend, cases=None):
    """What is said of each case, a sample and an argument: dicts of texts.

    Returns:
        "samples", "by"; for each setting one of `OUTCOMES`; "graphs", how many Dynamo made, and
        "backwards", how many compiled backwards autograd then meets; "keeps", whether one of them
        keeps the very tensor that is asked for, in the last setting that ran; "follows", in which
        settings the grad_out of one leads to it, as something follows that is not linear. Where a
        setting is wrong, "setting" is the first that is, "expected" and "got" the two entries that
        are farthest apart; else "setting" and "why" are those of the gravest. Samples of which all
        the same is said stand in one dict.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {}
    for sample, by in cases or all_cases(name, kind):
        said_of_it = look_at_case(name, kind, sample, by, backend)
        same = by, *(said_of_it.get(key) for key in (*SETTINGS, *FACTS, "why"))
        row = found.setdefault(same, said_of_it | {"by": by, "samples": ""})
        row["samples"] = f"{row['samples']}; {sample}".removeprefix("; ")
    return list(found.values())


def all_cases(name, kind, most=SAMPLES):
    """A sample and an argument, each; of an operation the first samples, `most` of them."""
    if name in NETS:
        yield from ((given, by) for given in forms(name) for by in Net.by)
        return
    for sample in range(min(most, len(samples(name, kind)))):
        try:
            by = Operation(name, kind, sample).by
        except ValueError:
            by = ("all",)
        yield from ((str(sample), each) for each in by)


def look_at_case(name, kind, sample, by, backend):
    try:
        f = region(name, kind, sample, by)
    except Exception as error:
        return dict.fromkeys(SETTINGS, NOT_RUN) | {"why": said(error)}
    _counters().clear()
    function = compiled(f, backend)
    row, rank = dict.fromkeys(FACTS, ""), 0
    for setting in SETTINGS:
        row[setting], shown, met = outcome(f, function, setting)
        follows = " ".join(each for each in (row["follows"], met.pop("follows", "")) if each)
        row |= met | {"follows": follows}
        worse = (RIGHT, NOT_RUN, NO_WAY, REFUSES, FAILS, WRONG).index(row[setting])
        if worse > rank:
            rank = worse
            row |= {"setting": setting, "why": "", "expected": "", "got": ""} | shown
    return row


def outcome(f, function, setting):
    """The outcome, what tells why, and what the compiled region keeps."""
    try:
        first, expected = truth(f, setting)
    except Exception as error:
        return NOT_RUN, {"why": f"not compiled: {said(error)}"}, {}
    if expected is None:
        return NOT_RUN, {"why": "eager autograd and finite differences disagree"}, {}
    try:
        points, loss = loss_of(f, function, setting)
    except Exception as error:
        return FAILS, {"why": f"compiled: {said(error)}"}, {}
    met, seen = facts(loss, [points[i] for i in f.asked])
    try:
        first_got, got = differentiate_twice(f, points, loss, like=expected)
    except Exception as error:
        return kind_of(str(error)), {"why": said(error)}, met
    finally:
        met["follows"] = setting if any(seen) else ""
    moved, asked = ([f.points[i] for i in which] for which in (f.moved, f.asked))
    if not close(with_zeros(first, moved), with_zeros(first_got, moved)):
        return NOT_RUN, {"why": "the first derivative is not eager's"}, met
    expected, got = with_zeros(expected, asked), with_zeros(got, asked)
    if close(expected, got):
        return RIGHT, {}, met
    return WRONG, dict(zip(("expected", "got"), farthest(expected, got), strict=True)), met


def kind_of(text):
    """Which of the outcomes an error's text is."""
    if any(words in text for words in REFUSALS):
        return REFUSES
    return NO_WAY if any(words in text for words in NO_WAYS) else FAILS


def truth(f, setting):
    """First derivatives and H u by eager autograd; None for H u where no step of the differences
    says the same, along one of two directions."""
    asked = [f.points[i] for i in f.asked]
    for seed in (2, 1):
        points, loss = loss_of(f, f.function, setting)
        first, answer = differentiate_twice(f, points, loss, seed=seed)
        found = with_zeros(answer, asked)
        if not any(close(found, by_differences(f, setting, step, seed)) for step in STEPS):
            return first, None
    return first, answer


def facts(loss, points):
    """How many graphs there are, how many compiled backwards, whether one keeps a point; and a
    list that says, once the first derivative is taken, whether a grad_out leads to a point."""
    backwards = [node for node in nodes(loss.grad_fn) if node.name() == "CompiledFunctionBackward"]
    keeps = any(leads_to(t, points) for node in backwards for t in node.saved_tensors)
    seen = []
    for node in backwards:
        node.register_prehook(lambda grads: seen.extend(leads_to(g, points) for g in grads))
    found = {
        "graphs": str(_counters()["stats"].get("unique_graphs", 0)),
        "backwards": str(len(backwards)),
        "keeps": ("yes" if keeps else "no") if backwards else "",
    }
    return found, seen


def leads_to(tensor, points):
    if tensor is None or not tensor.requires_grad:
        return False
    start = torch.autograd.graph.get_gradient_edge(tensor).node
    leaves = [node.variable for node in nodes(start) if hasattr(node, "variable")]
    return any(leaf is point for leaf in leaves for point in points)


def nodes(start):
    """All nodes of the graph that begins there."""
    seen, waiting = set(), [start]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return seen


def _counters():
    from torch._dynamo.utils import counters  # seconds, for whoever only reads the tables

    return counters


def farthest(expected, got):
    """The two entries that are farthest apart, three digits each, or as many as tell them apart."""
    a, b = flat(expected), flat(got)
    worst = (a - b).abs().nan_to_num(nan=torch.inf).argmax()
    told = ((f"{a[worst]:.{digits}g}", f"{b[worst]:.{digits}g}") for digits in range(3, 9))
    return next(
        (pair for pair in told if pair[0] != pair[1]), (f"{a[worst]:.9g}", f"{b[worst]:.9g}")
    )


def close(a, b):
    """Whether the tensors agree to `TOLERANCE` of their largest entry; NaN agrees with nothing."""
    a, b = flat(a), flat(b)
    size = max(a.abs().max().item(), b.abs().max().item(), 1e-3) if a.numel() else 1.0
    return bool(((a - b).abs() <= TOLERANCE * size).all())


def flat(tensors):
    return torch.cat([t.detach().flatten() for t in tensors])


def said(error):
    """The error's class and first line, as much as tells it from others."""
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:150].strip()
