"""Best recipe under stated limits in words, with a row of evidence for each candidate; no widget, no chart."""

import datetime
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace

from explorer.analysis.ask import Asked, Candidate
from explorer.analysis.axis_words import gain_words
from explorer.analysis.budget_law import Forecast
from explorer.analysis.equal_quality import Call
from explorer.analysis.limits import Finding, Limit, Limits, Standing
from explorer.analysis.sentences import call_words, fresh_words, inference_words, time_notes
from explorer.page import amounts
from explorer.page.amounts import age_words
from explorer.page.document import clipped
from explorer.run_files import Metric


def headline(asked: Asked) -> str:
    """Return the answer in one sentence, with the verdict on the recipe and its baseline."""
    best = asked.best
    if best is None:
        nearest = asked.nearest
        assert nearest is not None  # there is always a candidate
        # A limit that failed is certain; with unknown figures no recipe is only known to hold.
        known = "holds" if nearest.failed else "is known to hold"
        return f"No recipe {known} these limits. The nearest is {_named(asked, nearest)}: {shortfall(asked, nearest)}."
    what = f"{_named(asked, best)} reaches {quality_asked(asked, best)} {_taking(best)}"
    if not asked.holds:
        return f"No recipe is sure to hold these limits. The best guess: {what}; but {shortfall(asked, best)}."
    return f"{what}, {_among(asked, best)}{verdict_words(best)}."


def _among(asked: Asked, best: Candidate) -> str:
    """Return how the best compares with the other candidates."""
    if asked.overtaken:
        return f"the least {asked.least} of the recipes that are sure to hold these limits"
    bounds = any(candidate.reached.at_lowest for candidate in asked.candidates if candidate is not best)
    tried = " that was tried" if bounds else ""
    return f"the least {asked.least}{tried} of {amounts.count(len(asked.candidates), 'candidate')} under these limits"


def runner_up(asked: Asked) -> str:
    """Return the second best, compared with the best; empty if there is none."""
    second, difference = asked.runner_up, asked.difference
    if second is None or difference is None:
        return "Runner-up: none; no other recipe is feasible." if asked.best is not None else ""
    sure = "" if second.standing is Standing.HOLDS else f"; {shortfall(asked, second)}"
    words = f"Runner-up: {_named(asked, second)} {_taking(second)}"
    if difference.ratio is None:
        return f"{words}; which of the two takes less is not known: {difference.reason}{sure}."
    bound = "at least " if asked.candidates[0].reached.at_lowest else ""
    words += f", {bound}{difference.ratio:.2f}x the winner's {asked.least}"
    if difference.low is None or difference.high is None:
        return f"{words} (no interval: {difference.reason}){sure}."
    noise = "beyond noise" if difference.beyond_noise else "within noise"
    interval = f"{asked.confidence:.0%} interval {difference.low:.2f} to {difference.high:.2f}"
    return f"{words} ({interval}: {noise}){sure}."


def limits_words(asked: Asked) -> str:
    """Return the limits.

    "accuracy at least 93.00%, at most 2 h of training, open/mit deletable at G2"
    """
    limits, kind = asked.limits, asked.kind
    most = "at least" if kind.higher_is_better else "at most"
    whole = f"{asked.kind.name} {most} {amounts.quality(limits.quality, kind)}"
    parts = [whole if limits.quality is not None else f"{asked.kind.name} as good as the baseline's at its full budget"]
    parts += [f"at most {amount} {of}" for amount, of in _amounts(limits) if amount]
    within = f" within {amounts.seconds(limits.max_deletion_seconds)}" if limits.max_deletion_seconds else ""
    for name, level in limits.deletable.items():
        most = f", repeating at most {limits.deletion_at_most[name]}" if name in limits.deletion_at_most else ""
        parts.append(f"{clipped(name)} deletable at {level}{most}{within}")
    return ", ".join(parts)


def _amounts(limits: Limits) -> Iterable[tuple[str, str]]:
    yield amounts.seconds(limits.max_seconds) if limits.max_seconds else "", "of training"
    yield amounts.dollars(limits.max_usd) if limits.max_usd else "", "of training"
    yield amounts.memory(limits.max_memory) if limits.max_memory else "", "of peak memory"
    yield (
        amounts.seconds(limits.max_inference_seconds) if limits.max_inference_seconds else "",
        "of inference per example",
    )
    yield amounts.ratio(limits.max_inference_ratio) if limits.max_inference_ratio else "", "of the baseline's inference"


