"""All that was seen of fn, as plain data, for findings and the verdict to look at."""

from dataclasses import dataclass, field

import torch

from double_backward.check import EXACT, INEXACT, TOO_ROUGH, Outcome
from double_backward.untracked_steps import Step

from ..causes.habits import Habits
from ..causes.in_place_writes import Written
from ..causes.missing_part import Shares
from ..causes.not_finite import Broken
from ..measurements.as_called import Compiled
from ..measurements.measure import Numbers
from ..measurements.transforms import THROUGH_A_JVP
from ..preparation.formulas import Row, Setting
from ..preparation.functions import WRONG, Custom, Extra, Lifetime, Saved


@dataclass(frozen=True)
class Evidence:
    """Numbers convict: of fn, of a Function by itself, of a habit; what is kept only explains."""

    measured: Numbers
    functions: tuple[Custom, ...] = ()
    alone: bool = False  # fn does nothing but apply these
    habits: Habits = Habits()
    forward_mode: dict[str, Row] = field(default_factory=dict)
    torch_func: dict[str, Row] = field(default_factory=dict)
    lifetime: Lifetime = Lifetime.FREED
    moved: bool = False  # the numbers are from a point beside the given one
    broken: Broken | None = None  # the first operation with a derivative that is not finite
    written: Written | None = None  # into what autograd keeps, where it refuses that
    seeded: bool = False  # the output depends on the random seed
    warnings: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()  # what fn holds and changes, by name
    differs_in_float32: bool = False  # right in float64, another one in float32, as given
    raises_beside: str = ""  # the error that fn raises beside the point
    unchecked: tuple[str, ...] = ()  # leaves behind the output that are no inputs
    forgotten: tuple[str, ...] = ()  # leaves that should stand there, and get no gradient
    steps: tuple[Step, ...] = ()  # that fn itself takes where autograd does not follow
    adds_up_to_0: bool = False  # each row of the Hessian, which is not 0
    not_heeded: bool = False  # an rtol=, which excuses nothing that is cut off
    unmet: tuple[str, ...] = ()  # what the caller ignores, and fn does not apply
    compiled: Compiled | None = None  # fn calls compiled regions; the rest is of fn as written
    verdict: str = ""  # what was concluded, for those that speak where nobody else does
    explained: bool = False  # a cause is known
    shares: Shares = field(default_factory=dict)  # of what is missing, by what is kept

    @property
    def rows(self) -> list[Row]:
        """Second and third derivatives of fn as it is called, compiled or not."""
        return [*self.second.values(), *self.third.values()]

    @property
    def second(self) -> dict[Setting, Row]:
        rows = self.measured.second
        return rows if self.compiled is None else self.compiled.beside(rows)

    @property
    def third(self) -> dict[Setting, Row]:
        rows = self.measured.third
        return rows if self.compiled is None else self.compiled.third(rows)

    @property
    def inexact(self) -> bool:
        """The first derivative is as inexact as a solver or 16 bits leave it, and nobody said so.

        So nothing smaller can be judged.
        """
        m = self.measured
        if m.rtol is not None or m.first.outcome is not Outcome.RIGHT:
            return False
        if m.dtype is torch.bfloat16:
            return bool(self.functions)
        return m.first.relative > INEXACT[m.dtype]

    @property
    def broken_in_forward_mode(self) -> dict[str, Row]:
        """What goes through a jvp once and is wrong, or not finite, by its name."""
        rows = {**self.forward_mode, **self.torch_func}
        return {n: row for n, row in rows.items() if row.outcome in WRONG and n in THROUGH_A_JVP}

    @property
    def excused(self) -> bool:
        """The first derivative is as inexact as that, and the caller has said so."""
        first = self.measured.first
        right = self.measured.rtol is not None and first.outcome is Outcome.RIGHT
        return right and first.relative > EXACT[self.measured.dtype]

    @property
    def too_rough(self) -> bool:
        """What looks right was compared too roughly to be called that."""
        return self.measured.resolution > max(TOO_ROUGH, 2 * (self.measured.rtol or 0.0))

    @property
    def meant(self) -> tuple[str, ...]:
        """The Functions whose first derivative is another one, as the caller means it, where no
        other's is wrong by itself; () where there are none."""
        differs = self.first_is_wrong or self.habits.not_linear or self.habits.not_repeatable
        if not differs or any(f.first is Outcome.WRONG for f in self.not_meant):
            return ()
        return tuple(dict.fromkeys(f.name for f in self.functions if f.meant))

    @property
    def not_meant(self) -> list[Custom]:
        return [f for f in self.functions if not f.meant]

    @property
    def not_apart(self) -> list[str]:
        """Others beside what is meant, of whose first derivative by itself nothing is known."""
        known = Outcome.RIGHT, Outcome.WRONG
        return [f.name for f in self.not_meant if self.meant and f.first not in known]

    @property
    def first_is_wrong(self) -> bool:
        return self.measured.first.outcome is Outcome.WRONG

    @property
    def has_wrong_number(self) -> bool:
        """Of the second derivative or the third."""
        return any(row.outcome is Outcome.WRONG for row in self.rows)

    @property
    def bad(self) -> bool:
        return self.measured.bad

    @property
    def suspects(self) -> tuple[Custom, ...]:
        """The Functions, where there is something to blame them for."""
        return self.functions if self.bad else ()

    @property
    def errors(self) -> list[str]:
        """Every error that was met while differentiating."""
        habits = [self.habits.not_linear, self.habits.grad_out_layout, self.habits.input_layout]
        return [row.text for row in [self.measured.first, *self.measured.rows]] + habits

    def error_says(self, *words: str) -> bool:
        """Whether one of these words stands in an error that was met."""
        return any(word in text for text in self.errors for word in words)

    def is_in(self, kind: str) -> bool:
        """Whether the numbers are those of such a situation; see `ways.Situation`."""
        return self.measured.situation is not None and self.measured.situation.kind == kind

    @property
    def unasked(self) -> bool:
        """Something could not be asked."""
        return any(row.outcome is Outcome.NOT_ASKED for row in self.rows)

    @property
    def only_after(self) -> bool:
        """Wrong with a graph after fn, and not alone."""
        alone, after = (self.measured.second[s].outcome for s in (Setting.ALONE, Setting.AFTER))
        return alone is not Outcome.WRONG and after is Outcome.WRONG

    @property
    def blamed(self) -> list[Saved]:
        """Intermediates that explain why backward does not follow the inputs. If forward writes
        into its input, what is kept explains nothing."""
        if self.habits.edits_input:
            return []
        lost = [s for f in self.suspects for s in f.lost]
        return [s for s in lost if s.name not in self.habits.changes_ctx]

    @property
    def extras(self) -> list[Extra]:
        """Outputs beyond the first for whose gradient backward returns something wrong."""
        return list(dict.fromkeys(extra for f in self.suspects for extra in f.extras))

    @property
    def by_convention(self) -> list[Custom]:
        """Functions whose backward is not the derivative of their forward, where all of fn is right
        at first order: they hand gradients over in a convention of their own."""
        if len(self.functions) < 2 or self.first_is_wrong or self.habits.not_linear:
            return []
        return [f for f in self.functions if f.first is Outcome.WRONG]
