"""The headline: recipes found by search, frozen, and measured on fresh seeds against two baselines.

    EXPLORER_DATA=DIR python benchmarks/headline.py [RUNS] [--page]

Runs what is missing of the sweeps in benchmarks/headline below RUNS (default: `runs` next to `benchmarks`), and writes
benchmarks/headline.md. Of each task there are, in this order:

TASK-baseline     tunings of the baseline
TASK-search       searches for recipes that reach its quality soonest
TASK              tunings of the recipes that were found
TASK-fresh        the frozen recipes on fresh seeds, with controls
TASK-defaults     PyTorch's defaults, which were fixed before anything was searched
TASK-carried      the frozen recipes on other data and another model, which nothing was tuned for
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from options import options, verdict
from pages import write_page

from explorer import rundir
from explorer.analysis.across_sweeps import against
from explorer.analysis.controls import Controlled, controlled
from explorer.analysis.equal_quality import EqualQuality, Outcome
from explorer.analysis.verdict import sweep_verdicts
from explorer.run_files import read
from explorer.search.search_answer import FILE, Answer
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.sweep.spec import load_spec
from explorer.sweep.tuned import FILE as TUNED
from explorer.sweep.tuned import TunedRecord

HERE = Path(__file__).resolve().parent
SPECS = HERE / "headline"
SPENT = SPECS / "spent.json"  # hours, points and runs of tunings and searches, whose runs are too many to keep
CHANGING = ("rotary", "alibi", "gated_linear_units", "whitening")  # methods of these recipes that change the network
SHORT = "data | recipe | network | methods | speedup over the tuned baseline | over PyTorch's defaults"
ENDED = {"stopped": "stopped early", "the time is spent": "to its end", "nothing is worth its time": "to its end"}
HEAD = """# The headline: as good as the tuned baseline, for less

