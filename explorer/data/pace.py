"""The pace of a run: the batch size of each step, by stages, as a pure function of the step.

A constant batch size is a pace with one stage. Where it changes, the budget of a run is its examples rather than its
steps, so progress is counted in examples.

>>> pace = Pace(stages=((0, 32), (100, 64)))
>>> pace.size(99), pace.size(100), pace.position(101)
(32, 64, 3264)
>>> pace.steps(3264 + 64)
102
"""

from dataclasses import dataclass

from explorer.errors import RecipeError


@dataclass(frozen=True, slots=True)
class Pace:
    """Batch sizes by step: `size` from each `step` on. The last stage has no end."""

    stages: tuple[tuple[int, int], ...]  # (step, size), the first at step 0, steps ascending

    def __post_init__(self) -> None:
        starts = [step for step, _ in self.stages]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)) or min(size for _, size in self.stages) < 1:
            raise RecipeError(f"found stages {self.stages}: expected steps that ascend from 0, sizes of 1 and more")

    @property
    def largest(self) -> int:
        """The largest batch of all stages."""
        return max(size for _, size in self.stages)

    def size(self, step: int) -> int:
        """Return the number of examples in a step."""
        return next(size for start, size in reversed(self.stages) if start <= step)

    def position(self, step: int) -> int:
        """Return the number of examples in all earlier steps."""
        passed = [(start, size) for start, size in self.stages if start <= step]
        ends = [*(start for start, _ in passed[1:]), step]
        return sum((end - start) * size for (start, size), end in zip(passed, ends, strict=True))

    def steps(self, examples: int) -> int:
        """Return the number of steps that take this many examples, with the last step rounded half up."""
        start, size = next(stage for stage in reversed(self.stages) if self.position(stage[0]) <= examples)
        return start + int((examples - self.position(start)) / size + 0.5)
