"""Section that compares a second governed run with the one that is shown.

These are single runs, so nothing here can tell a difference from chance. Layers and classes of both runs are compared
by name; those of only one run are listed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import altair as alt
import ipywidgets as widgets
import numpy as np
import pandas as pd

from explorer import rundir
from explorer.audit.shares import estimates, is_confidential, shares
from explorer.canonical import canonical
from explorer.entries.kinds import Genesis, Profile
from explorer.errors import ExplorerError
from explorer.page import amounts
from explorer.page.document import Block, Column, Fold, Paragraph, Row, Table, clipped, isolated
from explorer.page.html import Markup, fragment
from explorer.run_files import RunRecord
from explorer.runlog.documents import POLICY_FILE, read_policy
from explorer.runlog.influence import recorded_plan
from explorer.runlog.run_ledger import Missing
from explorer.views.ledger import depth, matrices
from explorer.views.ledger.depth import MEASURES, P_VALUES, depth_profile, profile_frame
from explorer.views.ledger.matrices import DENIED, NOTHING, STATES, TRAINED, UNMEASURED, shown_layers, signed_matrix
from explorer.views.ledger.open_run import TITLES, OpenRun, badge_words, open_run, simulated_note
from explorer.views.ledger.pane import Pane, Section, heading, measure_buttons, note, warning
from explorer.views.ledger.training_section import no_profiles
from explorer.views.notebook import Quiet, named

NONE = "none"
DEPTH = 5  # of nested settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """Input that determines a run, as both runs have it."""

    name: str
    first: str
    second: str
    same: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Common:
    """Names that two runs have in common, and the names of only one of them."""

    both: tuple[str, ...]
    first: tuple[str, ...]
    second: tuple[str, ...]


def common(first: Sequence[str], second: Sequence[str]) -> Common:
    """Return the names that both have, in the order of the first, and the others."""
    return Common(
        both=tuple(name for name in first if name in second),
        first=tuple(name for name in first if name not in second),
        second=tuple(name for name in second if name not in first),
    )


def facts(first: OpenRun, second: OpenRun) -> tuple[Fact, ...]:
    """Return the inputs of both runs: those in the first entries of their ledgers, in words where the documents are
    here.

    Raises `RunError` for damaged records, `LedgerError` or `ProvenanceError` for a policy that is not the run's.
    """
    one, other = first.ledger.genesis, second.ledger.genesis
    compared = [_fact(name, said(one), said(other)) for name, said in DETERMINED.items()]
    continued = ["; ".join(opened.ledger.continues) or "nothing" for opened in (first, second)]
    compared.insert(-1, _fact("Continues", *continued))
    compared[1:1] = _settings(_plan(first), _plan(second))  # right after the recipe that they belong to
    policies, probes = [_policy(opened) for opened in (first, second)], [_probes(opened) for opened in (first, second)]
    compared += [_fact("Policy", *policies), _fact("Probes of the profiles", *probes)]
    compared.append(_fact("Steps done", f"{len(first.recorded):,}", f"{len(second.recorded):,}"))
    return tuple(compared)


def profiles_at(first: OpenRun, second: OpenRun) -> tuple[int | None, pd.DataFrame]:
    """Return the last step at which both were measured, and a row for each layer that both have: layer, and for each
    measure of the depth profile first, second and difference (`entropy_first`, ...), and p-values (`p_value_first`,
    ...).

    None and no rows if they were never measured after the same number of steps.
    """
    frames = [profile_frame(opened.profiles) for opened in (first, second)]
    if any(frame.empty for frame in frames):
        return None, pd.DataFrame()
    steps = {*frames[0]["step"]} & {*frames[1]["step"]}
    if not steps:
        return None, pd.DataFrame()
    at = max(steps)
    one, other = (frame[frame["step"] == at] for frame in frames)
    joined = one.merge(other, on="layer", suffixes=("_first", "_second"))  # in the order of the first
    for measure in MEASURES:
        joined[f"{measure}_difference"] = joined[f"{measure}_second"] - joined[f"{measure}_first"]
    return int(at), joined


def share_differences(first: OpenRun, second: OpenRun) -> pd.DataFrame:
    """Return a row for each layer and class that both have: layer, class, first, second and difference of the class's
    share in the summed gradient (NaN if one has none), state_first, state_second.

    They cover all steps, or the steps since the deletion that made one of the runs. No rows without such steps.
    Raises `StoreError` or `LedgerError` as `explorer.audit.shares` does.
    """
    begins = max(first.ledger.begins, second.ledger.begins)
    steps = [range(begins, opened.ledger.steps) for opened in (first, second)]
    if not all(steps):
        return pd.DataFrame()
    pairs = zip((first, second), steps, strict=True)
    frames = [matrices.cells(shares(opened.ledger, some), opened.recorded) for opened, some in pairs]
    joined = frames[0].merge(frames[1], on=["layer", "class"], suffixes=("_first", "_second"), how="inner")
    renamed = joined.rename(columns={"share_first": "first", "share_second": "second"})
    return renamed.assign(difference=renamed["second"] - renamed["first"])[
        ["layer", "class", "first", "second", "difference", "state_first", "state_second"]
    ]


def span_of(frames: Sequence[pd.DataFrame], measure: str) -> tuple[float, float] | None:
    """Return an axis that holds a measure of all frames, zero included for chi; None without numbers."""
    values = np.concatenate([frame[measure].to_numpy(float) for frame in frames if not frame.empty] or [np.array([])])
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    low, high = (min(0.0, values.min()), max(0.0, values.max())) if measure == "chi" else (values.min(), values.max())
    # Equal values still need an axis: 5% of the range, else of the value, else 1.
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return float(low - room), float(high + room)


def _fact(name: str, first: str, second: str) -> Fact:
    return Fact(name=name, first=first, second=second, same=first == second)


def _short(digest: str | None) -> str:
    return NONE if digest is None else digest[:16]


def _tags(genesis: Genesis) -> str:
    return ", ".join(f"{name} {sources.root[:16]}" for name, sources in sorted(genesis.tags.items())) or NONE


DETERMINED: dict[str, Callable[[Genesis], str]] = {
    "Recipe": lambda genesis: _short(genesis.recipe),
    "Seed": lambda genesis: str(genesis.seed),
    "Data": lambda genesis: _short(genesis.data),
    "Tags": _tags,
    "Taxonomy": lambda genesis: _short(genesis.taxonomy),
    "Trust file": lambda genesis: _short(genesis.trust),
    "Code": lambda genesis: _short(genesis.code),
    "Environment": lambda genesis: _short(genesis.environment),
    "Initial parameters": lambda genesis: _short(genesis.initial),
    "Strategy": lambda genesis: genesis.strategy,
    "Begins after": lambda genesis: f"{genesis.begins:,} steps",
}


def _plan(opened: OpenRun) -> dict[str, str]:
    """Return the settings of the recipe or loop in words, if its record is the one that the ledger names."""
    record = recorded_plan(opened.ledger)
    if record is None:
        return {}
    settings: dict[str, str] = {}
    if isinstance(record, RunRecord):
        settings = {"name of the recipe": record.recipe, "budget": f"{record.ssr:g} of the full schedule"}
    recipe = record.identity.get("recipe")
    return settings | dict(_flat("", recipe if isinstance(recipe, dict) else {}, DEPTH))


def _flat(path: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield every setting by its path. A list of single-key mappings, such as the methods, is keyed by these names."""
    names = (
        isinstance(value, list) and bool(value) and all(isinstance(entry, dict) and len(entry) == 1 for entry in value)
    )
    if names and isinstance(value, list):
        yield f"{path} in order", ", ".join(str(name) for entry in value for name in entry)
        value = {name: inner for entry in value for name, inner in entry.items()}
    # Records are read from disk, so their depth is limited; whatever lies deeper is shown as JSON.
    if isinstance(value, dict) and value and depth:
        for name, inner in value.items():
            yield from _flat(f"{path} {name}".strip(), inner, depth - 1)
    else:
        yield path, value if isinstance(value, str) else canonical(value).decode()