def quality_asked(asked: Asked, candidate: Candidate) -> str:
    """Return the quality that candidates must reach, in words."""
    target = candidate.reached.target
    whose = "" if asked.limits.quality is not None else " (the baseline's, monotone fit)"
    return f"{asked.kind.name} {amounts.quality(target, asked.kind)}{whose}"


def shortfall(asked: Asked, candidate: Candidate) -> str:
    """Return the limits that the candidate does not hold, each with its figure; failures come before unknowns."""
    weak = [finding for finding in candidate.findings if finding.standing is not Standing.HOLDS]
    weak.sort(key=lambda finding: finding.standing is not Standing.FAILS)
    return "; ".join(finding_words(asked, finding) for finding in weak)


def finding_words(asked: Asked, finding: Finding) -> str:
    """Return one limit with the candidate's figure.

    "accuracy not reached: best 93.10%, asked 95.00%"
    """
    if finding.standing in (Standing.UNKNOWN, Standing.UNCERTAIN) or (
        finding.limit is Limit.QUALITY and finding.standing is Standing.HOLDS
    ):
        subject = f"deletion of {clipped(finding.class_)}" if finding.class_ else str(finding.limit)
        return f"{subject} {finding.standing}{f': {finding.reason}' if finding.reason else ''}"
    # --- a limit that failed, with the figure that broke it ---
    value, allowed = finding.found, finding.allowed
    if finding.limit is Limit.QUALITY:
        assert value is not None and allowed is not None  # a quality that fails is known
        best, least = _apart(value, allowed, asked.kind)
        return f"{asked.kind.name} not reached: best {best}, asked {least}"
    if finding.limit is Limit.TIME:
        return f"takes {amounts.seconds(value)}, at most {amounts.seconds(allowed)} allowed"
    if finding.limit is Limit.COST:
        return f"costs {amounts.dollars(value)}, at most {amounts.dollars(allowed)} allowed"
    if finding.limit is Limit.MEMORY:
        return f"takes {amounts.memory(value)} of memory, at most {amounts.memory(allowed)} allowed"
    if finding.limit is Limit.INFERENCE:
        return f"inference takes {amounts.seconds(value)} per example, at most {amounts.seconds(allowed)} allowed"
    if finding.limit is Limit.INFERENCE_RATIO:
        known = finding.low is not None and finding.high is not None
        span = f"{amounts.ratio(finding.low)} to {amounts.ratio(finding.high)}" if known else "no interval"
        most = amounts.ratio(allowed)
        return f"inference takes {amounts.ratio(value)} of the baseline's ({span}), at most {most} allowed"
    of = clipped(finding.class_)
    if finding.reason:
        return f"{of} is deletable at {finding.level}: {finding.reason}"
    return f"deleting {of} takes {amounts.seconds(value)}, at most {amounts.seconds(allowed)} allowed"


def _apart(first: float, second: float, kind: Metric) -> tuple[str, str]:
    """Return two values of a metric with as many digits as tell them apart: "4.48372 bits" and "4.48367 bits"."""
    style = kind.format or (".2%" if kind.percent else ".4g")
    for digits in range(int(style[-2]), 10):
        finer = replace(kind, format=f"{style[:-2]}{digits}{style[-1]}")
        if finer.show(first) != finer.show(second):
            return finer.show(first), finer.show(second)
    return kind.show(first), kind.show(second)


def confirming_command(candidate: Candidate, *where: str) -> str:
    """Return the command that runs the recipe on fresh seeds; `where` are options that name its runs and data."""
    names = [candidate.setting.sweep, candidate.recipe]
    stop = ["--"] if any(name.startswith("-") for name in names) else []  # a name that begins with a dash is no option
    return shlex.join(["explorer", "confirm", *where, *stop, *names])


