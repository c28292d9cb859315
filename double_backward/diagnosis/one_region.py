"""What a second derivative through one compiled region gives, the region by itself."""

import warnings
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
    region: Region, function: Any, args: list, keywords: dict
) -> tuple[Outcome, str]:
    """What a second derivative through one region gives, and why.

    Args:
        function: the class that stands for it.
        args: for its `apply`.
        keywords: the same.
    """

    def applied(*given: Any) -> Any:
        return function.apply(*given, **keywords)

    with detect_intermediates(), warnings.catch_warnings(record=True, action="always") as heard:
        asked = Twice.of(applied, tuple(args))
        texts = [asked.second(setting).text for setting in Setting]
    if any(text.startswith(SecondDerivativeError.__name__) for text in texts):
        return Outcome.WRONG, (
            f"A second derivative through {region} can be wrong without an error: it keeps results "
            f"and intermediates, which come back without a graph. {NOT_COMPILED}"
        )
    errors = [text for text in texts if text and not says_unused(text)]
    if errors:
        text = f"A second derivative through {region} raises: {errors[0]}. {NOT_COMPILED}"
        return Outcome.RAISES, text
    unchecked = [w.message for w in heard if issubclass(w.category, UncheckedFunctionWarning)]
    return (Outcome.NOT_ASKED, str(unchecked[0])) if unchecked else (Outcome.RIGHT, "")