def _settings(first: dict[str, str], second: dict[str, str]) -> list[Fact]:
    """Return the settings that differ, or a single fact if only one run has its settings in words."""
    if not first or not second:
        words = ("in words" if first else "not recorded here", "in words" if second else "not recorded here")
        return [_fact("Settings of the recipe", *words)] if words[0] != words[1] else []
    names = dict.fromkeys([*first, *second])
    pairs = {name: (first.get(name, "not set"), second.get(name, "not set")) for name in names}
    return [*(_fact(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1])]


def _policy(opened: OpenRun) -> str:
    if opened.ledger.genesis.policy is None or not (opened.ledger.run / rundir.GOVERNANCE / POLICY_FILE).exists():
        return _short(opened.ledger.genesis.policy)
    policy = read_policy(opened.ledger)
    assert policy is not None  # the genesis names one
    return f"{policy.name} version {policy.version}, {_short(opened.ledger.genesis.policy)}"


def _probes(opened: OpenRun) -> str:
    run = opened.ledger
    return (
        ", ".join(sorted({_short(placed.entry.probes) for placed in run.read(run.outline.profiles, Profile)})) or NONE
    )


SHOWN = 20  # rows of the table of shares, the others folded away
MOST = 1_000
CAUTION = (
    "These are two single runs, so differences have no intervals and may be chance. For recipes over several seeds, "
    "see the tradeoff curves."
)


