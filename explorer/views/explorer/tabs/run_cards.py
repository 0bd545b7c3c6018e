"""Cards of runs: quality, time and cost, small learning curves, where the time went, files, the command to repeat it.

An unknown figure is given with its reason. Addresses of files are relative to the directory `here`, so that they work
in JupyterLab and in a browser that reads the page from disk. A command is for a shell in `here`.
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import pandas as pd

from explorer import rundir
from explorer.analysis import ladders, schedules
from explorer.analysis.bottleneck import bound_words
from explorer.analysis.sentences import busy_recipes
from explorer.analysis.smoothing import SMOOTH, smoothed
from explorer.errors import AnalysisError, RunError, StoreError
from explorer.page import amounts, theme
from explorer.page.amounts import BUSY, age_words
from explorer.page.document import (
    Block,
    Column,
    Facts,
    Paragraph,
    Row,
    Span,
    Table,
    Text,
    clipped,
    isolated,
    one_line,
    with_note,
)
from explorer.page.html import Markup, element, fragment, inline
from explorer.planned import is_own
from explorer.run_files import Metric, metric_of, tuning_words
from explorer.store.learning_curves import learning_curves
from explorer.store.run_details import Machine, Profile, RunDetails, run_details
from explorer.views.explorer.curves_chart import FEW, LOSS, metric_named
from explorer.views.explorer.deletability import LEVELS
from explorer.views.explorer.tabs.composition_charts import COLOURS, PARTS
from explorer.views.notebook import joined, named, swatch

REPORT = "report.html"


def run_directory(runs: Path, directory: str) -> Path:
    """Return the directory of a run, given its path below `runs` in the database.

    Raises `StoreError` for a path that is not below it.
    """
    # A database can come from elsewhere: its paths must not lead out of the directory of runs.
    parts = PurePosixPath(directory).parts
    if not parts or ".." in parts or PurePosixPath(directory).is_absolute():
        raise StoreError(f"the database names {directory!r:.80} as the directory of a run; expected one below {runs}")
    return runs / directory


def reproduce(directory: Path, *, here: Path) -> Text:
    """Return the command that trains a run again."""
    return _command(f"explorer run {_typed(directory / rundir.RUN, here)} --out again")


def notebook(directory: Path, *, here: Path) -> Text:
    """Return a link to the executed notebook; a dash if there is none."""
    path = directory / rundir.NOTEBOOK
    return (link(path, "open", here=here),) if path.is_file() else amounts.MISSING


def ledger(directory: Path, *, here: Path) -> Text:
    """Return a link to the ledger of a governed run, and the command that prints its entries."""
    path = directory / rundir.LEDGER
    shown = link(path, "open its directory", here=here) if path.is_dir() else Span("not on this disk")
    return (shown, Span(" "), *_command(f"explorer ledger show {_typed(path, here)}"))


def report(directory: Path, *, runs: Path, governed: bool, here: Path) -> Text:
    """Return a link to the report of a governed run, or to that of the sweep of any other run; or the command that
    writes it."""
    # A report with numbers of confidential classes is in the run's private folder.
    of_run = (directory / REPORT, directory / rundir.PRIVATE / REPORT)
    for path in of_run if governed else (directory.parent / REPORT,):
        if path.is_file():
            return (link(path, "open", here=here),)
    if governed:
        return _command(f"explorer report {_typed(directory, here)}")
    return _command(f"explorer report {shlex.quote(directory.parent.name)} --runs {_typed(runs, here)}")


def link(path: Path, words: str, *, here: Path) -> Span:
    """Return a link that opens in a new window."""
    return Span(words, "link", quote(Path(os.path.relpath(path, here)).as_posix()))


def _command(words: str) -> tuple[Span, ...]:
    return (Span(words, "code"),)


def _typed(path: Path, here: Path) -> str:
    """Return a path as typed in a shell."""
    return shlex.quote(Path(os.path.relpath(path, here)).as_posix())


PHASES = (
    Column(title="Phase"),
    Column(title="Steps", number=True),
    Column(title="Per step", number=True),
    Column(title="Total", number=True),
)
MOST_PHASES = 12  # phases that are listed one by one
LEAST = 0.005  # smaller parts are left out
WIDTH = 100.0  # of the bar, in its own units


def times(profile: Profile | None, timings: Mapping[str, float], run: pd.Series) -> Iterator[Block | Markup]:
    """Yield the phases of a row of `results` and the split of its steps: as profiled on the row's machine, or else as
    measured in the run, which does not separate phases."""
    if profile is None or not profile.phases:
        yield from _split({part: timings.get(part, 0.0) for part in PARTS}, _measured(run))
        return
    yield _phases(profile, int(run["steps"]))
    yield from _profiled(profile)


def _phases(profile: Profile, steps: int) -> Table:
    rows = [_phase(phase.name, phase.steps, phase.steps * phase.seconds) for phase in profile.phases[:MOST_PHASES]]
    others = profile.phases[MOST_PHASES:]
    if others:
        seconds = sum(phase.steps * phase.seconds for phase in others)
        rows.append(_phase(f"{len(others)} more", sum(phase.steps for phase in others), seconds))
    rest = steps - sum(phase.steps for phase in profile.phases)
    if rest > 0:
        rows.append(_phase("not profiled", rest, None))
    return Table(PHASES, rows)


def _phase(name: str, steps: int, seconds: float | None) -> Row:
    one = None if seconds is None else seconds / steps
    return Row((named(name), f"{steps:,}", amounts.seconds(one), amounts.seconds(seconds)), quiet=seconds is None)


def _profiled(profile: Profile) -> Iterator[Block | Markup]:
    """Yield the split of all steps, in which every phase is weighted by its steps."""
    try:
        phases = [
            schedules.phase(
                phase.name,
                steps=phase.steps,
                seconds=phase.seconds,
                low=phase.low,
                high=phase.high,
                windows=phase.windows,
                split=phase.split,
            )
            for phase in profile.phases
        ]
    except AnalysisError as error:  # one damaged profile does not hide the card
        yield Paragraph(clipped(str(error), 160), "warning")
        return
    parts = schedules.Schedule(recipe="", phases=tuple(phases)).by_part()
    yield from _split(parts, f"Where the time goes, as profiled {profile.made_at[:10]}")


def _measured(run: pd.Series) -> str:
    contended = not amounts.missing(run["contended"]) and bool(run["contended"])  # not known of imported runs
    shared = " while it shared the machine" if contended else ""
    return f"Where the time went, as measured in the run{shared}; its phases were not profiled"


def _split(parts: Mapping[str, float], title: str) -> Iterator[Block | Markup]:
    """Yield a bar of the parts and the same in words."""
    whole = sum(parts.values())
    if not whole > 0:
        yield Paragraph("Where the time of its steps goes is unknown.", "note")
        return
    shares = {part: parts[part] / whole for part in PARTS if parts.get(part, 0.0) / whole >= LEAST}
    place = 0.0
    bars: list[Markup] = []
    legend: list[str | Markup] = []
    for part, share in shares.items():
        colour, length = _colour(part), share * WIDTH
        bars.append(element("rect", x=f"{place:.2f}", width=f"{length:.2f}", height=8, fill=colour))
        square = element("svg", element("rect", width=9, height=9, fill=colour), width=9, height=9, aria_hidden="true")
        legend += [", "] if legend else []
        legend.append(element("span", square, f"{PARTS[part]} {share:.0%}", class_="x-part"))
        place += length
    box = {"viewBox": f"0 0 {WIDTH:g} 8", "preserveAspectRatio": "none", "aria_hidden": "true"}
    yield element("svg", *bars, class_="x-split", **box)
    yield element("p", f"{title}: ", *legend, class_="x-note")
    if words := bound_words(parts):
        yield Paragraph(words, "note")


def _colour(part: str) -> str:
    return COLOURS[list(PARTS).index(part)]


# --- what a run measured while it trained, in small

COURSE = (200.0, 62.0)  # width and height of a small curve, in its own units
POINTS = 100  # of one


def run_courses(database: Path, directories: Sequence[str], *, metrics: Sequence[Metric]) -> dict[str, Markup]:
    """Return the small curves of each of a few runs, by directory; empty for one that measured nothing twice."""
    parts: dict[str, list[Markup]] = {directory: [] for directory in directories}
    for metric in {metric.name: metric for metric in metrics}.values():
        curves = learning_curves(database, metric.name, directories=list(parts), points=POINTS)
        for directory, curve in curves.groupby("directory", sort=False):
            if len(curve) > 1:
                parts[str(directory)].append(_course(curve, metric_named(metric.name, {metric.name: metric}, of=curve)))
    return {
        directory: element("div", *curves, class_="x-courses") if curves else Markup("")
        for directory, curves in parts.items()
    }


def _course(curve: pd.DataFrame, metric: Metric) -> Markup:
    """Return one curve over its steps: where it is noisy a smoothed line, with the measurements faint behind it."""
    drawn = [curve["value"]]
    if len(curve) > FEW:
        drawn = [curve["value"], smoothed(curve, x="step", share=SMOOTH)]
    low, high = float(curve["value"].min()), float(curve["value"].max())
    width, height = COURSE
    steps = curve["step"].to_numpy(float)

    def points(line: pd.Series) -> str:
        y = height * (1 - (line - low) / (high - low or 1.0))
        return " ".join(f"{at:.1f},{up:.1f}" for at, up in zip(steps / steps[-1] * width, y, strict=True))

    lines = [
        element(
            "polyline",
            points=points(line),
            fill="none",
            stroke="currentColor",
            stroke_width=1.6,
            opacity=1 if line is drawn[-1] else 0.25,
            vector_effect="non-scaling-stroke",
        )
        for line in drawn
    ]
    picture = element(
        "svg", *lines, viewBox=f"0 -2 {width:g} {height + 4:g}", preserveAspectRatio="none", aria_hidden="true"
    )
    first, last = (metric.show(float(curve["value"].iloc[place])) for place in (0, -1))
    words = f": {first} to {last} over {steps[-1]:,.0f} steps"
    return element("figure", picture, element("figcaption", inline(named(metric.name)), words))


CARDS = 6  # at most
DIGEST = 16  # characters of a digest that are shown; hovering shows all of it

SOURCES = {
    "measured": "measured in the run",
    "profiled": "profiled: steps times the step time on an idle machine",
    "predicted": "predicted: steps times the step time of an imported profile of another machine",
    "imported": "imported from another tool, unverified",
}
"""Sources of a training time, by value of `time_source`."""

UNTIMED = "unknown: the recipe was not profiled, and the run shared its machine"


def run_cards(
    rows: pd.DataFrame,
    *,
    others: Sequence[Mapping[str, Any]] = (),
    database: Path,
    runs: Path,
    here: Path,
    look: theme.Look,
) -> Iterator[Block | Markup]:
    """Yield a card for each of the first `CARDS` rows of `results` and of `others`, and the number of further ones.

    `others` are rows of `store.run_list`: runs that did not finish, or have no row of `results` here. `runs` is the
    directory of runs; links and commands are relative to the directory `here`. Raises `StoreError` if the database
    cannot be read, or places a run outside `runs`.
    """
    # One query for all cards: each has several phases and parts.
    shown, rest_shown = rows.head(CARDS), others[: CARDS - len(rows.head(CARDS))]
    finished = list(shown["directory"]) if len(shown) else []
    details = run_details(database, finished) if finished else {}
    directories = [*finished, *(run["directory"] for run in rest_shown)]
    kinds = [metric_of(row.to_dict()) for _, row in shown.head(1).iterrows()]
    courses = run_courses(database, directories, metrics=[metric_named(LOSS), *kinds])
    cards = [
        _card(row, details.get(row["directory"]), courses[row["directory"]], runs=runs, here=here, look=look)
        for _, row in shown.iterrows()
    ]
    cards += [_unfinished(run, courses[run["directory"]], runs=runs, here=here, look=look) for run in rest_shown]
    yield element("div", *cards, class_="x-cards")
    if rest := len(rows) + len(others) - len(cards):
        yield Paragraph(f"and {amounts.count(rest, 'more run')}: {CARDS} are shown at most", "note")


def _unfinished(run: Mapping[str, Any], course: Markup, *, runs: Path, here: Path, look: theme.Look) -> Markup:
    name = str(run["recipe"] or run["run_id"])
    place = "" if run["ssr"] is None else f"budget {run['ssr']:g} · seed {run['seed']} · "
    facts: list[tuple[str, Text]] = []
    planned = run["steps"] is not None and run["batch_size"] is not None
    if planned:
        facts.append(("Training", f"{run['steps']:,} steps of {run['batch_size']:,} examples"))
    if planned or run["methods"]:
        facts.append(("Methods", joined(map(named, filter(None, str(run["methods"]).split("+")))) or "none"))
    if run["peak_memory"] is not None:
        facts.append(("Peak memory", amounts.memory(run["peak_memory"])))
    facts += _own_files(run_directory(runs, run["directory"]), here=here, imported=run["imported"])
    message = str(run["message"] or "")
    blocks = [
        element("p", inline(swatch(name, look)), class_="x-card-title"),
        Paragraph((Span(f"{place}{run['state']}"),), "note"),
        *([Paragraph(one_line(message), "warning")] if message else []),
        course,
        Facts(facts),
    ]
    return element("article", fragment(*blocks), class_="x-card", aria_label=clipped(name))


def _card(
    run: pd.Series, known: RunDetails | None, course: Markup, *, runs: Path, here: Path, look: theme.Look
) -> Markup:
    title = f"{clipped(run['recipe'])}, budget {run['ssr']:g}, seed {run['seed']}"
    network = run["network"] if isinstance(run.get("network"), str) else run["model"]
    data = (*named(network), Span(" on "), *named(run["dataset"]))
    blocks: list[Block | Markup] = [
        element("p", inline(swatch(run["recipe"], look)), class_="x-card-title"),
        Paragraph((Span(f"budget {run['ssr']:g} · seed {run['seed']} · "), *data), "note"),
        element("ul", *_figures(run), class_="x-figures"),
        course,
        *(times(known.profiles.get(_machine(run)), known.timings, run) if known else ()),
        Facts([*_facts(run, known), *_files(run, known, runs=runs, here=here)]),
    ]
    return element("article", fragment(*blocks), class_="x-card", aria_label=title)


def _figures(run: pd.Series) -> Iterator[Markup]:
    """Yield the three most important numbers: quality, time and cost."""
    yield _figure(amounts.quality(run["quality"], metric_of(run.to_dict())), named(run["metric"]))
    source = isolated(run["time_source"]) if isinstance(run["time_source"], str) else "unknown"
    yield _figure(amounts.seconds(run["train_seconds"]), f"training time, {source}")
    priced = not amounts.missing(run["usd_per_hour"])
    yield _figure(amounts.dollars(run["cost_usd"]) if priced else "no price", "US dollars")


def _figure(number: str, words: Text) -> Markup:
    return element("li", element("strong", number), element("small", inline(words)))


def _facts(run: pd.Series, known: RunDetails | None) -> Iterator[tuple[str, Text]]:
    # The first metric is in the figures above.
    others = [final for final in (known.finals if known else ()) if final.metric.name != run["metric"]]
    if others:
        yield (
            "Other metrics",
            joined(
                (*named(final.metric.name), Span(f" {amounts.quality(final.value, final.metric)}")) for final in others
            ),
        )
    yield "Time", _time(run, known)
    if rate := _rate(run):
        yield "Throughput", rate
    yield "Cost", _dollars(run)
    yield "Inference", _inference(run)
    if not amounts.missing(run["peak_memory"]):
        of = "allocated on the GPU" if run["device"] == "cuda" else "of the whole process"
        yield "Peak memory", f"{amounts.memory(run['peak_memory'])} {of}"
    if not amounts.missing(run["energy_kwh"]):
        yield "Energy", f"{amounts.energy(run['energy_kwh'])} of training, of the whole device"
    if not amounts.missing(run["flops"]):
        used = "" if amounts.missing(run["utilisation"]) else f", {run['utilisation']:.0%} of the peak of its device"
        yield "Operations", f"{amounts.flops(run['flops'])}{used}"
    yield "Hardware", isolated(_label(_machine(run)), 80)
    if training := _training(run):
        yield "Training", training
    yield "Methods", _methods(run)
    yield "Baseline", _baseline(run)
    if isinstance(run["control"], str):
        yield "Control of", named(str(run["control_of"]))
    yield from _governed(run)
    if known is not None and known.clock is not None:
        yield "Trained by", COMMAND
        yield "Timed by", CLOCKS.get(known.clock, known.clock)
        return
    yield "Model digest", _digest(run["state_digest"])


COMMAND = (
    "a command or notebook of the user's, which reported these numbers: another run may give other bits; there is no"
    " step profile, no replay and no governance"
)
CLOCKS = {
    "reported": "the seconds of training that it reported",
    "wall": "the clock from its start to its end, with imports, data and evaluation",
}


def _training(run: pd.Series) -> str:
    """Return steps, batch size and precision, as far as they are known: an imported run may lack all of them."""
    parts = []
    if not amounts.missing(run["steps"]):
        # The batches of a command are its own business, and recorded as 0.
        known = not amounts.missing(run["batch_size"]) and run["batch_size"] > 0
        batch = f" of {int(run['batch_size']):,} examples" if known else ""
        parts.append(f"{int(run['steps']):,} steps{batch}")
    if isinstance(run["precision"], str):
        parts.append(isolated(run["precision"]))
    return ", ".join(parts)


def _time(run: pd.Series, known: RunDetails | None) -> str:
    if amounts.missing(run["train_seconds"]):
        return UNTIMED
    words = SOURCES.get(run["time_source"], isolated(str(run["time_source"])))
    if not amounts.missing(run["train_seconds_low"]):
        low, high = amounts.seconds(run["train_seconds_low"]), amounts.seconds(run["train_seconds_high"])
        words += f"; {low} to {high} between the quartiles of the profile"
    if busy_recipes(run.to_frame().T):
        words += f"; {BUSY}"
    if run["time_source"] == "predicted" and known is not None:
        words += f"; the quality was measured on {isolated(_label(known.machine))}"
    return words


def _rate(run: pd.Series) -> str:
    """Return the examples that training takes in a second; empty where either is unknown."""
    if amounts.missing(run["examples"]) or amounts.missing(run["train_seconds"]) or not run["train_seconds"] > 0:
        return ""
    return f"{run['examples'] / run['train_seconds']:,.4g} examples a second" if run["examples"] else ""


def _dollars(run: pd.Series) -> str:
    if amounts.missing(run["usd_per_hour"]):
        return f"unknown: add a price for {isolated(run['hardware'])}"
    as_of = run["price_as_of"] if isinstance(run["price_as_of"], str) else ""
    parts = (
        f"{amounts.dollars(run['usd_per_hour'])}/h as of {as_of}"
        if as_of
        else f"{amounts.dollars(run['usd_per_hour'])}/h",
        age_words(as_of, date.today()),
        isolated(str(run["price_source"]), 160),
        "the time is unknown" if amounts.missing(run["cost_usd"]) else "",
    )
    return ", ".join(filter(None, parts))


def _inference(run: pd.Series) -> str:
    if amounts.missing(run["inference_seconds"]):
        return "not measured"
    return f"{amounts.seconds(run['inference_seconds'])} per example"


def _methods(run: pd.Series) -> Text:
    return joined(map(named, filter(None, str(run["methods"] or "").split("+")))) or "none"


def _baseline(run: pd.Series) -> Text:
    tuning = tuning_words(run["tuning"])
    words = Span("untuned baseline", "warn")
    if tuning is not None:
        words = Span(f'tuning, in the author\'s words: "{isolated(tuning, 160)}"')
    return with_note("this is it" if run["is_baseline"] else named(str(run["baseline"])), (words,))


def _governed(run: pd.Series) -> Iterator[tuple[str, Text]]:
    """Yield the facts that only a run with a ledger has."""
    if not isinstance(run["ledger_root"], str):
        yield "Governance", "none: the run keeps no ledger"
        return
    yield "Policy", named(str(run["policy"])) if isinstance(run["policy"], str) else "not recorded"
    entries = amounts.count(int(run["ledger_size"]), "entry", "entries")
    ledger = (Span(f"{entries}, root "), *_digest(run["ledger_root"]))
    yield "Ledger", with_note(ledger, "not verified")
    if not amounts.missing(run["ledger_overhead"]):
        yield "Governance overhead", f"{run['ledger_overhead']:.1%} of its step time"
    if not amounts.missing(run["chi"]):
        yield "Separation of classes", f"chi {run['chi']:.3g} nats above chance, in the layer where it is greatest"
    yield "Deletion", _deletion(run)


def _deletion(run: pd.Series) -> Text:
    if not isinstance(run["deletion_level"], str):
        return "no forecast"
    words = LEVELS.get(run["deletion_level"], str(run["deletion_level"]))
    if amounts.missing(run["deletion_seconds"]):
        return with_note(words, "its time on this machine is unknown")
    low, high = run["deletion_seconds_low"], run["deletion_seconds_high"]
    within = "" if amounts.missing(low) else f" ({amounts.seconds(low)} to {amounts.seconds(high)})"
    takes = Span(f"{amounts.seconds(run['deletion_seconds'])}{within} for ")
    return with_note(words, (takes, *named(str(run["deletion_class"])), Span(", the costliest class: a forecast")))


def _files(run: pd.Series, known: RunDetails | None, *, runs: Path, here: Path) -> Iterator[tuple[str, Text]]:
    directory = run_directory(runs, run["directory"])
    governed = isinstance(run["ledger_root"], str)
    yield from _own_files(directory, here=here, imported=known.imported if known else None)
    if not directory.is_dir():
        return
    if governed:
        yield "Ledger files", ledger(directory, here=here)
    yield (
        "Report" if governed else "Sweep's report",
        report(directory, runs=runs, governed=governed, here=here),
    )


def _own_files(directory: Path, *, here: Path, imported: str | None) -> Iterator[tuple[str, Text]]:
    """Yield the command that repeats a run and its notebook, or why there is neither."""
    if isinstance(imported, str):
        source = isolated(imported.removeprefix("imported, unverified: "), 200)
        yield "Files", f"none here: imported from {source}; unverified"
        return
    if not directory.is_dir():
        yield "Files", (Span("directory removed: what is shown comes from the database", "warn"),)
        return
    # A command that names a damaged record would only fail.
    try:
        record = rundir.read_json(directory / rundir.RUN)
        fault = "" if isinstance(record, dict) and record.get("run_id") == directory.name else "of another run"
    except RunError:
        record, fault = {}, "removed or damaged"
    if fault:
        yield "Train again", (Span(f"not possible: {rundir.RUN} is {fault}", "warn"),)
    elif isinstance(identity := record.get("identity"), dict) and is_own(identity):
        task = identity["recipe"]["task"]
        code = ", a notebook: its code is not on record" if task.get("code") == "unknown" else ""
        yield "Train again", f"by your own program, which made this run{code}"
    else:
        yield "Train again", reproduce(directory, here=here)
    yield "Notebook", notebook(directory, here=here)


def _digest(value: object) -> tuple[Span, ...]:
    if not isinstance(value, str):
        return (Span(amounts.MISSING),)
    return (Span(clipped(value[:DIGEST]), "code", hover=clipped(value, 128)),)


def _machine(run: pd.Series) -> Machine:
    return Machine(
        device=run["device"],
        hardware=run["hardware"],
        threads=int(run["threads"]),
        world_size=int(run["world_size"]),
    )


def _label(machine: Machine) -> str:
    return str(ladders.Machine(**asdict(machine)))
