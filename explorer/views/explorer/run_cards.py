"""Cards of runs: what each reached and took, where its time went, which files it has, and how to repeat it.

What is not known is stated with its reason. Addresses of files are relative to the directory `here`, so that they
work in JupyterLab and in a browser that reads the page from disk. A command is for a shell in `here`.
"""

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup

from explorer import rundir
from explorer.analysis import ladders, schedules
from explorer.analysis.sentences import busy_recipes
from explorer.errors import AnalysisError, StoreError
from explorer.page import amounts, theme
from explorer.page.amounts import BUSY, age_words
from explorer.page.document import clipped, isolated
from explorer.run_files import metric_of, tuning_words
from explorer.store.run_details import Machine, Profile, RunDetails, run_details
from explorer.views.explorer.composition_charts import COLOURS, PARTS
from explorer.views.explorer.deletability import LEVELS
from explorer.views.tables import Column, Row, named, swatch, table, with_note

REPORT = "report.html"


def run_directory(runs: Path, directory: str) -> Path:
    """The directory of a run, of which the database says where it lies below `runs`.

    Raises `StoreError` for a place that is not below it.
    """
    parts = PurePosixPath(directory).parts
    if not parts or ".." in parts or PurePosixPath(directory).is_absolute():
        raise StoreError(f"the database names {directory!r:.80} as the directory of a run; expected one below {runs}")
    return runs / directory


def reproduce(directory: Path, *, here: Path) -> str:
    """The command that trains a run again."""
    return f"explorer run {_typed(directory / rundir.RUN, here)} --out again"


def notebook(directory: Path, *, here: Path) -> str | Markup:
    """A link to the executed notebook, a dash where there is none."""
    path = directory / rundir.NOTEBOOK
    return link(path, "open", here=here) if path.is_file() else amounts.MISSING


def ledger(directory: Path, *, here: Path) -> Markup:
    """A link to the ledger of a governed run, and the command that prints its entries."""
    path = directory / rundir.LEDGER
    shown = link(path, "open its directory", here=here) if path.is_dir() else Markup("not on this disk")
    return Markup("{} {}").format(shown, command(f"explorer ledger show {_typed(path, here)}"))


def report(directory: Path, *, runs: Path, governed: bool, here: Path) -> Markup:
    """A link to the report of a governed run, or to that of the sweep of any other; where nobody wrote it yet, the
    command that does."""
    of_run = (directory / REPORT, directory / rundir.PRIVATE / REPORT)
    for path in of_run if governed else (directory.parent / REPORT,):
        if path.is_file():
            return link(path, "open", here=here)
    if governed:
        return command(f"explorer report {_typed(directory, here)}")
    return command(f"explorer report {shlex.quote(directory.parent.name)} --runs {_typed(runs, here)}")


def link(path: Path, words: str, *, here: Path) -> Markup:
    """A link that leaves the page where it is."""
    address = quote(Path(os.path.relpath(path, here)).as_posix())
    return Markup('<a href="{}" target="_blank" rel="noopener">{}</a>').format(address, words)


def command(words: str) -> Markup:
    """A command to copy: one click selects the whole of it."""
    return Markup('<code class="x-command">{}</code>').format(words)


def _typed(path: Path, here: Path) -> str:
    """A path as one types it in a shell."""
    return shlex.quote(Path(os.path.relpath(path, here)).as_posix())


PHASES = (
    Column(title="Phase"),
    Column(title="Steps", number=True),
    Column(title="A step", number=True),
    Column(title="Together", number=True),
)
MOST_PHASES = 12  # phases that are listed one by one
LEAST = 0.005  # a part of less is not named
WIDTH = 100.0  # of the bar, in its own units


def times(profile: Profile | None, timings: Mapping[str, float], run: pd.Series) -> Markup:
    """The phases of a row of `results` and the split of its steps: as profiled on the row's machine, or else as
    measured in the run, where nothing tells its phases apart."""
    if profile is None or not profile.phases:
        return _split({part: timings.get(part, 0.0) for part in PARTS}, _measured(run))
    return _phases(profile, int(run["steps"])) + _profiled(profile)


def _phases(profile: Profile, steps: int) -> Markup:
    rows = [_phase(phase.name, phase.steps, phase.steps * phase.seconds) for phase in profile.phases[:MOST_PHASES]]
    others = profile.phases[MOST_PHASES:]
    if others:
        seconds = sum(phase.steps * phase.seconds for phase in others)
        rows.append(_phase(f"{len(others)} more", sum(phase.steps for phase in others), seconds))
    rest = steps - sum(phase.steps for phase in profile.phases)
    if rest > 0:
        rows.append(_phase("not profiled", rest, None))
    return table(PHASES, rows)


def _phase(name: str, steps: int, seconds: float | None) -> Row:
    one = None if seconds is None else seconds / steps
    return Row(cells=(named(name), f"{steps:,}", amounts.seconds(one), amounts.seconds(seconds)), quiet=seconds is None)


