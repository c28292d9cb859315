"""All that was seen of fn, for the rules and the verdict to look at."""

from dataclasses import dataclass

from .functions import Custom, Extra, Kind, Path, Saved
from .habits import Habits
from .lifetime import Lifetime
from .measure import Measured


@dataclass(frozen=True)
class Evidence:
    """Numbers convict; what is kept, and how backward is written, only explains."""

    measured: Measured
    functions: tuple[Custom, ...] = ()
    habits: Habits = Habits()
    torch_func: str = ""
    lifetime: Lifetime = Lifetime.FREED
    moved: bool = False  # the numbers are from a point beside the given one
    seeded: bool = False  # the output depends on the random seed
    warnings: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()  # what fn holds and changes, by name
    differs_in_float32: bool = False  # right in float64, another one in float32, as given
    raises_beside: str = ""  # the error that fn raises beside the point
    unchecked: tuple[str, ...] = ()  # leaves behind the output that are no inputs
    forgotten: tuple[str, ...] = ()  # leaves that should stand there, and get no gradient

    @property
    def wrong(self) -> bool:
        return self.measured.wrong

    @property
    def errors(self) -> list[str]:
        """Every error that was met while differentiating."""
        habits = [self.habits.not_linear, self.habits.grad_out_layout, self.habits.input_layout]
        return [row.text for row in [self.measured.first, *self.measured.rows]] + habits

    @property
    def texts(self) -> list[str]:
        """Every error and warning that was met."""
        rows = [self.measured.first, *self.measured.rows]
        return [*(row.text for row in rows), *self.warnings]

    def kept(self, kind: str, on_ctx: bool) -> list[Saved]:
        """What is kept on ctx, or by save_for_backward, and is of this kind."""
        return [s for f in self.functions for s in f.saved if s.kind == kind and s.on_ctx == on_ctx]

    def blamed(self, on_ctx: bool) -> list[Saved]:
        """Intermediates that explain why backward does not follow the inputs.

        Where nothing explains that, those that are used and have no graph, however small their part
        of the whole is.
        """
        lost = [s for f in self.functions for s in f.lost]
        if not any(f.explained for f in self.functions):
            kept = [s for f in self.functions for s in f.saved]
            lost = [s for s in kept if s.kind is Kind.INTERMEDIATE and s.path is Path.MISSING]
        return [s for s in lost if s.on_ctx == on_ctx]

    @property
    def extras(self) -> list[tuple[Extra, dict[str, float]]]:
        """The wrong parts of backward for extra outputs."""
        return [(extra, extra.by) for f in self.functions for extra in f.extras]
