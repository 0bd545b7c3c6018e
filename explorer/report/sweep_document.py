"""The report of a sweep as values, whose JSON form is published as a schema (`schemas/sweep_report.v3.json`).

What is unknown is null. A later version of the format has another number.
"""

import json
from typing import Any, Literal

import explorer
from explorer.analysis.confirmed import Confirmation
from explorer.analysis.confirmed import Confirmed as FreshSeeds
from explorer.analysis.controls import Controlled
from explorer.analysis.controls import Verdict as ControlVerdict
from explorer.analysis.equal_quality import Call, EqualQuality
from explorer.analysis.hypervolume import Hypervolume
from explorer.analysis.sentences import busy_recipes, call_words
from explorer.analysis.verdict import Verdict
from explorer.provenance.spellings import Time, format_time
from explorer.report.content import LedgerHead, RecipeLine, Section, SweepContent, rate_of
from explorer.report.negative import Negative
from explorer.schema import record, to_json
from explorer.views.explorer.composition_rows import composition_json

FORMAT = 3


@record
class ComparedQuality:
    """A recipe beside its baseline at equal quality, and the verdict on it."""

    result: EqualQuality
    call: Call
    words: str  # the verdict as the tables have it
    seeds_to_decide: int | None  # of an inconclusive one
    claims: bool  # it is shown to need less
    asks_confirmation: bool
    confirmed: FreshSeeds | None  # what they say
    vanishes_against: str | None  # the control that takes its gain away


@record
class BesideControl:
    """A recipe beside its control, and what that takes away."""

    result: Controlled
    verdict: ControlVerdict
    gain_vanishes: bool


@record
class Confirmed:
    """What fresh seeds say."""

    result: Confirmation
    sentence: str


@record
class PricePaid:
    """What an hour of the hardware costs."""

    usd_per_hour: float | None
    words: str  # which price that is, and as of when


@record
class MetricSection:
    """One metric on one hardware."""

    hardware: str
    metric: str
    unit: str
    higher_is_better: bool
    answer: str
    target: float | None
    price: PricePaid
    equal_quality: tuple[ComparedQuality, ...]
    recipes: tuple[RecipeLine, ...]
    controls: tuple[BesideControl, ...]
    confirmations: tuple[Confirmed, ...]
    volume: Hypervolume | None
    busy_profile: tuple[str, ...] = ()  # recipes whose times were profiled on a busy machine


@record
class Checked:
    """Whether the runs are what their results say."""

    sound: bool
    summary: str
    findings: tuple[str, ...]


@record
class SweepReport:
    """The whole report."""

    format: Literal[3] = FORMAT
    explorer: str  # the version that made it
    made: Time
    sweep: str
    answer: str
    sections: tuple[MetricSection, ...]
    negatives: tuple[Negative, ...]
    composition: dict[str, dict[str, Any]]  # by hardware
    integrity: Checked
    ledgers: tuple[LedgerHead, ...]
    facts: dict[str, str]
    specification: dict[str, Any] | None
    database_sha256: str


def as_json(content: SweepContent) -> str:
    """The numbers of the report."""
    return json.dumps(to_json(sweep_report(content)), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def sweep_report(content: SweepContent) -> SweepReport:
    """The report of this content."""
    return SweepReport(
        explorer=explorer.__version__,
        made=format_time(content.made),
        sweep=content.sweep,
        answer=content.sentence,
        sections=tuple(_section(section) for section in content.sections),
        negatives=content.negatives,
        composition={hardware: composition_json(found) for hardware, found in content.compositions.items()},
        integrity=Checked(sound=content.sound, summary=content.integrity, findings=content.findings),
        ledgers=content.ledgers,
        facts=dict(content.facts),
        specification=None if content.specification is None else dict(content.specification),
        database_sha256=content.database_sha256,
    )


def _compared(found: Verdict) -> ComparedQuality:
    return ComparedQuality(
        result=found.comparison,
        call=found.call,
        words=call_words(found),
        seeds_to_decide=found.seeds,
        claims=found.claims,
        asks_confirmation=found.asks,
        confirmed=found.confirmation and found.confirmation.verdict,
        vanishes_against=found.control and found.control.name,
    )


def _section(section: Section) -> MetricSection:
    found = section.answer
    return MetricSection(
        hardware=section.hardware,
        metric=section.metric,
        unit=section.kind.unit,
        higher_is_better=section.kind.higher_is_better,
        answer=found.sentence,
        target=found.target,
        price=PricePaid(usd_per_hour=rate_of(section), words=found.price),
        equal_quality=tuple(_compared(each) for each in found.verdicts),
        recipes=section.recipes,
        controls=tuple(
            BesideControl(result=each, verdict=each.verdict, gain_vanishes=each.gain_vanishes)
            for each in section.controls
        ),
        confirmations=tuple(Confirmed(result=each, sentence=each.sentence) for each in section.confirmations),
        volume=found.volume,
        busy_profile=tuple(busy_recipes(found.rows)),
    )