def _taking(candidate: Candidate) -> str:
    """Return the amount that a candidate takes: "in 22.7 s (95% interval 21.6 s to 23.8 s, 3 seeds)"."""
    reached = candidate.reached
    interval = span_words(reached.low, reached.high)
    seeds = amounts.count(reached.n, "seed")
    least = "at most " if reached.at_lowest else ""
    lowest = "at its lowest budget, " if reached.at_lowest else ""
    cost = f", {least}{amounts.dollars(candidate.usd)}" if candidate.usd is not None else ""
    within = f"95% interval {interval}, {seeds}" if interval else seeds
    how = "predicted, " if candidate.is_predicted else ""
    return f"{lowest}in {least}{amounts.seconds(reached.seconds)}{cost} ({how}{within})"


def span_words(low: float | None, high: float | None) -> str:
    """Return an interval of times; empty if there is none."""
    return "" if low is None or high is None else f"{amounts.seconds(low)} to {amounts.seconds(high)}"


def verdict_words(best: Candidate) -> str:
    """Return the verdict on the recipe at the baseline's quality, to be appended to a sentence.

    "; at baseline's own quality: inconclusive, about 6 more seeds would decide, 1.39x faster"
    """
    verdict = best.verdict
    if verdict is None:
        return ""
    result = verdict.comparison
    gain = None if result.ratio is None or result.adjusted_low is None else gain_words(result.x, result.ratio)
    # "1.93x faster than the baseline" holds the call and the gain; other calls do not name a direction.
    if gain and verdict.call in (Call.LESS, Call.MORE):
        said = f"{gain} than the baseline"
    else:
        said = f"{call_words(verdict)}{f', {gain}' if gain else ''}"
    words = f"; at {clipped(result.baseline)}'s own quality: {said}"
    if verdict.control is not None:
        words += f"; its gain vanishes against its control {clipped(verdict.control.name)}"
    return f"{words}{fresh_words(verdict)}"


def _named(asked: Asked, candidate: Candidate) -> str:
    """Return a candidate's name, with its machine where there are several."""
    several = len({other.setting.machine for other in asked.candidates}) > 1
    return f"{name_of(candidate)} on {clipped(str(candidate.setting.machine))}" if several else name_of(candidate)


def name_of(candidate: Candidate) -> str:
    """Return the candidate's name, clipped for the screen."""
    return clipped(candidate.label)


COLUMNS = (
    "recipe",
    "hardware",
    "time to target",
    "95% interval",
    "reach rate",
    "cost",
    "inference",
    "tested",
    "n",
    "limits",
)
NUMBERS = ("time to target", "reach rate", "cost", "inference", "n")


FORECAST_COLUMNS = ("recipe", "forecast", "95% interval", "measured", "from")
FORECAST_NUMBERS = ("forecast",)
HOLLOW = "\N{WHITE CIRCLE}"  # in front of a forecast: nothing was measured there


def forecast_title(budget: float) -> str:
    """Return what a table of forecasts is, to be shown above it."""
    return f"forecast at budget {budget:g}, which was not run; no part of the answer or of its verdicts"


def forecast_rows(forecasts: Sequence[Forecast]) -> list[tuple[str, ...]]:
    """Return a row of texts for each recipe: its forecast, or why there is none. The columns are `FORECAST_COLUMNS`."""
    rows = []
    for one in forecasts:
        if one.reason:
            rows.append((clipped(one.label), amounts.MISSING, amounts.MISSING, amounts.MISSING, f"none: {one.reason}"))
            continue
        kind = one.setting.kind
        seeds = " to ".join(str(number) for number in sorted({min(one.seeds), max(one.seeds)}))
        rows.append(
            (
                clipped(one.label),
                f"{HOLLOW} {amounts.quality(one.quality, kind)}",
                f"{amounts.quality(one.low, kind)} to {amounts.quality(one.high, kind)}",
                f"{amounts.quality(one.measured[-1], kind)} at budget {one.budgets[-1]:g}",
                f"{len(one.budgets)} budgets x {seeds} seeds",
            )
        )
    return rows


def evidence(asked: Asked) -> list[tuple[str, ...]]:
    """Return a row of texts for each candidate; the columns are `COLUMNS`."""
    return [_row(asked, candidate) for candidate in asked.candidates]


