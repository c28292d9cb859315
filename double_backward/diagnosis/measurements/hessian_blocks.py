"""With several inputs: by which input is the gradient of which differentiated correctly?

For a potential of positions and parameters, the derivative of the forces by the positions may be
right, and that by the parameters lost.
"""

from double_backward import check
from double_backward.check import Compared, Expected, Outcome

from .measure import Measured

MOST_INPUTS = 6  # inputs
LOST, ZERO = "lost", "0"  # beside the words of `Outcome`


def blocks(measured: Measured) -> dict[str, dict[str, str]]:
    """Dict: the name of an input -> the name of an input -> what became of the derivative, by the
    second input, of the gradient of the first.

    {} with one input, and where the dict would not show what is wrong. Raises what fn raises.
    """
    names, expected = measured.probe.target.names, measured.expected
    if not 2 <= len(names) <= MOST_INPUTS or expected is None or measured.by_backward:
        return {}
    if measured.first.outcome is not Outcome.RIGHT:
        return {}
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    for j, by in enumerate(names):
        line = expected.line.with_constants().by_input_only(j)
        moved = check.measure(line, expected.rtol, expected.atol, expected.dtype)
        said = check.by_place(moved)
        for i, name in enumerate(names):
            found[name][by] = _word(moved, i, said.get(i))
    words = {word for row in found.values() for word in row.values()}
    return found if words - {Outcome.RIGHT, ZERO} else {}


def _word(moved: Expected, place: int, said: Compared | None) -> str:
    if said is None:  # nothing of it is known to change
        changes = moved.by_input.value.split(moved.sizes)[place]
        return str(Outcome.UNCLEAR) if changes.any() else ZERO
    if said.outcome is Outcome.RAISES:
        return str(said.outcome)
    if said.outcome is Outcome.RIGHT:
        return str(said.outcome) if said.expected or said.got else ZERO
    return str(Outcome.WRONG) if said.got else LOST
