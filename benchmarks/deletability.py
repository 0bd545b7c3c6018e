"""The price of being able to delete: quality, training time and the forecast cost of deleting, under three policies.

    python benchmarks/deletability.py [RUNS]        writes benchmarks/deletability.md and benchmarks/deletability.png

Runs notebooks/sweeps/deletability.yaml, or what is missing of it, under documents for a demonstration that it makes
below RUNS (default: `runs` next to `benchmarks`), and asks of every finished run what deleting the class would take.
About twenty minutes on two cores with nothing else to do.
"""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert
from options import options, verdict
from pages import write_page

from explorer.analysis.forgetting import Seeds, over_seeds
from explorer.cli import sweep
from explorer.page.pictures import VEGA_LITE
from explorer.page.theme import CONFIG, PALETTE
from explorer.provenance.policy import read_policy
from explorer.provenance.taxonomy import read_taxonomy
from explorer.runlog.forecast import forecast
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import resolve
from explorer.store import frames
from explorer.store.published import database
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import load_spec
from explorer.training.demonstration import demonstrate
from explorer.training.tagging import dataset_of
from explorer.yaml_document import read_document

HERE = Path(__file__).resolve().parent
RUNS = HERE.parent / "runs"
SPEC = HERE.parent / "notebooks" / "sweeps" / "deletability.yaml"
POLICIES = HERE.parent / "notebooks" / "policies"
TARGET = "open/permissive/bsd"
# In the order of the picture: the name of each, its colour (Okabe and Ito) and its shape.
LOOKS = {
    "open-to-all": ("open to all", "#000000", "circle"),
    "late-bsd": ("BSD in the last quarter", PALETTE[1], "triangle-up"),
    "sealed-bsd": ("BSD sealed in adapters", PALETTE[0], "square"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One finished run."""

    recipe: str
    ssr: float
    seed: int
    quality: float  # bits per byte, test side
    train: float  # seconds of all optimiser steps
    level: str  # at which the class can be deleted
    replayed: float  # of the run's steps
    delete: float  # seconds, forecast
    low: float
    high: float


def documents(runs: Path) -> Path:
    """The documents that the sweep asks for, made once, where the specification looks for them in the usual RUNS."""
    policies = [read_policy(read_document(POLICIES / f"{name}.policy.yaml")) for name in LOOKS]
    taxonomy = read_taxonomy(read_document(POLICIES / "licences.taxonomy.yaml"))
    source = dataset_of(str(SPEC))
    made = demonstrate(
        runs / "_governance", source, data=None, taxonomy=taxonomy, policies=policies, now=int(time.time())
    )
    link = made.parent / "deletability"
    link.unlink(missing_ok=True)
    link.symlink_to(made.name)
    return link


def plan(runs: Path) -> Plan:
    """The sweep with documents made for it."""
    governance = documents(runs)
    usual = load_spec(SPEC)
    if usual.governance is not None and usual.governance.resolve() == governance.resolve():
        return make_plan(usual, runs=runs)
    return make_plan(load_spec({**usual.content, "governance": str(governance)}), runs=runs)


def points(planned: Plan, runs: Path) -> list[Point]:
    """Return the quality and time of every run, and the forecast of deleting the class from it."""
    table = frames.results(database(runs), sweep=planned.spec.name).to_dict("records")
    results: dict[Any, dict[Any, Any]] = {row["run_id"]: row for row in table}
    found = []
    for run in planned.runs:
        ledger, row = RunLedger(run.directory), results[run.record.run_id]
        told = forecast(ledger, resolve(ledger, class_=TARGET))
        if told.level is None or told.time.seconds is None or told.time.low is None or told.time.high is None:
            raise SystemExit(f"{run.record.run_id}: no forecast: {'; '.join(told.obstacles) or told.time.words}")
        found.append(
            Point(
                recipe=run.record.recipe,
                ssr=run.record.ssr,
                seed=run.record.seed,
                quality=float(row["quality"]),
                train=float(row["train_seconds"]),
                level=told.level,
                replayed=told.route.steps / run.record.steps,
                delete=told.time.seconds,
                low=told.time.low,
                high=told.time.high,
            )
        )
    return found


def picture(found: list[Point]) -> alt.HConcatChart:
    """Quality against training time, and against the time that deleting the class would take: the same runs."""
    names = {each.recipe: f"{LOOKS[each.recipe][0]}: {each.level}" for each in found}
    colour, shape = (_channel(kind, names, part) for kind, part in ((alt.Color, 1), (alt.Shape, 2)))
    frame = pd.DataFrame(
        [
            {"policy": names[each.recipe]}
            | {name: getattr(each, name) for name in ("ssr", "seed", "quality", "train", "delete", "low", "high")}
            for each in found
        ]
    )
    whole = frame.groupby(["policy", "ssr"], as_index=False).agg(
        quality=("quality", "mean"),
        train=("train", "mean"),
        delete=("delete", "mean"),
        low=("low", "min"),
        high=("high", "max"),
    )
    train = alt.X("train:Q", title="training time, seconds", scale=alt.Scale(zero=False))
    delete = alt.X(
        "delete:Q",
        title="forecast time to delete the BSD class, seconds (bars: interval)",
        scale=alt.Scale(type="log", domain=[whole["low"].min(), 1.2 * whole["high"].max()], nice=False),
        axis=alt.Axis(values=[1, 2, 5, 10, 20, 50, 100, 200, 500]),
    )
    left, right = (_panel(frame, whole, across, colour=colour, shape=shape) for across in (train, delete))
    bars = alt.Chart(whole).mark_rule(opacity=0.5).encode(x="low:Q", x2="high:Q", y="quality:Q", color=colour)
    title = alt.TitleParams(
        "What it costs to be able to delete BSD-licensed code from a small GPT",
        subtitle=[
            "bits per byte of held-out Python source with every region off, lower is better;",
            f"a large mark for each policy, small marks for its {frame['seed'].nunique()} seeds",
        ],
    )
    return (
        alt.hconcat(
            *(alt.layer(*each).properties(width=350, height=280) for each in (left, [bars, *right])), spacing=40
        )
        .resolve_scale(y="shared", color="shared", shape="shared")
        .properties(title=title)
        .configure(**_config())
    )


def _channel(kind: Any, names: dict[str, str], part: int) -> Any:
    """Colour or shape of the policies, under one legend."""
    scale = alt.Scale(domain=list(names.values()), range=[LOOKS[recipe][part] for recipe in names])
    return kind("policy:N", scale=scale, legend=alt.Legend(title=None, orient="top", symbolOpacity=1))


def _panel(
    frame: pd.DataFrame, whole: pd.DataFrame, across: alt.X, *, colour: alt.Color, shape: alt.Shape
) -> list[alt.Chart]:
    """Marks for the seeds, and one for their mean."""
    up = alt.Y("quality:Q", title="bits per byte", scale=alt.Scale(zero=False))
    return [
        alt.Chart(frame).mark_point(size=22, filled=True, opacity=0.45).encode(across, up, colour, shape),
        alt.Chart(whole).mark_point(size=110, filled=True, opacity=1).encode(across, up, colour, shape),
    ]


def _config() -> dict[str, Any]:
    """The theme on white paper."""
    return {**CONFIG, "background": "white", "padding": 12}


def report(found: list[Point], planned: Plan) -> str:
    """The table, a row for each policy and budget."""
    rows = [_row(recipe, ssr, found) for recipe in LOOKS for ssr in planned.spec.budgets]
    run = max((each.record for each in planned.runs), key=lambda record: record.steps)
    open_, sealed = (
        [each.quality for each in found if (each.recipe, each.ssr) == (name, 1.0)]
        for name in ("open-to-all", "sealed-bsd")
    )
    cost = over_seeds([one - other for one, other in zip(sealed, open_, strict=True)])
    methods = " + ".join(method for method in written_methods(planned) if method not in ("routing", "recorder"))
    return f"""# What it costs to be able to delete

`{run.model}` on the Python source that is installed here, {run.steps} steps of {run.batch_size} sequences at the full
budget, {len(planned.spec.seeds)} seeds, {run.hardware.threads} thread a run on {run.hardware.name}. The recipe is the
fast one of [the headline](headline.md), as far as policies allow: {methods}. The class is
`{TARGET}`, as the distributions declare it. Made by `benchmarks/deletability.py`.

| policy | budget | bits per byte (95%) | more than open (95%) | training, s | level | steps to replay | to delete, s |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

To have the class in a region of its own, so that deleting it drops the region (G2), costs {_interval(cost)} bits per
byte ({verdict(cost.mean, "at most 0.01", decimals=3)}).

Quality is that of the test side with every sealed region off, as everybody but the class's owner meets the model: under
the sealed policy this is the model that never had the class. Its interval is by Student's t over the seeds, and so is
that of the difference, seed by seed: one that holds 0 says that no difference was found. Training time is steps times
the step time of an uncontended profile. Time to delete is a forecast of the whole command on such a machine: the mean
over the seeds, and the widest of their intervals. G2 drops a region and trains nothing; G3 trains again from the last
checkpoint before the class, without it.
"""


def written_methods(planned: Plan) -> list[str]:
    """The names of the methods, in the order of writing."""
    recipe = planned.spec.content["recipes"][planned.spec.baseline]
    return [method if isinstance(method, str) else next(iter(method)) for method in recipe]


def _row(recipe: str, ssr: float, found: list[Point]) -> str:
    mine, first = (
        [each for each in found if (each.recipe, each.ssr) == (name, ssr)] for name in (recipe, next(iter(LOOKS)))
    )
    mean = statistics.mean
    more = over_seeds([one.quality - other.quality for one, other in zip(mine, first, strict=True)])
    cells = (
        LOOKS[recipe][0],
        f"{ssr:g}",
        _interval(over_seeds([each.quality for each in mine])),
        "-" if mine == first else _interval(more),
        f"{mean(each.train for each in mine):.0f}",
        " or ".join(sorted({each.level for each in mine})),
        f"{mean(each.replayed for each in mine):.0%}",
        f"{mean(each.delete for each in mine):.0f} ({min(each.low for each in mine):.0f} to"
        f" {max(each.high for each in mine):.0f})",
    )
    return f"| {' | '.join(cells)} |"


def _interval(seeds: Seeds) -> str:
    return f"{seeds.mean:.3f} ({seeds.low:.3f} to {seeds.high:.3f})"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("runs", nargs="?", type=Path, default=RUNS)
    runs = parser.parse_args().runs
    planned = plan(runs)
    sweep.finish(sweep.execute(planned, runs=runs, engine="warm", workers=None, profile=True, json=False), json=False)
    found = points(planned, runs)
    text = report(found, planned)
    print(text)
    write_page(HERE / "deletability.md", text)
    image = vl_convert.vegalite_to_png(picture(found).to_dict(), vl_version=VEGA_LITE, scale=2)
    (HERE / "deletability.png").write_bytes(image)


if __name__ == "__main__":
    main()
