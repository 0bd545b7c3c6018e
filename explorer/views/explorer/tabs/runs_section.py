"""Section on runs: all runs of the sweep as a table, in any state, and those that are chosen as cards, compared."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pandas as pd

from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Paragraph, Row, Span, Table, clipped
from explorer.page.html import Markup, element, fragment, inline
from explorer.run_files import metric_of
from explorer.store.run_list import GROUPS, RunList
from explorer.views.explorer.answer import Answer, chosen_rows
from explorer.views.explorer.sharing import button
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.tabs.run_cards import CARDS, notebook, run_cards, run_directory
from explorer.views.explorer.tabs.sections import Section
from explorer.views.grid import Grid, GridColumn, GridRow, GridView
from explorer.views.notebook import named, swatch

ACROSS = "Pick runs in the chart to see their cards; choose one sweep for a table of its runs."
MOST_CHOSEN = 24  # runs that can be chosen at once
HINT = "Click one to see its card; tick two or more to compare them. A brush over the chart lists the runs inside it."
MOST_SETTINGS = 24  # settings that differ and are listed
MOST_SAME = 12  # settings that agree and are named
HEADED = ("ssr", "seed")  # settings that the heading of a run has already
LATE = ("versions", "data", "hardware", "initial", "governance")  # parts of an identity that no recipe states
LONGEST = 40  # characters of a value

RunRow = Mapping[str, Any]
"""A row of `store.run_list`."""

STATES = {
    "finished": "x-settled",
    "running": "x-running",
    "diverged": "x-broken",
    "failed": "x-broken",
    "damaged": "x-broken",
    "interrupted": "x-halted",
    "superseded": "x-settled",
}
"""The style of each state's word."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSource:
    """Source of a grid: the runs of a sweep, as the database pages them. `here` is what links are relative to."""

    listed: RunList
    look: theme.Look
    runs: Path
    here: Path
    metric: str
    database: str  # the digest of its file: another one has other runs
    known: frozenset[str]  # of time, cost, memory and energy: a column that no run has a value in is not shown

    @property
    def columns(self) -> tuple[GridColumn, ...]:
        return (
            GridColumn(key="recipe", title="Recipe", groups=True),
            GridColumn(key="state", title="State", groups=True),
            GridColumn(key="ssr", title="Budget", number=True, groups=True, hint="as a multiple of the full schedule"),
            GridColumn(key="seed", title="Seed", number=True),
            GridColumn(key="quality", title=clipped(self.metric), number=True),
            GridColumn(key="time", title="Training time", number=True, shown="time" in self.known),
            GridColumn(key="cost", title="Cost", number=True, shown="cost" in self.known),
            GridColumn(key="memory", title="Peak memory", number=True, shown="memory" in self.known),
            GridColumn(key="energy", title="Energy", number=True, shown="energy" in self.known),
            GridColumn(key="notebook", title="Notebook", sortable=False),
            GridColumn(key="steps", title="Steps", number=True, shown=False),
            GridColumn(key="methods", title="Methods", groups=True, shown=False),
            GridColumn(key="hardware", title="Hardware", shown=False),
            GridColumn(key="ended", title="Ended", shown=False),
        )

    def groups(self, view: GridView) -> list[tuple[str, int]]:
        return self.listed.counts(group=view.group if view.group in GROUPS else "", search=view.search)

    def rows(self, view: GridView, *, group: str, first: int, count: int) -> list[GridRow]:
        page = self.listed.page(
            first=first,
            count=count,
            sort=view.sort,
            descending=view.descending,
            search=view.search,
            group=view.group if view.group in GROUPS else "",
            of_group=group,
        )
        return [self._row(run) for run in page]

    def _row(self, run: RunRow) -> GridRow:
        directory = run_directory(self.runs, run["directory"])
        # A damaged run has nothing but its place, its state and its problem.
        recipe = str(run["recipe"] or run["run_id"])
        budget, seed = ("-", "-") if run["ssr"] is None else (f"{run['ssr']:g}", str(run["seed"]))
        return GridRow(
            id=run["directory"],
            label=f"{recipe}, budget {budget}, seed {seed}",
            cells=(
                swatch(recipe, self.look),
                state_words(run),
                budget,
                seed,
                quality_words(run),
                amounts.seconds(run["train_seconds"]),
                amounts.dollars(run["cost_usd"]),
                amounts.memory(run["peak_memory"]),
                amounts.energy(run["energy_kwh"]),
                notebook(directory, here=self.here),
                _steps(run),
                clipped(str(run["methods"] or "none").replace("+", ", ")),
                clipped(str(run["hardware"] or amounts.MISSING)),
                str(run["ended"] or amounts.MISSING).replace("T", " ").replace("Z", " UTC"),
            ),
            quiet=run["state"] == "superseded",
        )