The recipes `medium` and `hot` are answers of `explorer search`, and `mild` is a part of `medium`. Each was tuned with
at most as many points as the baseline (`explorer tune`), frozen, and run on fresh seeds. A speedup is the baseline's
time to its own quality at the full budget over the recipe's time to the same quality, between budgets by the recipe's
curve; its 95% interval is one of all recipes in a table. Times are profiled: steps times the step time of a quiet
machine, without evaluations. Dollars are in proportion to them at any price by the hour. Energy is not known: this
machine has no counter of it. Made by `benchmarks/headline.py`.
"""


class Task(NamedTuple):
    """A task, and the sweeps that it is made of."""

    name: str
    title: str
    baselines: tuple[str, ...]
    searches: tuple[str, ...]
    tunings: tuple[str, ...]
    goal: tuple[float, float]  # speedup over the tuned baseline, and the lower end of its interval
    by_hand: str = ""  # what else was tried, in words


TASKS = (
    Task(
        name="images",
        title="Photographs",
        baselines=("images-baseline", "images-baseline-momentum"),
        searches=("images-search", "images-network-search"),
        tunings=("images", "images-network", "images-relu", "images-momentum", "images-same-momentum"),
        goal=(3.5, 3.0),
        by_hand="By hand, 19 variants of network and Muon were tried before, on two other seeds: 0.30 core-hours. Step"
        " times swing on this machine: with five seeds, four measurements of them gave 3.16x to 3.72x for `hot`, the"
        " last 3.65x (2.79x to 4.79x). To narrow that, step times were measured once more and five seeds added.",
    ),
    Task(
        name="text",
        title="Text",
        baselines=("text-baseline", "text-baseline-small"),
        searches=("text-search", "text-same-search"),
        tunings=("text",),
        goal=(3.0, 2.5),
    ),
)


def run(verb: str, spec: str, runs: Path) -> None:
    """Run what is missing of a sweep, a tuning or a search."""
    words = {"sweep": ["sweep", "run"], "tune": ["tune"], "search": ["search"]}[verb]
    subprocess.run(
        [sys.executable, "-m", "explorer", *words, str(SPECS / f"{spec}.yaml"), "--runs", str(runs)], check=True
    )


def run_all(task: Task, runs: Path) -> None:
    for verb, specs in (
        ("tune", task.baselines),
        ("search", task.searches),
        ("tune", task.tunings),
        ("sweep", [f"{task.name}-{part}" for part in ("fresh", "defaults", "carried")]),
    ):
        for spec in specs:
            run(verb, spec, runs)


# --- what became of it ---


def speedup(result: EqualQuality) -> str:
    """The speedup with its interval as one of all comparisons, or why there is none."""
    if result.ratio is None or result.outcome is not Outcome.REACHED:
        return result.reason or str(result.outcome)
    if result.adjusted_low is None or result.adjusted_high is None:
        return f"{1 / result.ratio:.2f}x"
    return f"{1 / result.ratio:.2f}x ({1 / result.adjusted_high:.2f} to {1 / result.adjusted_low:.2f})"


def amount(value: float, rows: pd.DataFrame, *, sign: bool = False) -> str:
    """A quality, or a difference of qualities, in the unit of these rows."""
    plus = "+" if sign else ""
    if rows["unit"].iloc[0] == "fraction":
        return f"{100 * value:{plus}.2f}" + (" points" if sign else "%")
    return f"{value:{plus}.3f} bits"


class Recipe(NamedTuple):
    """A frozen recipe, as its tables have it."""

    name: str
    network: str
    methods: str
    quality: str  # at its own full budget, and the time of that
    speedup: str
    over_defaults: str
    inference: str
    against_longer: str


def recipes(rows: pd.DataFrame, others: pd.DataFrame, order: Sequence[str]) -> list[Recipe]:
    """Return the recipes of a sweep in this order; `others` are the runs of the other baseline."""
    sweep = str(rows["sweep"].iloc[0])
    over_defaults = {
        result.recipe: result
        for result in against(pd.concat([rows[rows["control"].isna()], others]), sweep=str(others["sweep"].iloc[0]))
        if result.setting.sweep == sweep
    }
    longest = {pair.recipe: pair for pair in controlled(rows) if pair.control == "rescaled-baseline" and pair.ssr == 1}
    whole = rows[rows["control"].isna() & (rows["ssr"] == 1)].groupby("recipe")
    full, seconds = whole["quality"].mean(), whole["train_seconds"].mean()
    results = {judged.comparison.recipe: judged.comparison for judged in sweep_verdicts(rows)}
    return [
        Recipe(
            name=result.recipe,
            network=network(rows, result.recipe),
            methods=own_methods(rows, result.recipe),
            quality=f"{amount(full[result.recipe], rows)} in {seconds[result.recipe]:.1f} s",
            speedup=speedup(result),
            over_defaults=speedup(over_defaults[result.recipe]),
            inference="-" if result.inference_ratio is None else f"{result.inference_ratio:.2f}",
            against_longer=_against_longer(longest.get(result.recipe), rows),
        )
        for result in (results[name] for name in order if name in results)
    ]


def network(rows: pd.DataFrame, recipe: str) -> str:
    """What changes the network of a recipe."""
    mine = rows[rows["recipe"] == recipe].iloc[0]
    own = [mine["network"]] if isinstance(mine["network"], str) else []  # no network of its own: missing
    changes = [*own, *(name for name in CHANGING if name in mine["methods"])]
    return ", ".join(changes) or "the same"


def own_methods(rows: pd.DataFrame, recipe: str) -> str:
    """The methods that the baseline does not have."""
    mine, base = (
        str(some.iloc[0]["methods"]).split("+") for some in (rows[rows["recipe"] == recipe], rows[rows["is_baseline"]])
    )
    return ", ".join(method for method in mine if method not in base)


def table(head: str, lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(
        [f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {' | '.join(cells)} |" for cells in lines)]
    )


def _against_longer(pair: Controlled | None, rows: pd.DataFrame) -> str:
    if pair is None or pair.against.difference is None:
        return "-"
    difference = pair.against
    ends = (difference.adjusted_low, difference.adjusted_high)
    interval = (
        "" if None in ends else f" ({' to '.join(amount(end, rows, sign=True) for end in ends if end is not None)})"
    )
    return f"{amount(difference.difference or 0, rows, sign=True)}{interval}, {pair.verdict}"


def against_goal(task: Task, rows: pd.DataFrame) -> str:
    """Say whether the best recipes of either kind meet the goal, and by how much not."""
    known = [
        (result.adjusted_high, result.ratio, result)
        for result in (judged.comparison for judged in sweep_verdicts(rows))
        if result.outcome is Outcome.REACHED and result.ratio is not None and result.adjusted_high is not None
    ]
    goal, least = task.goal
    lines = []
    for words, changed in (("With the same network", False), ("With another network", True)):
        some = [one for one in known if (network(rows, one[2].recipe) != "the same") == changed]
        if not some:
            lines.append(f"- {words}: no recipe.")
            continue
        high, ratio, best = min(some, key=lambda one: one[0])
        of, end = verdict(1 / ratio, f"above {goal}"), verdict(1 / high, f"above {least}")
        lines.append(f"- {words}: `{best.recipe}`, {speedup(best)}. Goal {of}; lower end {end}.")
    return "\n".join(lines)


def spent(task: Task, runs: Path) -> str:
    """Say what finding the recipes took, in hours of one core: as the runs have it, else as it was kept."""
    kept = json.loads(SPENT.read_text())
    for sweep in (*task.baselines, *task.tunings):
        if (runs / sweep / TUNED).exists():
            kept[sweep] = _tuning(read(TunedRecord, runs / sweep / TUNED))
    for search in task.searches:
        if (runs / search / FILE).exists():
            kept[search] = _search(read(Answer, runs / search / FILE))
    SPENT.write_text(json.dumps(kept, indent=2) + "\n")
    parts = [f"tuning of `{sweep}` {kept[sweep]}" for sweep in (*task.baselines, *task.tunings)]
    parts += [f"`{search}` {kept[search]}" for search in task.searches]
    return f"Core-hours: {'; '.join(parts)}. {task.by_hand}".rstrip()


def _tuning(tuned: TunedRecord) -> str:
    hours = sum(point.seconds for recipe in tuned.recipes for point in recipe.points) / 3600
    each = f" for each of {len(tuned.recipes)}" if len(tuned.recipes) > 1 else ""
    return f"{hours:.2f} ({tuned.runs} points{each})"


def _search(answer: Answer) -> str:
    return f"{answer.spent / 3600:.2f} ({answer.runs} runs, of {answer.recipes} recipes; {ENDED[answer.ended]})"


def carried(task: Task, runs: Path) -> str:
    """A table of the frozen recipes where nothing was tuned or searched."""
    sweep = f"{task.name}-carried"
    if not any((runs / sweep).glob(f"*/{rundir.RESULT}")):
        return f"`{sweep}` was not run."
    rows = frames.results(database(runs), sweep=sweep)
    full = rows[rows["ssr"] == 1].groupby("recipe")["quality"].mean()
    lines = []
    for result in (judged.comparison for judged in sweep_verdicts(rows)):
        qualities = (amount(full[name], rows) for name in (result.recipe, result.baseline))
        lines.append((rows["dataset"].iloc[0], rows["model"].iloc[0], result.recipe, *qualities, speedup(result)))
    return table("data | model | recipe | quality | the baseline's | speedup", lines)


def section(task: Task, runs: Path) -> tuple[list[tuple[str, ...]], str]:
    """Return the lines of the first table, and what the page says of a task."""
    rows, defaults = (
        frames.results(database(runs), sweep=name) for name in (f"{task.name}-fresh", f"{task.name}-defaults")
    )
    spec = load_spec(SPECS / f"{task.name}-fresh.yaml")
    whole = rows[rows["control"].isna() & (rows["ssr"] == 1)]
    baseline = whole[whole["recipe"] == spec.baseline]
    usual = defaults[defaults["ssr"] == 1]
    some = recipes(rows, defaults, [recipe.name for recipe in spec.recipes])
    short = [(task.title, one.name, one.network, one.methods, f"**{one.speedup}**", one.over_defaults) for one in some]
    details = [(one.name, one.quality, one.inference, one.against_longer) for one in some]
    return (
        short,
        f"""## {task.title}

