"""The entropy profiles of a run as a table: each layer the first and the last time that it was measured."""

from collections.abc import Iterable
from dataclasses import dataclass

from explorer.audit.profiles import DepthProfile
from explorer.entries.told_apart import Told
from explorer.store.spool import ALL


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a layer's outputs on the probes of all classes together looked like once."""

    step: int
    examples: int  # probes
    entropy: float  # nats, of the outputs as they are
    entropy_centred: float | None  # of the outputs less their mean; None: a record of earlier versions
    told: Told | None  # how far a linear probe tells the classes apart; None: likewise
    told_p_value: float | None  # of that under permuted labels
    chi: float | None
    chi_null: float | None  # what chance alone gives
    p_value: float | None  # of chi under permuted labels


@dataclass(frozen=True, kw_only=True, slots=True)
class DepthLine:
    """A layer."""

    layer: str
    first: Measured
    last: Measured  # the same where it was measured once


def depth_lines(profiles: Iterable[DepthProfile]) -> tuple[DepthLine, ...]:
    """A line for each layer that was measured over all classes, from input to output; none where that is sealed."""
    found: dict[str, list[Measured]] = {}
    for each in profiles:
        if each.class_ == ALL:
            found.setdefault(each.layer, []).append(_measured(each))
    return tuple(
        DepthLine(layer=layer, first=min(each, key=lambda one: one.step), last=max(each, key=lambda one: one.step))
        for layer, each in found.items()
    )


def _measured(each: DepthProfile) -> Measured:
    return Measured(
        step=each.step,
        examples=each.examples,
        entropy=each.entropy,
        entropy_centred=each.entropy_centred,
        told=each.told,
        told_p_value=each.told_p_value,
        chi=each.chi,
        chi_null=each.chi_null,
        p_value=each.p_value,
    )
