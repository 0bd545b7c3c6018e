"""Where the training time of one run goes: its phases, and what a step is spent on."""

from collections.abc import Mapping

import pandas as pd
from markupsafe import Markup

from explorer.analysis import schedules
from explorer.errors import AnalysisError
from explorer.store.of_runs import Profile
from explorer.views import text
from explorer.views.phases import COLOURS, PARTS
from explorer.views.tables import Column, Row, named, table

PHASES = (
    Column(title="Phase"),
    Column(title="Steps", number=True),
    Column(title="A step", number=True),
    Column(title="Together", number=True),
)
MOST = 12  # phases that are listed one by one
LEAST = 0.005  # a part of less is not named
WIDTH = 100.0  # of the bar, in its own units


def times(profile: Profile | None, timings: Mapping[str, float], run: pd.Series) -> Markup:
    """The phases of a row of `results` and the split of its steps: as profiled on the row's machine, or else as
    measured in the run, where nothing tells its phases apart."""
    if profile is None or not profile.phases:
        return _split({part: timings.get(part, 0.0) for part in PARTS}, _measured(run))
    return _phases(profile, int(run["steps"])) + _profiled(profile)


def _phases(profile: Profile, steps: int) -> Markup:
    rows = [_phase(phase.name, phase.steps, phase.steps * phase.seconds) for phase in profile.phases[:MOST]]
    others = profile.phases[MOST:]
    if others:
        seconds = sum(phase.steps * phase.seconds for phase in others)
        rows.append(_phase(f"{len(others)} more", sum(phase.steps for phase in others), seconds))
    rest = steps - sum(phase.steps for phase in profile.phases)
    if rest > 0:
        rows.append(_phase("not profiled", rest, None))
    return table(PHASES, rows)


def _phase(name: str, steps: int, seconds: float | None) -> Row:
    one = None if seconds is None else seconds / steps
    return Row(cells=(named(name), f"{steps:,}", text.seconds(one), text.seconds(seconds)), quiet=seconds is None)


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
        return Markup('<p class="x-note x-warn">{}</p>').format(text.clipped(str(error), 160))
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
