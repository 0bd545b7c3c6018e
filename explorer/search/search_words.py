"""The answer of a search in words and tables, for the command line and for every page that shows one: no claim."""

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from explorer.analysis.ladders import SEARCHED
from explorer.page import amounts
from explorer.page.document import Table, as_baseline
from explorer.page.terminal import table
from explorer.run_files import METRICS, Metric
from explorer.search.search_answer import Answer, MethodEffect, Place

SHOWN = 10  # recipes of the ranking, and combinations that were left out
NO_CLAIM = f"{SEARCHED}; the best of many looks better than it is, so only fresh seeds make a claim"
EFFECTS = (  # the shares are those of benchmarks/method_effects.md
    "by a ridge fit to the runs that were chosen, at the full budget; interactions count as noise, and the intervals"
    " held the truth in 90 to 95% of simulated searches"
)
NO_WINNER = "no recipe is expected to reach the target sooner than the baseline"
NO_TARGET = "the baseline has not finished its full budget, so there is no target yet"


def kind_of(answer: Answer) -> Metric:
    """Return the metric of a search. One that only its task declares is a plain number here."""
    return METRICS.get(answer.metric) or Metric(name=answer.metric, higher_is_better=True)


def tried_words(answer: Answer) -> str:
    """Return what a search tried."""
    failed = f", {answer.failed} of them failed" if answer.failed else ""
    tried = amounts.count(len(answer.ranking), "recipe")
    return f"{amounts.count(answer.runs, 'run')}{failed} of {tried} of {answer.recipes}"


def spent_words(answer: Answer) -> str:
    """Return what a search spent, and why it ended."""
    return f"{amounts.seconds(answer.spent)} of training of {amounts.seconds(answer.spend)}; {answer.ended}"


def target_words(answer: Answer) -> str:
    """Return the quality to reach, and how long the baseline takes to it."""
    if answer.target is None:
        return NO_TARGET
    base = answer.baseline_seconds
    taken = "not reached by the baseline" if base is None else f"{amounts.seconds(base)} for the baseline"
    return f"{answer.metric.replace('_', ' ')} {amounts.quality(answer.target, kind_of(answer))}, {taken}"


def winner_words(answer: Answer) -> list[tuple[str, str]]:
    """Return the winner with its expected regret, and the runner-up; nothing where no recipe is ahead."""
    names = zip(("winner", "runner-up"), answer.contenders, strict=False)
    return [(name, _place_words(place, answer)) for name, place in names]


def left_out_words(left_out: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the combinations that were not tried, given as name and reason."""
    every = list(left_out)
    yield from (f"{name}: {reason}" for name, reason in every[:SHOWN])
    yield from more_words(len(every))


def more_words(count: int) -> Iterator[str]:
    """Yield how many of a list are not shown, if there are any."""
    if count > SHOWN:
        yield f"{count - SHOWN} more, which `search.json` lists"


def effects_in_order(answer: Answer) -> list[MethodEffect]:
    """Return the effects of methods, the most helpful first."""
    return sorted(answer.effects, key=lambda effect: effect.quality, reverse=kind_of(answer).higher_is_better)


def ranking_table(answer: Answer) -> Table | str:
    """Return the recipes in front."""
    return table(
        ("recipe", "runs", "time to target", "of the baseline's", "step time", "expected regret"),
        [
            (
                place.recipe if place.methods else as_baseline(place.recipe),
                place.runs,
                amounts.seconds(place.seconds),
                amounts.ratio(_of_baseline(place, answer)),
                "measured" if place.measured else "predicted",
                "none" if place.regret == 0 else "not reached" if place.regret is None else f"{place.regret:.1%}",
            )
            for place in answer.ranking[:SHOWN]
        ],
        right=("runs", "time to target", "of the baseline's", "expected regret"),
    )


def effects_table(answer: Answer) -> Table | str:
    """Return the effects of methods on quality and on the time of a run."""
    kind = kind_of(answer)
    return table(
        ("method", "runs", "effect on quality", "interval", "time of a run"),
        [
            (
                effect.method,
                effect.runs,
                kind.difference(effect.quality),
                f"{kind.number(effect.low, sign='+')} to {kind.number(effect.high, sign='+')}",
                amounts.ratio(effect.time),
            )
            for effect in effects_in_order(answer)
        ],
        right=("runs", "effect on quality", "interval", "time of a run"),
    )


def answer_blocks(answer: Answer) -> Iterator[Table | str]:
    """Yield the whole answer for a terminal, where the last lines are read first."""
    yield f"{answer.sweep}: {tried_words(answer)}; {spent_words(answer)}"
    if answer.target is None:
        yield NO_TARGET
        return
    yield f"target: {target_words(answer)}"
    yield ranking_table(answer)
    yield from more_words(len(answer.ranking))
    if answer.effects:
        yield effects_table(answer)
    yield from (f"left out: {words}" for words in left_out_words((one.name, one.reason) for one in answer.left_out))
    yield from [f"{name}: {words}" for name, words in winner_words(answer)] or [NO_WINNER]
    yield NO_CLAIM


def confirm_command(answer: Answer, *options: str | Path) -> str | None:
    """Return the command that would make a claim of the winner; None without a winner, or before the search's end."""
    if not answer.contenders or answer.ended == "stopped":
        return None
    return shlex.join(("explorer", "confirm", answer.sweep, answer.contenders[0].recipe, *map(str, options)))


def _place_words(place: Place, answer: Answer) -> str:
    ratio = _of_baseline(place, answer)
    share = "" if ratio is None else f" ({amounts.ratio(ratio)} of the baseline's)"
    regret = "" if place.regret is None else f", expected regret {place.regret:.1%}"
    return f"{place.recipe}, {amounts.seconds(place.seconds)} to the target{share}{regret}"


def _of_baseline(place: Place, answer: Answer) -> float | None:
    base = answer.baseline_seconds
    return None if base is None or place.seconds is None else place.seconds / base