def notes(asked: Asked, today: datetime.date) -> list[str]:
    """Return the sentences on how to read the evidence: interpolation, unknown figures, sources of times, prices."""
    said = [
        "Extrapolated: nothing. Every time lies at or between budgets that were run; a quality beyond the last one"
        " counts as not reached."
    ]
    # Warnings about the figures come before their sources and prices.
    if best := asked.best:
        said += _between(asked, best)
    said += _unknown(asked)
    if asked.limits.max_memory is not None:
        known = [candidate for candidate in asked.candidates if candidate.known.peak_memory is not None]
        figures = ", ".join(f"{clipped(one.label)} {amounts.memory(one.known.peak_memory)}" for one in known)
        said += [f"Peak memory, the most of each recipe's runs: {figures}."] if known else []
    said += [*asked.time_notes, *time_notes(candidate.time_source for candidate in asked.candidates)]
    priced = [
        candidate
        for candidate in asked.candidates
        if candidate.known.usd_per_hour is not None or asked.limits.max_usd is None
    ]
    said += sorted({price_words(candidate, today) for candidate in priced})
    if asked.limits.quality is None and any(candidate.tuning is None for candidate in asked.candidates):
        said.append("The baseline is untuned: equalling it means little.")
    slower = [
        f"{name_of(candidate)}, {inference_words(candidate.verdict.comparison)}"
        for candidate in asked.candidates
        if candidate.verdict is not None and candidate.verdict.comparison.slower_inference
    ]
    if slower:
        said.append(f"Slower at inference than the baseline: {'; '.join(slower)}.")
    return said


def price_words(candidate: Candidate, today: datetime.date) -> str:
    """Return the price behind a candidate's cost, with its date and age; or that there is none."""
    known = candidate.known
    if known.usd_per_hour is None:
        return f"Price: {known.no_price}."
    as_of = f" as of {known.price_as_of}" if known.price_as_of else ""
    age = age_words(known.price_as_of, today)
    return f"Price: {amounts.dollars(known.usd_per_hour)}/h{as_of}{f' ({age})' if age else ''}, {known.price_source}."


def _row(asked: Asked, candidate: Candidate) -> tuple[str, ...]:
    reached, known = candidate.reached, candidate.known
    tested = reached.tested
    return (
        clipped(candidate.label),
        clipped(str(candidate.setting.machine)),
        _time(candidate),
        span_words(reached.low, reached.high) or ("n=1" if reached.n == 1 else amounts.MISSING),
        amounts.MISSING if reached.reach_rate is None else f"{reached.reach_rate:.0%}",
        amounts.dollars(candidate.usd) if known.usd_per_hour is not None else "no price",
        amounts.seconds(known.inference_seconds),
        "" if tested is None else f"{amounts.quality(tested.quality, asked.kind)} at budget {tested.ssr:g}",
        str(reached.n),
        "holds" if candidate.standing is Standing.HOLDS else shortfall(asked, candidate),
    )


def _time(candidate: Candidate) -> str:
    reached = candidate.reached
    if not reached.seconds:
        return amounts.MISSING
    predicted = " (predicted)" if candidate.is_predicted else ""
    return f"{'at most ' if reached.at_lowest else ''}{amounts.seconds(reached.seconds)}{predicted}"


def _between(asked: Asked, best: Candidate) -> list[str]:
    reached = best.reached
    tested = reached.tested
    said = []
    if tested is not None and reached.below is not None:
        said.append(
            f"{name_of(best)}: interpolated between its budgets {reached.below:g} and {tested.ssr:g};"
            f" the latter reaches {amounts.quality(tested.quality, asked.kind)} in {amounts.seconds(tested.seconds)}"
            f" ({amounts.count(tested.n, 'seed')})."
        )
    if reached.left_out:
        budgets = ", ".join(f"{ssr:g}" for ssr in reached.left_out)
        said.append(f"{name_of(best)}: budget {budgets} left out, because it was not run with every seed.")
    return said


def _unknown(asked: Asked) -> list[str]:
    """Return the unknown figures, each with the recipes that lack it."""
    reasons: dict[str, list[str]] = {}
    for candidate in asked.candidates:
        for finding in candidate.findings:
            if finding.standing is Standing.UNKNOWN:
                reasons.setdefault(finding_words(asked, finding), []).append(name_of(candidate))
    whole = len(asked.candidates)
    return [
        f"Unknown, and not guessed: {reason} ({'every recipe' if len(names) == whole > 1 else ', '.join(names)})."
        for reason, names in reasons.items()
    ]
