"""Does the quickstart end in an answer? Ten repetitions of it on other seeds, and as many in which nothing differs.

    python benchmarks/quickstart_repeats.py [RUNS]        writes benchmarks/quickstart_repeats.md

Trains the quickstart's sweep with forty seeds below RUNS (default: a temporary directory; a sweep that was interrupted
there is continued) and compares its recipes on four seeds at a time, as the quickstart does on its four. Then every
recipe is replaced by runs of the baseline on four seeds of their own, numbered like the baseline's: whatever is
claimed of those is false. Step times are profiled once for all repetitions. Half an hour on two cores that nothing else
keeps busy.
"""

import datetime
import os
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
import torch
from options import options

from explorer.analysis.equal_quality import Call, EqualQuality, equal_quality
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
FIRST = 1000  # of the seeds: none of the quickstart's own


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("runs", nargs="?", type=Path, help="where the runs go")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="explorer-quickstart-") as temporary:
        rows, busy = trained(chosen.runs or Path(temporary))
    text = page(rows, busy)
    print(text)
    OUT.write_text(text)


def trained(runs: Path) -> tuple[pd.DataFrame, str]:
    """Return the results of the sweep, and what kept the machine busy while its steps were timed."""
    runs.mkdir(parents=True, exist_ok=True)
    spec = specification(runs.resolve())[0]
    content = dict(read_document(spec).value)
    content["seeds"] = list(range(FIRST, FIRST + REPETITIONS * SEEDS))
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


def without_difference(rows: pd.DataFrame, number: int) -> pd.DataFrame:
    """Return a repetition whose recipes are the baseline on other seeds, under the numbers of the baseline's seeds.

    Two recipes that train alike share the profile of the baseline, so their step times are equal too.
    """
    own = repetition(rows, number)
    baseline = rows[rows["is_baseline"]]
    parts = [own[own["is_baseline"]]]
    for place, (recipe, of_recipe) in enumerate(own[~own["is_baseline"]].groupby("recipe", sort=False), start=1):
        other = repetition(baseline, (number + place) % REPETITIONS)
        shift = (number - (number + place) % REPETITIONS) * SEEDS
        parts.append(
            other.assign(
                recipe=recipe,
                recipe_digest=of_recipe["recipe_digest"].iloc[0],
                is_baseline=False,
                seed=other["seed"] + shift,
            )
        )
    return pd.concat(parts, ignore_index=True)


def page(rows: pd.DataFrame, busy: str) -> str:
    real = [equal_quality(repetition(rows, number)) for number in range(REPETITIONS)]
    null = [equal_quality(without_difference(rows, number)) for number in range(REPETITIONS)]
    won, false = ([any(result.call == Call.LESS for result in results) for results in kind] for kind in (real, null))
    claims = sum(result.call in (Call.LESS, Call.MORE) for results in null for result in results)
    names = [result.recipe for result in real[0]]
    return "\n".join(
        [
            "# Does the quickstart end in an answer?",
            "",
            f"{REPETITIONS} repetitions of its sweep, each on {SEEDS} seeds of its own ({len(rows)} runs in all)."
            " Speedups at the baseline's quality at 100% budget, with intervals adjusted for all comparisons of a"
            " repetition (Bonferroni). Made by `benchmarks/quickstart_repeats.py`.",
            "",
            f"- repetitions that end with a winner whose interval excludes 1: **{sum(won)} of {REPETITIONS}**"
            " (at least 9 asked)",
            f"- the same with the baseline in place of every recipe: a winner in **{sum(false)} of {REPETITIONS}**;"
            f" {claims} of {sum(map(len, null))} comparisons claim a difference",
            f"- step times: {'busy machine: ' + busy if busy else 'profiled on a quiet machine'}",
            "",
            f"| repetition | {' | '.join(names)} |",
            "|---" * (len(names) + 1) + "|",
            *(
                f"| {number} | {' | '.join(_cell(result) for result in results)} |"
                for number, results in enumerate(real)
            ),
            "",
            "The baseline in place of every recipe:",
            "",
            f"| repetition | {' | '.join(names)} |",
            "|---" * (len(names) + 1) + "|",
            *(
                f"| {number} | {' | '.join(_cell(result) for result in results)} |"
                for number, results in enumerate(null)
            ),
            "",
            f"{machine.hardware(threads=1).name}, torch {torch.__version__},"
            f" {datetime.datetime.now(datetime.UTC):%Y-%m-%d}.",
            "",
        ]
    )


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
