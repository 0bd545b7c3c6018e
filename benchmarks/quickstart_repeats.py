"""Does the quickstart end in an answer? Repetitions of it on other seeds, and as many in which nothing differs.

    python benchmarks/quickstart_repeats.py [RUNS] [--repetitions N]        writes benchmarks/quickstart_repeats.md

Trains the quickstart's sweep with four seeds for every repetition below RUNS (default: a temporary directory; a sweep
that was interrupted there is continued) and compares its recipes on four seeds at a time, as the quickstart does on its
four: with the noise of seeds moderated over the recipes, and by the seeds of each comparison only, as it was before.
Then every recipe is replaced by runs of the baseline on four seeds of their own, numbered like the baseline's: whatever
is claimed of those is false. Step times are profiled once for all repetitions. Half an hour for ten on two cores that
nothing else keeps busy.
"""

import datetime
import os
import statistics
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
import torch
from moderated import by_own_seeds
from options import options, whole
from pages import write_page

from explorer.analysis.comparison import compared
from explorer.analysis.equal_quality import Call, EqualQuality, at_equal_quality
from explorer.cli.quickstart import specification
from explorer.recipes import machine
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.sweep.execute import Event, Settings, run_sweep
from explorer.sweep.plan import make_plan
from explorer.sweep.profiles import busy_reasons, read_profiles
from explorer.sweep.spec import load_spec
from explorer.yaml_document import read_document

OUT = Path(__file__).with_suffix(".md")
REPETITIONS, SEEDS = 10, 4
LEAST = 4  # so that each of three recipes takes the place of other seeds than those it is compared with
FIRST = 1000  # of the seeds: none of the quickstart's own


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("runs", nargs="?", type=Path, help="where the runs go")
    parser.add_argument("--repetitions", type=whole(LEAST), default=REPETITIONS, help="each has four seeds of its own")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="explorer-quickstart-") as temporary:
        rows, busy = trained(chosen.runs or Path(temporary), repetitions=chosen.repetitions)
    text = page(rows, busy, repetitions=chosen.repetitions)
    print(text)
    write_page(OUT, text)


def trained(runs: Path, *, repetitions: int) -> tuple[pd.DataFrame, str]:
    """Return the results of the sweep, and what kept the machine busy while its steps were timed."""
    runs.mkdir(parents=True, exist_ok=True)
    spec = specification(runs.resolve())[0]
    content = dict(read_document(spec).value)
    content["seeds"] = list(range(FIRST, FIRST + repetitions * SEEDS))
    content["governance"] = str((spec.parent / content["governance"]).resolve())
    plan = make_plan(load_spec(content), runs=runs)
    summary = run_sweep(plan, Settings(on_event=_tell))
    if not summary.complete:
        raise SystemExit(f"the sweep is not complete: {summary}")
    ingest(runs)
    profiles = read_profiles(plan.directory)
    return frames.results(database(runs), sweep=content["name"]), "; ".join(busy_reasons(profiles, list(profiles)))


def repetition(rows: pd.DataFrame, number: int) -> pd.DataFrame:
    """Return the rows of a repetition's seeds."""
    first = FIRST + number * SEEDS
    return rows[rows["seed"].between(first, first + SEEDS - 1)]