def _profiled(profile: Profile) -> Markup:
    """The split of all steps: every phase counts with its steps."""
    try:
        found = [
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
        return Markup('<p class="x-note x-warn">{}</p>').format(clipped(str(error), 160))
    parts = schedules.Schedule(recipe="", phases=tuple(found)).by_part()
    return _split(parts, f"What steps are spent on, as profiled {profile.made_at[:10]}")


def _measured(run: pd.Series) -> str:
    shared = " while it shared the machine" if run["contended"] is True or run["contended"] == 1 else ""
    return f"What steps were spent on, as measured in the run{shared}; its phases were not profiled"


def _split(parts: Mapping[str, float], title: str) -> Markup:
    """A bar of the parts and the same in words; nothing where no time is known."""
    whole = sum(parts.values())
    if not whole > 0:
        return Markup('<p class="x-note">What its steps are spent on is not known.</p>')
    shares = {part: parts[part] / whole for part in PARTS if parts.get(part, 0.0) / whole >= LEAST}
    said = Markup(", ").join(
        Markup(
            '<span class="x-part"><svg width="9" height="9" aria-hidden="true"><rect width="9" height="9" fill="{}"/>'
            "</svg>{} {}</span>"
        ).format(_colour(part), PARTS[part], f"{share:.0%}")
        for part, share in shares.items()
    )
    place, bars = 0.0, []
    for part, share in shares.items():
        rect = Markup('<rect x="{}" width="{}" height="8" fill="{}"/>')
        bars.append(rect.format(f"{place:.2f}", f"{share * WIDTH:.2f}", _colour(part)))
        place += share * WIDTH
    return Markup(
        '<svg class="x-split" viewBox="0 0 {} 8" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
        '<p class="x-note">{}: {}</p>'
    ).format(f"{WIDTH:g}", Markup("").join(bars), title, said)


def _colour(part: str) -> str:
    return COLOURS[list(PARTS).index(part)]


CARDS = 6  # that are shown at most
DIGEST = 16  # characters of a digest that are shown; the whole of it on hover

SOURCES = {
    "measured": "measured in the run itself",
    "profiled": "profiled: its steps times the step time on a quiet machine",
    "predicted": "predicted: its steps times the step time of a profile that was made elsewhere and imported",
}
"""Where a training time comes from, a value of `time_source`."""

UNTIMED = "unknown: its recipe was not profiled, and the run shared its machine"


def run_cards(rows: pd.DataFrame, *, database: Path, runs: Path, here: Path, look: theme.Look) -> Markup:
    """A card for each of the first `CARDS` rows of `results`, and how many more there are.

    `runs` is the directory of runs; links and commands are relative to the directory `here`. Raises `StoreError` if the
    database cannot be read, or says that a run lies outside `runs`.
    """
    shown = rows.head(CARDS)
    details = run_details(database, list(shown["directory"]))
    cards = Markup("").join(
        _card(row, details.get(row["directory"]), runs=runs, here=here, look=look) for _, row in shown.iterrows()
    )
    rest = len(rows) - len(shown)
    more = Markup('<p class="x-note">and {}: {} are shown at most</p>').format(amounts.count(rest, "more run"), CARDS)
    return Markup('<div class="x-cards">{}</div>{}').format(cards, more if rest else "")


def _card(run: pd.Series, known: RunDetails | None, *, runs: Path, here: Path, look: theme.Look) -> Markup:
    title = f"{clipped(run['recipe'])}, budget {run['ssr']:g}, seed {run['seed']}"
    facts = Markup("").join(
        Markup("<dt>{}</dt><dd>{}</dd>").format(name, value)
        for name, value in [*_facts(run, known), *_files(run, runs=runs, here=here)]
    )
    return Markup(
        '<article class="x-card" aria-label="{}"><p class="x-card-title">{}</p><p class="x-note">budget {} · seed {}'
        ' · {} on {}</p><ul class="x-figures">{}</ul>{}<dl class="x-facts">{}</dl></article>'
    ).format(
        title,
        swatch(run["recipe"], look),
        f"{run['ssr']:g}",
        run["seed"],
        named(run["model"]),
        named(run["dataset"]),
        Markup("").join(_figures(run)),
        times(known.profiles.get(_machine(run)), known.timings, run) if known else "",
        facts,
    )


def _figures(run: pd.Series) -> Iterator[Markup]:
    """The three that are asked for first."""
    figure = Markup("<li><strong>{}</strong><small>{}</small></li>")
    yield figure.format(amounts.quality(run["quality"], metric_of(run.to_dict())), named(run["metric"]))
    source = isolated(run["time_source"]) if isinstance(run["time_source"], str) else "unknown"
    yield figure.format(amounts.seconds(run["train_seconds"]), f"training time, {source}")
    priced = not amounts.missing(run["usd_per_hour"])
    yield figure.format(amounts.dollars(run["cost_usd"]) if priced else "no price", "US dollars")


def _facts(run: pd.Series, known: RunDetails | None) -> Iterator[tuple[str, str | Markup]]:
    others = [each for each in (known.finals if known else ()) if each.metric.name != run["metric"]]
    if others:
        parts = [
            Markup("{} {}").format(named(each.metric.name), amounts.quality(each.value, each.metric)) for each in others
        ]
        yield "Other metrics", Markup(", ").join(parts)
    yield "Time", _time(run, known)
    yield "Dollars", _dollars(run)
    yield "Inference", _inference(run)
    yield "Hardware", named(_label(_machine(run)), 80)
    yield "Training", f"{run['steps']:,} steps of {run['batch_size']:,} examples, {isolated(run['precision'])}"
    yield "Methods", _methods(run)
    yield "Baseline", _baseline(run)
    if isinstance(run["control"], str):
        yield "Control of", named(str(run["control_of"]))
    yield from _governed(run)
    yield "State", _digest(run["state_digest"])


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


def _dollars(run: pd.Series) -> str:
    if amounts.missing(run["usd_per_hour"]):
        return f"no price for {isolated(run['hardware'])}"
    as_of = run["price_as_of"] if isinstance(run["price_as_of"], str) else ""
    told = (
        f"{amounts.dollars(run['usd_per_hour'])}/h as of {as_of}"
        if as_of
        else f"{amounts.dollars(run['usd_per_hour'])}/h",
        age_words(as_of, date.today()),
        isolated(str(run["price_source"]), 160),
        "the time is unknown" if amounts.missing(run["cost_usd"]) else "",
    )
    return ", ".join(filter(None, told))


def _inference(run: pd.Series) -> str:
    if amounts.missing(run["inference_seconds"]):
        return "not measured"
    return f"{amounts.seconds(run['inference_seconds'])} an example"


def _methods(run: pd.Series) -> str | Markup:
    names = [name for name in str(run["methods"] or "").split("+") if name]
    return Markup(", ").join(map(named, names)) if names else "none"


def _baseline(run: pd.Series) -> Markup:
    tuning = tuning_words(run["tuning"])
    words = "untuned: nobody searched for good settings"
    if tuning is not None:
        words = f'tuning, in the author\'s words: "{isolated(tuning, 160)}"'
    whose = Markup("this is it") if run["is_baseline"] else named(str(run["baseline"]))
    return (
        with_note(whose, words)
        if tuning is not None
        else with_note(whose, Markup('<span class="x-warn">{}</span>').format(words))
    )


def _governed(run: pd.Series) -> Iterator[tuple[str, str | Markup]]:
    """What only a run with a ledger has."""
    if not isinstance(run["ledger_root"], str):
        yield "Governance", "none: the run keeps no ledger"
        return
    yield "Policy", named(str(run["policy"])) if isinstance(run["policy"], str) else "not recorded"
    entries = amounts.count(int(run["ledger_size"]), "entry", "entries")
    yield (
        "Ledger",
        Markup("{}, root {}<small>as it was read; nobody has verified it</small>").format(
            entries, _digest(run["ledger_root"])
        ),
    )
    if not amounts.missing(run["ledger_overhead"]):
        yield "Governing took", f"{run['ledger_overhead']:.1%} of the time of its steps"
    if not amounts.missing(run["chi"]):
        yield "Directions of classes differ", f"chi {run['chi']:.3g} nats above chance, in the layer where most"
    yield "Deletion", _deletion(run)


def _deletion(run: pd.Series) -> str | Markup:
    if not isinstance(run["deletion_level"], str):
        return "no forecast"
    words = LEVELS.get(run["deletion_level"], str(run["deletion_level"]))
    if amounts.missing(run["deletion_seconds"]):
        return with_note(words, "how long it takes is not known for this machine")
    low, high = run["deletion_seconds_low"], run["deletion_seconds_high"]
    within = "" if amounts.missing(low) else f" ({amounts.seconds(low)} to {amounts.seconds(high)})"
    note = Markup("{} for {}, the dearest class: a forecast").format(
        f"{amounts.seconds(run['deletion_seconds'])}{within}", named(str(run["deletion_class"]))
    )
    return with_note(words, note)


def _files(run: pd.Series, *, runs: Path, here: Path) -> Iterator[tuple[str, str | Markup]]:
    directory = run_directory(runs, run["directory"])
    governed = isinstance(run["ledger_root"], str)
    yield "Train it again", command(reproduce(directory, here=here))
    yield "Notebook", notebook(directory, here=here)
    if governed:
        yield "Its ledger", ledger(directory, here=here)
    yield (
        "Report" if governed else "Sweep's report",
        report(directory, runs=runs, governed=governed, here=here),
    )


def _digest(value: object) -> Markup:
    if not isinstance(value, str):
        return Markup(amounts.MISSING)
    return Markup('<code title="{}">{}</code>').format(clipped(value, 128), clipped(value[:DIGEST]))


def _machine(run: pd.Series) -> Machine:
    """The machine that the row is about."""
    return Machine(
        device=run["device"],
        hardware=run["hardware"],
        threads=int(run["threads"]),
        world_size=int(run["world_size"]),
    )


def _label(machine: Machine) -> str:
    return str(ladders.Machine(**asdict(machine)))
