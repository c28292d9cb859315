"""One call of the list: what `diagnose` says, and the second opinion."""

import warnings

import torch

from . import conditions
from .compare import compare, first_derivative, first_derivative_by_one
from .listed import CALLS

FIRST_WRONG = "first_derivative_wrong", "surrogate_gradient"


def look_at(name):
    """A dict of plain values: verdict, findings, the text of `diagnose`, the `Number`s."""
    from double_backward import diagnose

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    fn, inputs, *reference = CALLS[name].make()
    diagnosis = diagnose(fn, *inputs, timeout=None)  # `run` has a limit of its own
    fn, inputs, *reference = CALLS[name].make()  # diagnose may have met state that it changes
    reference = reference[0] if reference else None
    surrogate = CALLS[name].surrogate or diagnosis.verdict == "surrogate_gradient"
    first = None if CALLS[name].surrogate else first_derivative(fn, inputs)
    if first and not first.wrong and diagnosis.verdict in FIRST_WRONG:
        first = first_derivative_by_one(fn, inputs) or first
    numbers = compare(fn, inputs, reference, surrogate)
    if first and first.wrong:
        arguments = conditions.first_by_argument(fn, inputs)
    else:
        arguments = conditions.by_argument(fn, inputs, surrogate)
    if not surrogate and not any(number.wrong for number in numbers):
        blocks = (number for each in arguments.values() for number in each)
        numbers += [number for number in blocks if number.wrong and number.setting != "first"]
    numbers = [vars(number) | {"wrong": number.wrong} for number in numbers]
    return {
        "cause": diagnosis.cause.code if diagnosis.cause else "",
        "arguments": conditions.text(arguments),
        "reference": "formula" if reference else "differences",
        "verdict": str(diagnosis.verdict),
        "findings": [finding.to_dict() for finding in diagnosis.findings],
        "text": str(diagnosis),
        "numbers": numbers,
        "first": first and vars(first) | {"wrong": first.wrong},
    }