def state_words(run: RunRow) -> Markup:
    """Return the state of a run as a chip, with its message beneath."""
    state = str(run["state"])
    chip = element("span", state, class_=f"x-state {STATES.get(state, 'x-settled')}")
    if not run["message"]:
        return chip
    message = (Span((Span(clipped(str(run["message"]), 110), hover=str(run["message"])),), "small"),)
    return Markup("").join((chip, inline(message)))


# --- chosen runs, compared: settings from their identities, which hold everything that determines a result; outcomes


def differences(runs: Sequence[RunRow], *, look: theme.Look) -> Iterator[Block]:
    """Yield the comparison of two or more runs."""
    settings = [_settings(run) for run in runs]
    names = sorted({name for one in settings for name in one}, key=lambda name: (name.split(".")[0] in LATE, name))
    different = [name for name in names if len({one.get(name) for one in settings}) > 1]
    listed = [name for name in different if name not in HEADED]
    rows = [Row((named(name), *(_value(one.get(name)) for one in settings))) for name in listed[:MOST_SETTINGS]]
    columns = [Column((*swatch(str(run["recipe"]), look), _place(run)), number=True) for run in runs]
    yield Table((Column("What differs"), *columns), [*rows, *_outcomes(runs)])
    if len(listed) > MOST_SETTINGS:
        yield Paragraph(f"and {amounts.count(len(listed) - MOST_SETTINGS, 'more setting')}", "note")
    same = [name for name in names if name not in different and name.split(".")[0] not in LATE]
    if same:
        words = ", ".join(f"{clipped(name)} {clipped(settings[0][name], LONGEST)}" for name in same[:MOST_SAME])
        more = f" and {len(same) - MOST_SAME} more" if len(same) > MOST_SAME else ""
        yield Paragraph(f"The same in all of them: {words}{more}.", "note")


def _place(run: RunRow) -> Span:
    return Span((Span(f"budget {run['ssr']:g}, seed {run['seed']}"),), "small")


def _outcomes(runs: Sequence[RunRow]) -> Iterator[Row]:
    """Yield what came out, as far as some run has it."""
    if any(run["state"] != "finished" for run in runs):
        yield Row(("State", *(str(run["state"]) for run in runs)), strong=True)
    metric = next((str(run["metric"]) for run in runs if run["metric"]), "quality")
    outcomes = (
        (clipped(metric), [quality_words(run) for run in runs]),
        ("Training time", [amounts.seconds(run["train_seconds"]) for run in runs]),
        ("Cost", [amounts.dollars(run["cost_usd"]) for run in runs]),
        ("Peak memory", [amounts.memory(run["peak_memory"]) for run in runs]),
        ("Energy", [amounts.energy(run["energy_kwh"]) for run in runs]),
        ("Steps", [_steps(run) for run in runs]),
    )
    for title, words in outcomes:
        if any(word != amounts.MISSING for word in words):
            yield Row((title, *words), strong=True)


def _steps(run: RunRow) -> str:
    return amounts.MISSING if run["steps"] is None else f"{run['steps']:,}"


def quality_words(run: RunRow) -> str:
    """Return the quality of a run in words; a dash for one without."""
    return amounts.quality(run["quality"], metric_of(run)) if run["metric"] else amounts.MISSING


def _settings(run: RunRow) -> dict[str, str]:
    """Return the settings of a run by their path, such as `train.optimizer.sgd.lr`."""
    # The database wrote the identity from a record that it had checked; a damaged run has none.
    identity: Any = json.loads(run["identity"]) if run["identity"] else {}
    recipe = identity.pop("recipe", {}) if isinstance(identity, dict) else {}
    methods = recipe.pop("methods", []) if isinstance(recipe, dict) else []
    flat = dict(_flat("", recipe)) | dict(_flat("", identity))
    for method in methods if isinstance(methods, list) else []:
        for name, parameters in method.items() if isinstance(method, dict) else ():
            flat[f"methods.{name}"] = "on"
            flat |= dict(_flat(f"methods.{name}", parameters))
    return flat


