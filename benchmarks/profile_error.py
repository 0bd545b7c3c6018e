"""How far a profile is from full runs: predicted training time over measured, recipe by recipe.

    python benchmarks/profile_error.py [--quick]

Writes profile_error.md. Each round profiles every recipe, then trains each in full at both budgets, one run at a time
on one thread; a prediction is compared with the runs of its own round, because a machine drifts. Three of the recipes
change their speed on the way. The last column is the control: the same profile, had it taken every step to be like
those of the first phase. Half a minute for each round, on a machine that nothing else keeps busy; `--quick` is one
round on short schedules, which it prints and does not write.
"""

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")


from pages import write_page

from explorer import run_files, rundir
from explorer.recipes.recipe import build_recipe
from explorer.run_files import ProfileRecord, RunRecord, Validation
from explorer.training.profile import profile, train_in_full
from explorer.training.run_plan import plan_run

OUT = Path(__file__).with_suffix(".md")
BUDGETS = (0.5, 1.0)
RECIPES: dict[str, list[object]] = {
    "baseline": [],
    "progressive_resizing": [{"progressive_resizing": {"initial_scale": 0.5}}],
    "layer_freezing": ["layer_freezing"],
    "batch_size_warmup": ["batch_size_warmup"],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A full run, its prediction, and the prediction from a single speed."""

    run: RunRecord
    full: Validation
    one_speed: float


def main() -> None:
    arguments = argparse.ArgumentParser(description="How far a profile is from full runs.")
    arguments.add_argument("--quick", action="store_true", help="one round on short schedules; write nothing")
    quick = arguments.parse_args().quick
    rounds = 1 if quick else 3
    runs = plan(epochs=2 if quick else 20)
    held = [each for number in range(rounds) for each in hold(runs, number=number)]
    text = page(held, rounds=rounds)
    print(text)
    if not quick:
        write_page(OUT, text)


def plan(*, epochs: int) -> list[RunRecord]:
    """The runs: every recipe at every budget."""
    task = {"dataset": "digits", "model": "resnet8"}
    train = {"epochs": epochs, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9}}}
    found = []
    for name, methods in RECIPES.items():
        recipe = build_recipe(name, task=task, train=train, methods=methods, where=name)
        common = {
            "sweep": "profile_error",
            "baseline": "baseline",
            "tuning": None,
            "seed": 0,
            "threads": 1,
            "data": None,
        }
        found += [plan_run(recipe, ssr=ssr, **common) for ssr in BUDGETS]
    return found


def hold(runs: Sequence[RunRecord], *, number: int) -> list[Held]:
    """One round: profile all, then train all, one at a time."""
    print(f"round {number + 1}: profiling {len(RECIPES)} recipes", flush=True)
    profiles = {found.recipe_digest: found for found in profile(runs, data=None)}
    held = []
    with tempfile.TemporaryDirectory() as place:
        for run in runs:
            directory = Path(place) / run.run_id
            run_files.write(directory / rundir.RUN, run)
            found = profiles[run.recipe_digest]
            full = train_in_full(directory, found, data=None)
            held.append(Held(run=run, full=full, one_speed=_first_phase(run, found) / full.measured))
            print(f"  {run.run_id}: {full.ratio:.3f}", flush=True)
    return held


def page(held: Sequence[Held], *, rounds: int) -> str:
    groups: dict[tuple[str, float], list[Held]] = defaultdict(list)
    for each in held:
        groups[each.run.recipe, each.run.ssr].append(each)
    rows = [_row(group) for group in groups.values()]
    ratios = [statistics.median(each.full.ratio for each in group) for group in groups.values()]
    return "\n".join(
        [
            "# How far a profile is from full runs",
            "",
            "Training time predicted from short windows of every phase, over that of the same run trained in full, with"
            " nothing else on the machine: 1 is exact, 1.02 is 2% too long. ResNet-8 on digits, one thread. Made by"
            " `benchmarks/profile_error.py`.",
            "",
            "| recipe | budget | steps | phases | predicted | measured | ratio | of the rounds | with one speed |",
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            f"Ratios: medians of {rounds} round{'s' * (rounds != 1)}, with the least and the greatest. The"
            f" farthest from 1 is {max(ratios, key=lambda ratio: abs(ratio - 1)):.3f}. With one speed: the ratio had"
            " every step been taken to be like those of the first phase.",
            "",
            "",
        ]
    )


def _row(group: Sequence[Held]) -> str:
    run = group[0].run
    ratios = [each.full.ratio for each in group]
    cells = (
        *(run.recipe, f"{run.ssr:g}", run.steps, len(run.phases)),
        f"{statistics.median(each.full.predicted for each in group):.2f} s",
        f"{statistics.median(each.full.measured for each in group):.2f} s",
        f"{statistics.median(ratios):.3f}",
        f"{min(ratios):.3f} to {max(ratios):.3f}",
        f"{statistics.median(each.one_speed for each in group):.3f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def _first_phase(run: RunRecord, found: ProfileRecord) -> float:
    """The seconds that the run would take if all its steps were like the first ones."""
    return run.steps * found.phases[next(iter(run.phases))].seconds


if __name__ == "__main__":
    main()
