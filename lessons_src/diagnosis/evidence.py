"""All that was seen of fn, for the rules and the verdict to look at."""

from dataclasses import dataclass

from .functions import Custom, Path, Saved
from .habits import Habits
from .measure import Measured


@dataclass(frozen=True)
class Evidence:
    """Numbers convict; what is kept, and how backward is written, only explains."""

    measured: Measured
    functions: tuple[Custom, ...] = ()
    habits: Habits = Habits()
    torch_func: str = ""
    moved: bool = False  # the numbers are from a point beside the given one
    seeded: bool = False  # the output depends on the random seed
    warnings: tuple[str, ...] = ()

    @property
    def wrong(self) -> bool:
        return self.measured.wrong

    @property
    def texts(self) -> list[str]:
        """Every error and warning that was met."""
        rows = [self.measured.first, *self.measured.rows]
        return [*(row.text for row in rows), *self.warnings]

    def kept(self, kind: str, on_ctx: bool) -> list[Saved]:
        """What is kept on ctx, or by save_for_backward, and is of this kind."""
        return [s for f in self.functions for s in f.saved if s.kind == kind and s.on_ctx == on_ctx]

    def blamed(self, on_ctx: bool) -> list[Saved]:
        """Intermediates kept by Functions whose backward does not follow the inputs."""
        suspects = [f for f in self.functions if f.by_inputs is not Path.RIGHT]
        return [s for f in suspects for s in f.intermediates if s.on_ctx == on_ctx]

    @property
    def untracked(self) -> bool:
        """No graph leads to x, and nothing that is kept explains it."""
        lost = [f for f in self.functions if f.by_inputs is Path.MISSING and not f.extra_ignored]
        unexplained = any(not f.intermediates for f in lost)
        return self.wrong and unexplained and not (self.habits.edits_input or self.habits.mutates)