def without_difference(rows: pd.DataFrame, number: int, *, repetitions: int) -> pd.DataFrame:
    """Return a repetition whose recipes are the baseline on other seeds, under the numbers of the baseline's seeds.

    Two recipes that train alike share the profile of the baseline, so their step times are equal too.
    """
    own = repetition(rows, number)
    baseline = rows[rows["is_baseline"]]
    parts = [own[own["is_baseline"]]]
    for place, (recipe, of_recipe) in enumerate(own[~own["is_baseline"]].groupby("recipe", sort=False), start=1):
        other = repetition(baseline, (number + place) % repetitions)
        shift = (number - (number + place) % repetitions) * SEEDS
        parts.append(
            other.assign(
                recipe=recipe,
                recipe_digest=of_recipe["recipe_digest"].iloc[0],
                is_baseline=False,
                seed=other["seed"] + shift,
            )
        )
    return pd.concat(parts, ignore_index=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """The comparisons of every repetition."""

    moderated: list[list[EqualQuality]]
    by_seeds: list[list[EqualQuality]]  # as it was before

    @classmethod
    def of(cls, tables: Iterable[pd.DataFrame]) -> "Compared":
        found = [compared(table, x="train_seconds") for table in tables]
        return cls(
            moderated=[at_equal_quality(pairs) for pairs in found],
            by_seeds=[at_equal_quality(by_own_seeds(pairs)) for pairs in found],
        )


def page(rows: pd.DataFrame, busy: str, *, repetitions: int) -> str:
    numbers = range(repetitions)
    real = Compared.of(repetition(rows, number) for number in numbers)
    null = Compared.of(without_difference(rows, number, repetitions=repetitions) for number in numbers)
    names = [result.recipe for result in real.moderated[0]]
    return "\n".join(
        [
            "# Does the quickstart end in an answer?",
            "",
            f"{repetitions} repetitions of its sweep, each on {SEEDS} seeds of its own ({len(rows)} runs in all)."
            " Speedups at the baseline's quality at 100% budget, with intervals adjusted for all comparisons of a"
            " repetition (Bonferroni). Made by `benchmarks/quickstart_repeats.py`.",
            "",
            "| of the same runs | by the seeds of each comparison | moderated over the recipes |",
            "|---|---|---|",
            f"| repetitions with a winner whose interval excludes 1 | {_winners(real.by_seeds)} of {repetitions} |"
            f" **{_winners(real.moderated)} of {repetitions}** |",
            f"| recipes that win | {_claims(real.by_seeds, Call.LESS)} | {_claims(real.moderated, Call.LESS)} |",
            f"| the baseline in place of every recipe: a winner | {_winners(null.by_seeds)} of {repetitions} |"
            f" **{_winners(null.moderated)} of {repetitions}** |",
            f"| and comparisons that claim a difference | {_claims(null.by_seeds, Call.LESS, Call.MORE)} |"
            f" {_claims(null.moderated, Call.LESS, Call.MORE)} |",
            f"| median width of an interval, as a factor | {_width(real.by_seeds)} | {_width(real.moderated)} |",
            "",
            f"Step times: {'busy machine: ' + busy if busy else 'profiled on a quiet machine'}.",
            "",
            *_table(names, real.moderated),
            "",
            "The baseline in place of every recipe:",
            "",
            *_table(names, null.moderated),
            "",
            "By the seeds of each comparison:",
            "",
            *_table(names, real.by_seeds),
            "",
            f"{machine.hardware(threads=1).name}, torch {torch.__version__},"
            f" {datetime.datetime.now(datetime.UTC):%Y-%m-%d}.",
            "",
        ]
    )


def _winners(repetitions: list[list[EqualQuality]]) -> int:
    return sum(any(result.call is Call.LESS for result in results) for results in repetitions)


def _claims(repetitions: list[list[EqualQuality]], *calls: Call) -> str:
    found = [result.call in calls for results in repetitions for result in results]
    return f"{sum(found)} of {len(found)}"


def _width(repetitions: list[list[EqualQuality]]) -> str:
    """The median of an interval's upper limit over its lower one."""
    factors = [
        result.adjusted_high / result.adjusted_low
        for results in repetitions
        for result in results
        if result.adjusted_low and result.adjusted_high
    ]
    return f"{statistics.median(factors):.2f}" if factors else "none"


def _table(names: list[str], repetitions: list[list[EqualQuality]]) -> list[str]:
    return [
        f"| repetition | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
        *(f"| {number} | {' | '.join(map(_cell, results))} |" for number, results in enumerate(repetitions)),
    ]


def _cell(result: EqualQuality) -> str:
    if result.ratio is None:
        return str(result.outcome)
    if result.adjusted_low is None or result.adjusted_high is None:
        return f"{1 / result.ratio:.2f}x"
    return f"{1 / result.ratio:.2f}x ({1 / result.adjusted_high:.2f} to {1 / result.adjusted_low:.2f})"


def _tell(event: Event) -> None:
    if event.kind not in ("start", "done", "end") or event.done % 20 == 0:
        print(f"  {event.kind} {event.message} {event.done} of {event.total}", flush=True)


if __name__ == "__main__":
    main()