def difference_map(frame: pd.DataFrame, *, width: int | str = "container") -> alt.LayerChart:
    """Draw the rows of `share_differences`."""
    classes, layers = list(dict.fromkeys(frame["class"])), shown_layers(frame)
    shown = frame[frame["layer"].isin(layers)]
    both = (shown["state_first"] == DENIED) & (shown["state_second"] == DENIED)
    worded = pd.DataFrame(
        {
            "row": shown["layer"],
            "column": shown["class"],
            "value": shown["difference"],
            "state": np.where(both, DENIED, ""),
            "text": [NOTHING if np.isnan(value) else _points(value) for value in shown["difference"]],
            "first_text": [_share(*pair) for pair in zip(shown["first"], shown["state_first"], strict=True)],
            "second_text": [_share(*pair) for pair in zip(shown["second"], shown["state_second"], strict=True)],
        }
    )
    tooltip = [
        alt.Tooltip("row:N", title="Layer"),
        alt.Tooltip("column:N", title="Class"),
        alt.Tooltip("first_text:N", title="First"),
        alt.Tooltip("second_text:N", title="Second"),
        alt.Tooltip("text:N", title="Difference, in points of a hundred"),
    ]
    of = amounts.count(len(layers), "layer")
    words = f"Difference of the shares of {len(classes)} classes in {of}, second less first."
    return signed_matrix(worded, rows=layers, columns=classes, tooltip=tooltip, words=words, width=width)


def differences_table(frame: pd.DataFrame) -> Iterator[Block]:
    """Yield the rows of `share_differences` as a table, the largest differences first."""
    ordered = frame.assign(size=frame["difference"].abs()).sort_values("size", ascending=False, kind="stable")
    columns = [Column(title="Layer"), Column(title="Class")]
    columns += [Column(title=title, number=True) for title in ("First", "Second", "Difference")]
    rows = [
        Row(
            cells=(
                named(str(row["layer"])),
                named(str(row["class"])),
                _share(row["first"], row["state_first"]),
                _share(row["second"], row["state_second"]),
                amounts.MISSING if np.isnan(row["difference"]) else _points(row["difference"]),
            )
        )
        for _, row in ordered.head(MOST).iterrows()
    ]
    caption = "Shares of the summed gradient; the difference in points of a hundred, the largest first."
    yield Table(columns, rows[:SHOWN], caption)
    if len(rows) > SHOWN:
        yield Fold(f"And {len(frame) - SHOWN:,} smaller ones", [Table(columns, rows[SHOWN:], "The others.")])


