"""What a second derivative through one compiled region gives, the region by itself."""

import warnings
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from double_backward.check import Outcome
from double_backward.regions import NOT_COMPILED, Region
from double_backward.remedies import (
    SecondDerivativeError,
    UncheckedFunctionWarning,
    detect_intermediates,
)

from .compiled import Twice
from .settings import Setting, says_unused


def diagnosed_region(
    region: Region, function: Any, args: list, keywords: dict, parameters: Collection[int]
) -> tuple[Outcome, str]:
    """What a second derivative through one region gives, and why.

    Args:
        function: the class that stands for it.
        args: for its `apply`.
        keywords: the same.
        parameters: which of the tensors among args are parameters of a module. Nobody asks by one
            of these alone.
    """

    def applied(*given: Any) -> Any:
        return function.apply(*given, **keywords)

    asked = Twice.of(applied, tuple(args), parameters)
    # By all at once, as a training asks; by what is no parameter, and each of that alone.
    ways = [replace(asked, given=[])]
    if asked.given:
        ways.insert(0, replace(asked, leaves=asked.given))
    plainly = [(way, setting, way.second(setting)) for way in ways for setting in Setting]
    silent = [(w, s) for w, s, said in plainly if said.second is not None or says_unused(said.text)]
    with detect_intermediates(), warnings.catch_warnings(record=True, action="always") as heard:
        texts = [way.second(setting).text for way, setting in silent]
    if any(text.startswith(SecondDerivativeError.__name__) for text in texts):
        return Outcome.WRONG, (
            f"A second derivative through {region} can be wrong without an error: it keeps results "
            f"and intermediates, which come back without a graph. {NOT_COMPILED}"
        )
    errors = [said.text for *_, said in plainly if said.text and not says_unused(said.text)]
    if errors:
        text = f"A second derivative through {region} raises: {errors[0]}. {NOT_COMPILED}"
        return Outcome.RAISES, text
    unchecked = [w.message for w in heard if issubclass(w.category, UncheckedFunctionWarning)]
    return (Outcome.NOT_ASKED, str(unchecked[0])) if unchecked else (Outcome.RIGHT, "")
