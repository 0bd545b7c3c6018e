"""What the answer under stated limits rests on: a row for each candidate, and how to read it."""

import datetime

from explorer.analysis.ask import Asked, Candidate
from explorer.analysis.limits import Standing
from explorer.analysis.sentences import inference_words, time_notes
from explorer.costing import age_words
from explorer.views import ask_words, text

COLUMNS = (
    "recipe",
    "hardware",
    "time needed",
    "95% interval",
    "reach rate",
    "cost",
    "inference",
    "tested",
    "n",
    "limits",
)
NUMBERS = ("time needed", "reach rate", "cost", "inference", "n")


def evidence(asked: Asked) -> list[tuple[str, ...]]:
    """A row of texts for each candidate, in the order of `COLUMNS`."""
    return [_row(asked, each) for each in asked.candidates]


def notes(asked: Asked, today: datetime.date) -> list[str]:
    """How to read the evidence: what was not known, what nothing was extrapolated from, prices with their date."""
    said = [
        "Extrapolated: nothing. Every time lies at or between budgets that were run; a quality beyond the last one is"
        " not reached."
    ]
    if best := asked.best:
        said += _between(asked, best)
    said += _unknown(asked)
    said += [*asked.time_notes, *time_notes(each.time_source for each in asked.candidates)]
    priced = [each for each in asked.candidates if each.known.usd_per_hour is not None or asked.limits.max_usd is None]
    said += sorted({price_words(each, today) for each in priced})
    if asked.limits.quality is None and any(each.tuning is None for each in asked.candidates):
        said.append("The baseline is not tuned: being as good as it says little.")
    slower = [
        f"{ask_words.name_of(each)}, {inference_words(each.verdict.comparison)}"
        for each in asked.candidates
        if each.verdict is not None and each.verdict.comparison.slower_inference
    ]
    if slower:
        said.append(f"Slower at inference than the baseline: {'; '.join(slower)}.")
    return said


def price_words(candidate: Candidate, today: datetime.date) -> str:
    """Which price the candidate's cost is made with, as of when, and that it is old; or that there is none."""
    known = candidate.known
    if known.usd_per_hour is None:
        return f"Price: {known.no_price}."
    as_of = f" as of {known.price_as_of}" if known.price_as_of else ""
    age = age_words(known.price_as_of, today)
    return f"Price: {text.dollars(known.usd_per_hour)}/h{as_of}{f' ({age})' if age else ''}, {known.price_source}."


def _row(asked: Asked, candidate: Candidate) -> tuple[str, ...]:
    reached, known = candidate.reached, candidate.known
    tested = reached.tested
    return (
        text.clipped(candidate.label),
        text.clipped(str(candidate.setting.machine)),
        _time(candidate),
        ask_words.span_words(reached.low, reached.high) or ("n=1" if reached.n == 1 else text.MISSING),
        text.MISSING if reached.reach_rate is None else f"{reached.reach_rate:.0%}",
        text.dollars(candidate.usd) if known.usd_per_hour is not None else "no price",
        text.seconds(known.inference_seconds),
        "" if tested is None else f"{text.quality(tested.quality, asked.kind)} at budget {tested.ssr:g}",
        str(reached.n),
        "holds" if candidate.standing is Standing.HOLDS else ask_words.shortfall(asked, candidate),
    )


def _time(candidate: Candidate) -> str:
    reached = candidate.reached
    if not reached.seconds:
        return text.MISSING
    predicted = " (predicted)" if candidate.is_predicted else ""
    return f"{'at most ' if reached.at_lowest else ''}{text.seconds(reached.seconds)}{predicted}"


def _between(asked: Asked, best: Candidate) -> list[str]:
    reached = best.reached
    tested = reached.tested
    said = []
    if tested is not None and reached.below is not None:
        said.append(
            f"{ask_words.name_of(best)}: interpolated between its budgets {reached.below:g} and {tested.ssr:g};"
            f" the latter has {text.quality(tested.quality, asked.kind)} in {text.seconds(tested.seconds)}"
            f" ({text.count(tested.n, 'seed')})."
        )
    if reached.left_out:
        budgets = ", ".join(f"{ssr:g}" for ssr in reached.left_out)
        said.append(f"{ask_words.name_of(best)}: budget {budgets} left out, which was not run with every seed.")
    return said


def _unknown(asked: Asked) -> list[str]:
    """What no run tells, each with the recipes that it is unknown of."""
    reasons: dict[str, list[str]] = {}
    for each in asked.candidates:
        for finding in each.findings:
            if finding.standing is Standing.UNKNOWN:
                reasons.setdefault(ask_words.finding_words(asked, finding), []).append(ask_words.name_of(each))
    whole = len(asked.candidates)
    return [
        f"Not known, so not guessed: {reason} ({'every recipe' if len(names) == whole > 1 else ', '.join(names)})."
        for reason, names in reasons.items()
    ]
