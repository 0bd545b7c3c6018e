"""What has to be said beside a comparison: how it was made, with which price, and what weakens it."""

from markupsafe import Markup

from explorer.analysis.hypervolume import hypervolume_answer
from explorer.analysis.sentences import budget_answer, busy_notes, inference_words, time_notes
from explorer.views import text
from explorer.views.answer import Answer
from explorer.views.survey import survey_note


def notes(found: Answer) -> Markup:
    """The notes as paragraphs, warnings first."""
    warned = [_paragraph(words, "x-note x-warn") for words in warnings(found)]
    return Markup("").join([*warned, *(_paragraph(words, "x-note") for words in facts(found))])


def warnings(found: Answer) -> list[str]:
    """What weakens the comparisons."""
    words = []
    own = str(found.settled.rows["baseline"].iloc[0])
    if not found.question.is_survey and own not in found.settled.choices.recipes:
        words.append(f"The sweep's own baseline, {own}, has no run here{_stand_in(found)}.")
    if found.settled.baseline and found.comparisons and found.comparisons[0].tuning is None:
        words.append(f"Untuned baseline: nobody searched for good settings of {found.question.baseline}.")
    if any(comparison.n == 1 for comparison in found.comparisons):
        words.append("n=1: one seed says nothing about noise, so there is no interval.")
    vanishing = sorted(each.comparison.label for each in found.verdicts if each.control is not None)
    if vanishing:
        words.append(f"No better than its control: {', '.join(vanishing)}. See Controls.")
    if found.question.is_survey or not found.question.paid_in.counted:
        words += busy_notes(found.rows)
    slower = [f"{each.label}, {inference_words(each)}" for each in found.comparisons if each.slower_inference]
    if slower:
        words.append(f"Slower at inference than the baseline: {'; '.join(slower)}.")
    return words


def _stand_in(found: Answer) -> str:
    chosen = found.settled.baseline
    return f": {chosen} was chosen in its place" if chosen else ", so nothing is compared until another is chosen"


def facts(found: Answer) -> list[str]:
    """How to read the comparisons."""
    if found.question.is_survey:
        return [survey_note(found.rows, found.scene)] if found.scene else []
    words = []
    if found.target is not None and found.scene is not None:
        whose = f", what the monotone curve of {found.question.baseline} has at its full budget"
        whose = "" if found.question.target is not None else whose
        words.append(f"At equal quality: {found.scene.metric} {text.quality(found.target, found.scene.kind)}{whose}.")
    if any(comparison.ratio_low is not None for comparison in found.comparisons):
        first = found.comparisons[0]
        words.append(
            f"{first.confidence:.0%} intervals, t with n-1 degrees of freedom over shared seeds{_adjusted(found)}."
        )
    if found.question.order == "best":
        words += _best_at_equal_budget(found)
    if found.question.paid_in.forecast:
        words.append(f"Deletion is a forecast of the whole command, with its start: {_ways(found)}.")
    if not found.question.paid_in.counted:
        words += time_notes(comparison.time_source for comparison in found.comparisons)
        words.append(f"Price: {found.price}.")
    if found.volume is not None:
        volume = hypervolume_answer(found.volume)
        words.append(f"{volume[:1].upper()}{volume[1:]}.")
    if found.scene is not None and len(found.scene.runs) and not found.scene.draws_runs:
        words.append(f"{text.count(len(found.scene.runs), 'run')}: their means are drawn, and not each of them.")
    return words


def _best_at_equal_budget(found: Answer) -> list[str]:
    """What the first recipe of a table that is sorted by it reaches for as much as the baseline is paid."""
    known = [(each.difference, each) for each in found.budgets if each.difference is not None]
    ordered = sorted(known, key=lambda pair: pair[0] if pair[1].setting.higher_is_better else -pair[0])
    return [f"{budget_answer(ordered[-1][1])}."] if ordered else []


def _ways(found: Answer) -> str:
    """How the classes of these runs would be deleted."""
    levels = set(found.rows["deletion_level"].dropna())
    ways = {"G2": "every class by dropping its sealed region (G2)", "G3": "some class by replay without it (G3)"}
    return " or ".join(words for level, words in ways.items() if level in levels) or "no run here is governed"


def _adjusted(found: Answer) -> str:
    families = {comparison.baseline_setting: comparison.family for comparison in found.comparisons if comparison.family}
    sizes = sorted(set(families.values()))
    if not sizes or sizes == [1]:
        return ""
    each = f"{sizes[0]:,} to {sizes[-1]:,} comparisons" if len(sizes) > 1 else text.count(sizes[0], "comparison")
    return f"; adjusted for {each}{' on each machine' if len(families) > 1 else ''} (Bonferroni)"


def _paragraph(words: str, kind: str) -> Markup:
    return Markup('<p class="{}">{}</p>').format(kind, text.plain(words))
