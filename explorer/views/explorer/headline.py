"""Headline of the explorer: the answer in one sentence with its interval, how sure it is as a chip, and the conditions
in one quiet line. The terminal and the reports tell the same verdict at greater length (`analysis.sentences`).
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from explorer.analysis.across_sweeps import baseline_across
from explorer.analysis.axis_words import gain_bound, gain_words, ratio_words
from explorer.analysis.confirmed import Confirmed
from explorer.analysis.equal_quality import Call, EqualQuality
from explorer.analysis.sentences import headliner
from explorer.analysis.verdict import Verdict, most_promising
from explorer.page import amounts
from explorer.page.document import clipped, one_line, sentence
from explorer.page.html import Colour, Markup, chip, element
from explorer.views.explorer.answer import Answer, where_words
from explorer.views.explorer.comparison_view import verdict_chip


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """The first thing that is read: a sentence, and a chip, which may be empty."""

    words: str
    chip: str = ""
    tone: Colour = "quiet"


def headline(answer: Answer) -> Headline:
    """Return the headline of an answer."""
    if answer.question.is_survey:
        return Headline(words=sentence(answer.sentence))
    if len(answer.rows) == 1:
        return _one_run(answer)
    verdicts = answer.verdicts
    if not verdicts or all(verdict.call in (Call.UNKNOWN, Call.SEARCHED) for verdict in verdicts):
        return Headline(words=sentence(answer.sentence, names=[result.label for result in answer.comparisons]))
    best = headliner(verdicts)
    if best is None:
        return _without_claim(verdicts)
    said = _sentence(best.comparison)
    if best.control is not None:
        return Headline(words=said, chip=f"no better than its control {best.control.name}", tone="bad")
    confirmation = best.confirmation
    if best.comparison.setting.sweep != best.comparison.baseline_setting.sweep:
        # Fresh seeds would not pair them either.
        return Headline(words=said, chip=f"{verdict_chip(best)[0]}: not paired, run both in one sweep", tone="warn")
    if confirmation is None:
        if best.call is Call.INCONCLUSIVE:
            return Headline(words=said, chip="inconclusive: confirm on fresh seeds", tone="warn")
        return Headline(words=said, chip="not confirmed on fresh seeds yet", tone="warn")
    seeds = amounts.count(len(confirmation.seeds), "fresh seed")
    match confirmation.verdict:
        case Confirmed.CONFIRMED:
            return Headline(words=said, chip=f"confirmed on {seeds}", tone="good")
        case Confirmed.NOT_CONFIRMED:
            return Headline(words=said, chip=f"not confirmed on {seeds}", tone="bad")
        case Confirmed.IN_PROGRESS:
            return Headline(words=said, chip=f"confirmation on {seeds} is running", tone="quiet")
        case Confirmed.ITSELF:
            return Headline(words=said, chip="measured on fresh seeds", tone="good")


def conditions(answer: Answer) -> str:
    """Return what the headline is about and how its intervals are made, in a line."""
    parts = where_words(answer)
    if answer.question.across and answer.comparisons:
        parts.append(f"compared with the {answer.question.baseline}, other sweeps not paired")
    if answer.comparisons:
        seeds = Counter(result.n for result in answer.comparisons).most_common(1)[0][0]
        parts += [amounts.count(seeds, "seed")] if seeds else []
        first = next((result for result in answer.comparisons if result.adjusted_low is not None), None)
        if first is not None:
            several = f", adjusted for {amounts.count(first.family, 'comparison')}" if first.family > 1 else ""
            parts.append(f"{first.confidence:.0%} intervals{several}")
    return " · ".join(clipped(part, 80) for part in parts)


def headline_html(answer: Answer, remarks: Iterable[str]) -> Markup:
    """Return headline, conditions and remarks."""
    told = headline(answer)
    said = element("span", one_line(told.words))
    marked = Markup("{} {}").format(said, chip(told.chip, told.tone)) if told.chip else said
    notes = [element("p", conditions(answer), class_="x-note")]
    notes += [element("p", one_line(words), class_="x-note x-warn") for words in remarks]
    return element("p", marked, class_="x-answer", role="status") + Markup("").join(notes)


def _one_run(answer: Answer) -> Headline:
    run = answer.rows.iloc[0]
    kind = answer.scene.kind if answer.scene else None
    reached = f" reaches {kind.name} {amounts.quality(run['quality'], kind)}" if kind else ""
    took = "" if amounts.missing(run["train_seconds"]) else f" in {amounts.seconds(run['train_seconds'])}"
    words = f"One run: {clipped(str(run['recipe']), 40)}{reached}{took}."
    return Headline(words=words, chip="nothing to compare with yet")


def _without_claim(verdicts: Iterable[Verdict]) -> Headline:
    """Return the headline where no recipe wins: the most hopeful one leads, with what its evidence lacks."""
    by_call: dict[Call, list[Verdict]] = {}
    for verdict in sorted(verdicts, key=lambda verdict: verdict.comparison.ratio or math.inf):
        by_call.setdefault(verdict.call, []).append(verdict)
    # The order of the long summary (`sentences.summary`): what more seeds or budgets would decide comes first.
    for call in (Call.ONE_SEED, Call.BELOW, Call.NO_BASELINE):
        if of_call := by_call.get(call):
            return Headline(words=_sentence(of_call[0].comparison), chip=verdict_chip(of_call[0])[0], tone="warn")
    if (hopeful := most_promising(by_call.get(Call.INCONCLUSIVE, ()))) is not None:
        words = f"No recipe beats the baseline yet: {_looks(hopeful.comparison)}."
        return Headline(words=words, chip=_decided_by(hopeful))
    counts = Counter(verdict_chip(verdict)[0] for verdicts_of in by_call.values() for verdict in verdicts_of)
    said = ", ".join(f"{number} {words}" for words, number in counts.items())
    return Headline(words=f"No recipe beats the baseline: {said}.")


def _decided_by(verdict: Verdict) -> str:
    return "inconclusive" if verdict.seeds is None else f"inconclusive: about {verdict.seeds} more seeds would decide"


def _sentence(result: EqualQuality) -> str:
    label = clipped(result.label, 40)
    whose = "the baseline" if result.baseline == "baseline" else clipped(result.baseline, 40)
    kind = result.setting.kind
    target = f"{whose}'s {kind.name}" if result.own_target else f"{kind.name} {amounts.quality(result.target, kind)}"
    if result.own_target and result.baseline == baseline_across(result.baseline_setting.sweep):
        target = f"the {kind.name} of the {clipped(result.baseline, 60)}"
    where = _machines(result)
    if result.ratio is None:
        return f"{label}{where[0]} reaches {target}{where[1]}."
    if result.call is Call.INCONCLUSIVE:
        return f"{_looks(result)}."
    gain = (gain_bound if result.call is Call.BELOW else gain_words)(result.x, result.ratio)
    return f"{label}{where[0]} reaches {target}{where[1]} {gain}{_interval(result)}."


def _looks(result: EqualQuality) -> str:
    label, where = clipped(result.label, 40), _machines(result)
    than = f" than {clipped(result.baseline, 40)}{where[1]}" if where[1] else ""
    assert result.ratio is not None  # the callers check
    return f"{label}{where[0]} looks {gain_words(result.x, result.ratio)}{than}{_interval(result)}"


def _interval(result: EqualQuality) -> str:
    """Return the interval as one of speedups: " (1.54x to 2.42x)"; empty where there is none."""
    if result.adjusted_low is None or result.adjusted_high is None:
        return ""
    ends = [f"{ratio_words(1 / max(end, 1e-300))}x" for end in (result.adjusted_high, result.adjusted_low)]
    # "1.50x slower" turns the number round and its interval does not, so the speedup is given with it.
    own = f"speedup {ratio_words(1 / result.ratio)}x, " if result.ratio and result.ratio > 1 else ""
    return f" ({own}{ends[0]} to {ends[1]})"


def _machines(result: EqualQuality) -> tuple[str, str]:
    """Return where the recipe and where the baseline ran; nothing if that is the same machine."""
    mine, others = result.setting.machine, result.baseline_setting.machine
    if mine == others:
        return "", ""
    if mine.hardware != others.hardware:
        return f" on {clipped(mine.hardware, 40)}", f" on {clipped(others.hardware, 40)}"
    return f" ({mine})", f" ({others})"