def profiles_table(first: OpenRun, second: OpenRun, measure: str) -> Iterator[Block]:
    """Yield one measure, layer by layer, at the last step at which both runs were measured."""
    step, frame = profiles_at(first, second)
    if step is None:
        yield note(
            "The two runs were never measured after the same number of steps, so there is no difference to show."
        )
        return
    layers = common(*(list(dict.fromkeys(title.layer for title in one.profiles)) for one in (first, second)))
    if frame.empty:
        yield note(f"The two runs have no layer name in common. {_only('layer', layers)}")
        return
    p_value = P_VALUES.get(measure)
    columns = [
        Column(title="Layer"),
        *(Column(title=title, number=True) for title in ("First", "Second", "Difference")),
    ]
    columns += [Column(title=title, number=True) for title in ("p, first", "p, second")] if p_value else []
    names = [f"{measure}_{which}" for which in ("first", "second", "difference")]
    names += [f"{p_value}_first", f"{p_value}_second"] if p_value else []
    rows = [
        Row(cells=(named(str(row["layer"])), *(_number(row[name], signed=name.endswith("ce")) for name in names)))
        for _, row in frame.iterrows()
    ]
    when = "before training" if step == 0 else f"after step {step:,}"
    early = " The only profile of both is that of the untrained model." if step == 0 else ""
    caption = f"{MEASURES[measure].title}, {when}: the last step at which both were measured.{early}"
    yield Table(columns, rows, caption)
    if only := _only("layer", layers):
        yield note(only)


def facts_table(determined: Sequence[Fact]) -> Iterator[Block]:
    """Yield the inputs that differ, and in a sentence those that do not."""
    columns = [Column("Input"), Column("First"), Column("Second")]
    differing = [
        Row((fact.name, isolated(fact.first, 120), isolated(fact.second, 120))) for fact in determined if not fact.same
    ]
    same = ", ".join(fact.name.lower() for fact in determined if fact.same)
    yield Table(columns, differing) if differing else note("All inputs of the two runs are the same.")
    yield note(f"The same in both: {same or 'nothing'}.")


def introduced(first: OpenRun, second: OpenRun) -> Iterator[Block | Markup]:
    """Yield the names of both runs, their badges, and the inputs that differ. Raises as `facts` does."""
    yield simulated_note(second.classes)
    for which, opened in (("First", first), ("Second", second)):
        yield note(f"{which}: {opened.ledger.genesis.run}, {_believed(opened)}.")
    yield warning(CAUTION)
    yield heading("Inputs that differ")
    yield from facts_table(facts(first, second))
    if only := _only("class", common(first.classes, second.classes), "classes"):
        yield note(only)


def _believed(opened: OpenRun) -> str:
    words = badge_words(opened.badge)
    return ": ".join([TITLES[words.verdict].lower(), *words.findings[:1]])


def _only(noun: str, names_of: Common, plural: str | None = None) -> str:
    """Return a sentence on the names of only one run, which are not compared."""
    parts = [
        f"{amounts.count(len(names), noun, plural)} of only the {which} run: {clipped(', '.join(names), 200)}."
        for which, names in (("first", names_of.first), ("second", names_of.second))
        if names
    ]
    return f"Not compared: {' '.join(parts)}" if parts else ""


def _number(value: float, *, signed: bool) -> str:
    if amounts.missing(value):
        return amounts.MISSING
    sign = "+" if signed and value else ""
    return f"{value:{sign}.4g}".replace("-", "\u2212")


def _points(value: float) -> str:
    shown = round(100 * value, 1)
    return f"{shown:+.1f}".replace("-", "\u2212") if shown else "0.0"


def _share(value: float, state: str) -> str:
    return f"{value:.1%}".replace("-", "\u2212") if state == TRAINED else STATES[state].partition(":")[0]


CHOOSE = "Choose a second run"
NO_OTHER = "There is no other governed run in this directory to compare it with."
SHARES = (
    "Second run less first, in points of a hundred: how much more (blue) or less (orange) of a layer's summed gradient "
    "came from a class. Hatched: denied by both policies. A dot: one run has no number here."
)


