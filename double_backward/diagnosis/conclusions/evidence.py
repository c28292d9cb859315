"""All that was seen of fn, as plain data, from which findings and the verdict are made."""

from dataclasses import dataclass, field

import torch

from double_backward.check import EXACT, INEXACT, SHARE, TOO_ROUGH, Outcome
from double_backward.untracked_steps import Step

from ..causes.habits import Habits
from ..causes.in_place_writes import Written
from ..causes.missing_part import Shares
from ..causes.not_finite import Broken
from ..measurements.as_called import Compiled
from ..measurements.measure import Numbers
from ..measurements.transforms import THROUGH_A_JVP
from ..preparation.formulas import Row, Setting
from ..preparation.functions import WRONG, Custom, Extra, Lifetime, Saved, Untracked


@dataclass(frozen=True)
class Evidence:
    """All that was seen of fn. Only numbers show that something is wrong: those of fn, of a
    Function by itself, or of a habit. What Functions keep only explains it."""

    measured: Numbers
    functions: tuple[Custom, ...] = ()
    alone: bool = False  # whether fn does nothing but apply these
    habits: Habits = Habits()
    forward_mode: dict[str, Row] = field(default_factory=dict)
    torch_func: dict[str, Row] = field(default_factory=dict)
    lifetime: Lifetime = Lifetime.FREED
    moved: bool = False  # the numbers are from a point beside the given one
    broken: Broken | None = None  # the first operation with a derivative that is not finite
    written: Written | None = None  # a tensor that autograd keeps, and refuses since it changed
    seeded: bool = False  # the output depends on the random seed
    warnings: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()  # the names of what fn holds and changes
    differs_in_float32: bool = False  # the number is right in float64, and another in float32
    raises_beside: str = ""  # the error that fn raises beside the point
    unchecked: tuple[str, ...] = ()  # names of leaves in the graph that are not inputs
    forgotten: tuple[str, ...] = ()  # names of leaves that should be in it, and get no gradient
    steps: tuple[Step, ...] = ()  # steps of fn itself that autograd does not follow
    untracked: tuple[Untracked, ...] = ()  # operators in fn that autograd does not follow
    adds_up_to_0: bool = False  # each row of the Hessian, which is not 0, has the sum 0
    not_heeded: bool = False  # rtol= was not heeded, since it excuses nothing that is cut off
    unmet: tuple[str, ...] = ()  # what the caller ignores, and fn does not apply
    compiled: Compiled | None = None  # the compiled regions of fn; all else is of fn as written
    verdict: str = ""  # the verdict, for findings that speak only where no other does
    explained: bool = False  # whether a cause is known
    shares: Shares = field(default_factory=dict)  # how much is missing through what is kept

    @property
    def rows(self) -> list[Row]:
        """The rows of the second and third derivatives of fn as it is called, compiled or not."""
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
        """Whether the first derivative is as inexact as a solver or 16 bits leave it, although the
        caller gave no rtol=. Then no smaller error can be judged."""
        m = self.measured
        if m.rtol is not None or m.first.outcome is not Outcome.RIGHT:
            return False
        if m.dtype is torch.bfloat16:
            return bool(self.functions)
        return m.first.relative > INEXACT[m.dtype]

    @property
    def broken_in_forward_mode(self) -> dict[str, Row]:
        """The rows, by name, of what goes through a jvp once and is wrong or not finite."""
        rows = {**self.forward_mode, **self.torch_func}
        return {n: row for n, row in rows.items() if row.outcome in WRONG and n in THROUGH_A_JVP}

    @property
    def excused(self) -> bool:
        """Whether the first derivative is inexact, as the caller has said by rtol=."""
        first = self.measured.first
        right = self.measured.rtol is not None and first.outcome is Outcome.RIGHT
        return right and first.relative > EXACT[self.measured.dtype]

    @property
    def too_rough(self) -> bool:
        """Whether what looks right was compared too roughly to be called right."""
        return self.measured.resolution > max(TOO_ROUGH, 2 * (self.measured.rtol or 0.0))

    @property
    def mostly_unknown(self) -> bool:
        """Whether too few elements of what looks right were compared to call it right."""
        right = [row for row in self.rows if row.outcome is Outcome.RIGHT]
        few = any(row.elements - row.unchecked < SHARE * row.elements for row in right)
        return few and not self.measured.drowned

    @property
    def too_little(self) -> bool:
        """Whether what looks right was compared too roughly, or in too few elements, to be called
        right."""
        return self.too_rough or self.mostly_unknown

    @property
    def meant(self) -> tuple[str, ...]:
        """The names of Functions whose gradient is not forward's derivative, as the caller means
        it; () if there are none, or if another Function's is wrong by itself."""
        differs = self.first_is_wrong or self.habits.not_linear or self.habits.not_repeatable
        if not differs or any(f.first is Outcome.WRONG for f in self.not_meant):
            return ()
        if any(not u.meant for u in self.untracked):
            return ()
        names = [f.name for f in self.functions if f.meant]
        return tuple(dict.fromkeys([*names, *(u.name for u in self.untracked)]))

    @property
    def not_meant(self) -> list[Custom]:
        return [f for f in self.functions if not f.meant]

    @property
    def not_apart(self) -> list[str]:
        """The names of the other Functions of whose first derivative by itself nothing is known."""
        known = Outcome.RIGHT, Outcome.WRONG
        return [f.name for f in self.not_meant if self.meant and f.first not in known]

    @property
    def first_is_wrong(self) -> bool:
        return self.measured.first.outcome is Outcome.WRONG

    @property
    def has_wrong_number(self) -> bool:
        """Whether the second derivative or the third is a wrong number."""
        return any(row.outcome is Outcome.WRONG for row in self.rows)

    @property
    def bad(self) -> bool:
        return self.measured.bad

    @property
    def suspects(self) -> tuple[Custom, ...]:
        """The Functions, if there is something to blame them for."""
        return self.functions if self.bad else ()

    @property
    def errors(self) -> list[str]:
        """Every error that was met while differentiating."""
        habits = [self.habits.not_linear, self.habits.grad_out_layout, self.habits.input_layout]
        return [row.text for row in [self.measured.first, *self.measured.rows]] + habits

    def error_says(self, *words: str) -> bool:
        """Whether an error that was met contains one of these words."""
        return any(word in text for text in self.errors for word in words)

    def is_in(self, kind: str) -> bool:
        """Whether the numbers are those of such a situation; see `ways.Situation`."""
        return self.measured.situation is not None and self.measured.situation.kind == kind

    @property
    def unasked(self) -> bool:
        """Whether something could not be asked."""
        return any(row.outcome is Outcome.NOT_ASKED for row in self.rows)

    @property
    def only_after(self) -> bool:
        """Whether the second derivative is wrong with a graph after fn, and not alone."""
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
        at first order: they pass gradients to each other in a convention of their own."""
        if len(self.functions) < 2 or self.first_is_wrong or self.habits.not_linear:
            return []
        return [f for f in self.functions if f.first is Outcome.WRONG]
