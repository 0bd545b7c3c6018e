"""Learning-rate schedules: a factor for each step, dilated to the run's budget.

A schedule is a pure function of (step, total steps). With a scale-schedule ratio r the run has T' = round(r T) steps
and `factor(t, T')` keeps its shape: fractions of training stay fractions. Warm-up alone is counted in steps of the
full schedule and stays as long as it is (`scale_warmup=False`), for stability, or scales too, for shape.

Li, Yumer, Ramanan, "Budgeted Training", 2020, arXiv:1905.04753.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

Fraction = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule(ABC):
    """A learning-rate schedule with a linear warm-up of `warmup` of the full schedule's steps."""

    name: ClassVar[str]

    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0  # share of the full schedule's steps
    scale_warmup: bool = False  # whether a smaller budget shortens the warm-up too

    @abstractmethod
    def decay(self, progress: float) -> float:
        """Return the factor after warm-up, for the share of the remaining steps that is done, in [0, 1)."""

    def warmup_steps(self, steps: float) -> int:
        """Return the length of the warm-up for a schedule of `steps`: rounded half up, at least 1 unless there is
        none."""
        return max(1, int(self.warmup * steps + 0.5)) if self.warmup else 0

    def factor(self, step: float, *, total_steps: float, full_steps: int) -> float:
        """Return the factor on the peak learning rate at `step` of `total_steps`; `full_steps` is the full schedule's
        length.

        Steps of the nominal batch: where a schedule of batch sizes takes smaller ones, they are fractions of these.
        The first step of a warm-up of n steps has factor 1/n, so it is not wasted. A warm-up that fills the whole
        budget never decays.
        """
        warm = self.warmup_steps(total_steps if self.scale_warmup else full_steps)
        if step < warm:
            return min(1.0, (step + 1) / warm)  # less than a whole step before its end
        if warm >= total_steps:
            return 1.0
        return self.decay((step - warm) / (total_steps - warm))


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant(Schedule):
    """No decay."""

    name: ClassVar[str] = "constant"

    def decay(self, progress: float) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Linear(Schedule):
    """A straight line from the peak to `final` of it."""

    name: ClassVar[str] = "linear"

    final: Fraction = 0.0

    def decay(self, progress: float) -> float:
        return 1 + (self.final - 1) * progress


@dataclass(frozen=True, kw_only=True, slots=True)
class Cosine(Schedule):
    """Half a cosine from the peak to `final` of it (Loshchilov, Hutter 2017, arXiv:1608.03983)."""

    name: ClassVar[str] = "cosine"

    final: Fraction = 0.0

    def decay(self, progress: float) -> float:
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiStep(Schedule):
    """Multiplied by `factor_each` at each milestone; milestones are shares of the steps after warm-up."""

    name: ClassVar[str] = "multistep"

    milestones: tuple[Fraction, ...] = (0.5, 0.75)
    factor_each: Fraction = 0.1

    def decay(self, progress: float) -> float:
        return self.factor_each ** sum(milestone <= progress for milestone in self.milestones)


SCHEDULES: dict[str, type[Schedule]] = {kind.name: kind for kind in (Constant, Cosine, Linear, MultiStep)}