class TwoRunsSection(Section):
    """Choice of a second run, and both runs below it."""

    key, title = "compare", "Two runs"

    def __init__(self, others: Callable[[], dict[str, Path]]) -> None:
        self._quiet = Quiet()
        self._first: OpenRun | None = None
        self._second: OpenRun | None = None
        self.second = widgets.Dropdown(description="Second run")
        self.second.observe(lambda _: None if self._quiet else self._choose(), "value")
        self._measure = measure_buttons()
        self._measure.observe(lambda _: self._draw_profiles(), "value")
        self.head, self.profiles, self.differences = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.left, self.right, self.heat = Pane(depth.CAPTION), Pane(""), Pane(SHARES)
        self._both = widgets.VBox(
            [
                widgets.HTML(fragment(heading("Depth profiles over training, on the same axes"))),
                self._measure,
                widgets.Box([self.left, self.right]).add_class("x-halves"),
                self.profiles,
                widgets.HTML(fragment(heading("Which class moved which layer: the difference"))),
                widgets.Box([self.heat, self.differences]).add_class("x-halves"),
            ]
        ).add_class("x-body")
        chooser = widgets.Box([self.second]).add_class("x-controls")
        super().__init__(others, [chooser, self.head, self._both])
        self.add_class("x-body")

    def show(self, opened: OpenRun) -> None:
        """Show a run as the first; the second stays unless it is the same run."""
        self._first, chosen = opened, self.second.value
        names = list(self._others())
        with self._quiet:
            self.second.options = [(CHOOSE, ""), *((name, name) for name in names)]
            self.second.value = chosen if chosen in names else ""
        self._choose()

    def clear(self) -> None:
        """Show nothing."""
        self._first = self._second = None
        self._say()

    def _choose(self) -> None:
        first, name, others = self._first, str(self.second.value or ""), self._others()
        self._second = None
        if first is None or name not in others:
            choose = note(f"{CHOOSE} to see its profiles and shares next to these.")
            return self._say(choose if others else Paragraph(NO_OTHER, "empty"))
        try:
            self._second = open_run(others[name], trust=first.trust, now=first.now)
            self.head.value = fragment(*introduced(first, self._second))
            self.differences.value = ""
        except ExplorerError as error:
            return self._say(warning(f"{name}: {error}"))
        self._both.layout.display = ""
        self._draw_profiles()
        return self._draw_shares(first, self._second)

    def _say(self, *blocks: Block) -> None:
        self.head.value = fragment(*blocks)
        self._both.layout.display = "none"

    def _draw_profiles(self) -> None:
        first, second, measure = self._first, self._second, str(self._measure.value)
        if first is None or second is None:
            return
        # Both charts share one axis, so that heights can be compared.
        span = span_of([profile_frame(opened.profiles) for opened in (first, second)], measure)
        for pane, opened, which in ((self.left, first, "First"), (self.right, second, "Second")):
            if depth.is_drawn(opened.profiles, measure):
                pane.draw(lambda one=opened: depth_profile(one.profiles, measure=measure, span=span))
                pane.remark(f"{which}: {opened.ledger.genesis.run}.")
            else:
                pane.say(f"{which}: {no_profiles(opened)}")
        drawn = self.left.drawn and self.right.drawn  # else a pane already names the run that was not measured
        self.profiles.value = fragment(*profiles_table(first, second, measure)) if drawn else ""

    def _draw_shares(self, first: OpenRun, second: OpenRun) -> None:
        try:
            frame = share_differences(first, second)
        except ExplorerError as error:
            self.differences.value = ""
            return self.heat.say(str(error))
        if frame.empty:
            self.differences.value = ""
            return self.heat.say("The two runs have no layer, no class or no step in common.")
        self.differences.value = fragment(*differences_table(frame))
        layers = len(set(frame["layer"]))
        shown = len(shown_layers(frame))
        self.heat.draw(lambda: difference_map(frame))
        begins = max(opened.ledger.begins for opened in (first, second))
        over = f"From step {begins:,} on, where both have steps on record" if begins else "Over all steps of each run"
        drawn = "" if shown == layers else f" {shown} of {layers} layers are drawn."
        return self.heat.remark(f"{over}.{drawn}{_sealed(first, second, frame)}{_estimated(first, second)}")


def _estimated(first: OpenRun, second: OpenRun) -> str:
    """Return the sentences on shares that come from estimates."""
    sentences = (
        (which, estimates(opened.ledger, opened.steps)) for which, opened in (("first", first), ("second", second))
    )
    return "".join(f" Of the {which} run: {words}" for which, words in sentences if words)


def _sealed(first: OpenRun, second: OpenRun, frame: pd.DataFrame) -> str:
    """Return the sentences on shares that are missing because they are sealed, and not because they were not "
    "measured."""
    sentences = [
        f" Shares of the {which} run are {Missing.SEALED}."
        for which, opened in (("first", first), ("second", second))
        if (frame[f"state_{which}"] == UNMEASURED).any() and is_confidential(opened.ledger)
    ]
    return "".join(sentences)
