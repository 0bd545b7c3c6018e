"""Rules and sealed regions of a policy in words, one line each."""

from collections.abc import Sequence

from explorer.provenance.examples import Examples
from explorer.provenance.intervals import exact, written
from explorer.provenance.layers import WILDCARD
from explorer.provenance.policy import Quarantine, Rule
from explorer.provenance.sealed import SealedRegion

QUARANTINE = {
    Quarantine.REFUSE: "an example that nobody vouches for stops the loader",
    Quarantine.WEIGHT_ZERO: "an example that nobody vouches for keeps its slot with weight 0",
}


def rule_words(rule: Rule) -> str:
    """Whom a rule is about, where and when, and its weight; `~` marks attenuation, which guarantees nothing."""
    parts = [", ".join(rule.classes)]
    parts += [f"layers {', '.join(rule.layers)}"] if rule.layers else []
    parts += [f"depth {written(rule.depth)}"] if rule.depth else []
    parts += [f"progress {written(rule.progress)}"] if rule.progress else []
    parts += [f"when {rule.condition}"] if rule.condition else []
    parts += [f"examples of {_examples(rule.examples)}"] if rule.examples else []
    return f"{'; '.join(parts)}: weight {exact(rule.weight)}{'~' if 0 < rule.weight < 1 else ''}"


def region_words(region: SealedRegion) -> str:
    """Whose a region is, and what is in it."""
    held = f"module {region.module}" if region.module else f"adapters of rank {region.rank} on {_list(region.layers)}"
    return f"sealed for {region.branch}: {held}"


def confidential_words(branches: Sequence[str]) -> str:
    """Whose numbers are encrypted."""
    whose = "every class" if WILDCARD in branches else ", ".join(branches)
    return f"the numbers of {whose} are encrypted, and with them those over several classes at once"


def _examples(examples: Examples) -> str:
    return ", ".join(f"{score} {written(each)}" for score, each in examples.named().items() if each is not None)


def _list(names: Sequence[str] | None) -> str:
    return ", ".join(names or ())