def _flat(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}" if path else str(name), inner)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def _value(value: str | None) -> tuple[Span, ...]:
    if value is None:
        return (Span(amounts.MISSING),)
    return (Span(clipped(value, LONGEST), hover=value if len(value) > LONGEST else ""),)


def _rows(snapshot: Snapshot, metric: str, directories: Sequence[str]) -> list[RunRow]:
    """Return the rows of some runs, of whatever sweeps, in this order."""
    sweeps = dict.fromkeys(directory.partition("/")[0] for directory in directories)
    listed = (RunList(database=snapshot.database, sweep=sweep, metric=metric).rows(directories) for sweep in sweeps)
    by_directory = {row["directory"]: row for rows in listed for row in rows}
    return [by_directory[name] for name in directories if name in by_directory]


class RunsSection(Section):
    """All runs of the sweep. Ticks, clicks in the table and clicks in the chart choose the same runs."""

    key, title = "runs", "Runs"
    across = True  # their cards; a table is that of one sweep

    def __init__(self, ask: Callable[..., None]) -> None:
        self.grid = Grid(
            title="Runs of the sweep",
            noun="run",
            on_pick=lambda directory: self.ask(chosen=(directory,)),
            on_select=lambda directories: self.ask(chosen=directories[:MOST_CHOSEN]),
        )
        self._source: RunSource | None = None
        self._said, self._cards = widgets.HTML(), widgets.HTML()
        self.all = button("Show all runs", tooltip="Remove the brush")
        self.all.on_click(lambda _: self.ask(brush=(), chosen=()))
        super().__init__(ask, [widgets.HBox([self._said, self.all]).add_class("x-head"), self.grid, self._cards])

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show the runs, and the cards of those that are chosen."""
        question, here = answer.question, Path.cwd()
        # Without a known time nothing is drawn, and the runs are there all the same.
        brushed = len(question.brush) == 4 and answer.scene is not None
        inside = [] if answer.scene is None else list(chosen_rows(answer)["directory"].unique())
        self.grid.layout.display = "none" if question.across else ""
        self._cards.value = fragment(*self._shown(snapshot, answer, inside, here=here))
        if question.across:
            self._said.value = fragment(Paragraph(ACROSS, "note"))
            self.all.layout.display = "none"
            return
        everything = RunList(database=snapshot.database, sweep=question.sweep, metric=question.metric)
        listed = replace(everything, only=inside) if brushed else everything
        source = RunSource(
            listed=listed,
            look=answer.look,
            runs=snapshot.runs,
            here=here,
            metric=question.metric,
            database=snapshot.sha256,
            known=snapshot.remember(("columns of runs", question.sweep, question.metric), everything.known),
        )
        words = f"{amounts.count(len(inside), 'run')} selected with the brush"
        if not brushed:
            ((_, total),) = snapshot.remember(("runs", question.sweep), everything.counts)
            words = f"All {amounts.count(total, 'run')} are shown. {HINT}" if total > 1 else "The sweep has one run."
        self._said.value = fragment(Paragraph(words, "note"))
        self.all.layout.display = "" if brushed else "none"
        # A click changes no row: reading the page again would take longer than the click.
        if source == self._source:
            self.grid.check(question.chosen)
        else:
            self.grid.show(source, selected=question.chosen)
            self._source = source

    def _shown(self, snapshot: Snapshot, answer: Answer, inside: Sequence[str], *, here: Path) -> list[Markup]:
        """Return the comparison and the cards of the chosen runs, or of few brushed ones."""
        question, look = answer.question, answer.look
        chosen = list(question.chosen)
        if not chosen and question.brush and len(inside) <= CARDS:
            chosen = list(inside)
        if not chosen:
            return []
        runs = _rows(snapshot, question.metric, chosen)
        shown: list[Block | Markup] = list(differences(runs, look=look)) if len(runs) > 1 else []
        drawn = pd.DataFrame() if answer.scene is None else answer.scene.runs
        rows = drawn[drawn["directory"].isin(chosen)] if len(drawn) else drawn
        has_row = set(rows["directory"]) if len(rows) else set[str]()
        others = [run for run in runs if run["directory"] not in has_row]
        if len(rows) or others:
            where = {"database": snapshot.database, "runs": snapshot.runs, "here": here}
            shown += run_cards(rows, others=others, look=look, **where)
        return [fragment(*shown)]