{_task_words(rows)}. The {len(spec.seeds)} seeds are none of the search or the tuning.
The tuned baseline has {amount(baseline["quality"].mean(), rows)} after {baseline["train_seconds"].mean():.1f} s.
PyTorch's defaults have {amount(usual["quality"].mean(), rows)} after {usual["train_seconds"].mean():.1f} s.

{table("recipe | at its full budget | inference | against the baseline for as long", details)}

Inference is the time of the recipe's network over the baseline's. The last column is quality at the recipe's full
budget, less that of the baseline with a schedule that takes the same time; - where step times were measured again after
that control had run, and differ.

{against_goal(task, rows)}

{spent(task, runs)} [All budgets, seeds and controls]({task.name}-fresh.md).

What carries over, with the very same settings:

{carried(task, runs)}
""",
    )


def _task_words(rows: pd.DataFrame) -> str:
    row = rows[rows["is_baseline"]].iloc[0]
    machine = f"{row['threads']} thread a run on {row['hardware']}"
    return f"`{row['model']}` on `{row['dataset']}`, {row['precision']}, {machine}"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "runs", nargs="?", type=Path, default=HERE.parent / "runs", help="a directory that keeps the runs"
    )
    parser.add_argument("--page", action="store_true", help="only write the page of runs that are done")
    asked = parser.parse_args()
    for task in TASKS if not asked.page else ():
        run_all(task, asked.runs)
    ingest(asked.runs)
    parts = [section(task, asked.runs) for task in TASKS]
    short = table(SHORT, [line for lines, _ in parts for line in lines])
    write_page(HERE / "headline.md", "\n".join([f"{HEAD}\n{short}\n", *(text for _, text in parts)]))


if __name__ == "__main__":
    main()
