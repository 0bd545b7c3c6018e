"""How methods compose, in words: the same in the terminal, in notebooks and in reports."""

import math

from explorer.analysis.composition import Composed, Composition, Pair

WORDS = {"optimizer": "the optimiser", "wait": "waiting for data", "read": "reading", "preprocess": "preprocessing"}


def composed_words(recipe: Composed, *, confidence: float = 0.95) -> str:
    """One sentence on a recipe.

    "fast: 2.10x as fast as the baseline, where its methods alone predict 2.30x; it takes 1.10 of the predicted time
    (95% interval 1.05-1.15)"
    """
    if recipe.predicted_speedup is None or recipe.speedup is None or recipe.error.value is None:
        return f"{recipe.label}: no prediction: {recipe.reason}"
    said = f"{recipe.label}: {recipe.speedup:.2f}x as fast as the baseline"
    ratio = f"it takes {math.exp(recipe.error.value):.2f} of the predicted time"
    if recipe.error.low is None or recipe.error.high is None:
        interval = f"no interval: {recipe.error.reason}"
    else:
        interval = f"{confidence:.0%} interval {math.exp(recipe.error.low):.2f}-{math.exp(recipe.error.high):.2f}"
    return f"{said}, where its methods alone predict {recipe.predicted_speedup:.2f}x; {ratio} ({interval})"


def overlap_words(pair: Pair) -> str | None:
    """That two methods shorten the same part of the same steps; None if they do not.

    "channels_last and mixup both shorten forward: alone they save 12% and 40% of the baseline's time there, together
    no more than 45% can be expected"
    """
    found = pair.overlap
    if found is None:
        return None
    *others, last = [WORDS.get(part, part) for part in found.parts]
    parts = f"{', '.join(others)} and {last}" if others else last
    return (
        f"{pair.first} and {pair.second} both shorten {parts}: alone they save {found.first:.0%} and"
        f" {found.second:.0%} of the baseline's time there; together {found.together:.0%} can be expected, not"
        f" {found.first + found.second:.0%}"
    )


def composition_sentences(found: Composition) -> list[str]:
    """All that is worth saying, predictions first."""
    if found.reason is not None:
        return [f"Nothing can be said of composition: {found.reason}"]
    overlaps = [words for pair in found.pairs if (words := overlap_words(pair))]
    recipes = [composed_words(recipe, confidence=found.confidence) for recipe in found.recipes]
    return [*recipes, *_interactions(found), *overlaps]


def _interactions(found: Composition) -> list[str]:
    pairs = found.measured_pairs
    if not pairs:
        return []
    said = []
    for kind, estimates, better, independent in (
        (
            "quality",
            [pair.quality for pair in pairs],
            1 if found.kind is None or found.kind.higher_is_better else -1,
            "add up",
        ),
        ("time", [pair.time for pair in pairs], -1, "multiply"),
    ):
        sure = [
            f"{pair.first} with {pair.second} ({'better' if better * (each.value or 0) > 0 else 'worse'})"
            for pair, each in zip(pairs, estimates, strict=True)
            if each.p_holm is not None and each.p_holm < 1 - found.confidence
        ]
        tested = sum(each.p_value is not None for each in estimates)
        if not tested:
            said.append(f"no pair can be judged in {kind}: {estimates[0].reason}")
        elif sure:
            said.append(
                f"pairs whose effects on {kind} do not just {independent}: {', '.join(sure)}; {_tested(tested)} (Holm)"
            )
        else:
            said.append(f"no pair is shown to interact in {kind}; {_tested(tested)} (Holm)")
    return said


def _tested(count: int) -> str:
    return f"{count} pair{'s' * (count != 1)} tested"
