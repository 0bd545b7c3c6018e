"""What a signed attestation says otherwise than the run's ledger does, claim by claim, in words."""

from collections.abc import Iterator
from typing import Any

from explorer.provenance.model_attestation import Deletable, ModelAttestation
from explorer.release.contributions import DIGITS
from explorer.schema import to_json


def differences(signed: ModelAttestation, computed: ModelAttestation) -> Iterator[str]:
    """In words, what of the signed claims is not what was computed. Of the checkpoint its text alone is compared: more
    of those who may cosign have done so since, perhaps."""
    ours, theirs = to_json(computed), to_json(signed)
    for name in ours:
        if name == "checkpoint":
            ours[name], theirs[name] = (_text(value[name]) for value in (ours, theirs))
        if name == "classes":
            yield from _class_differences(signed, computed)
        elif ours[name] != theirs[name]:
            yield from _differences(name, theirs[name], ours[name])


def _text(checkpoint: str) -> str:
    """What is signed of a note, without its signatures."""
    return checkpoint.rpartition("\n\n")[0]


def _class_differences(signed: ModelAttestation, computed: ModelAttestation) -> Iterator[str]:
    theirs, ours = [each.path for each in signed.classes], [each.path for each in computed.classes]
    if theirs != ours:
        yield f"classes: signed {theirs}, computed {ours}"
        return
    for their, our in zip(signed.classes, computed.classes, strict=True):
        yield from _differences(f"classes.{our.path}", _plain(to_json(their)), _plain(to_json(our)))
        if fault := _too_much(their.deletable, our.deletable):
            yield f"classes.{our.path}.deletable: {fault}"


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name != "deletable"}


def _too_much(signed: Deletable, computed: Deletable) -> str | None:
    """Why a claim about deletability says more than the ledger gives."""
    if signed.level is not None and signed.level != computed.level:
        return f"signed {signed.level}, computed {computed.level or 'nothing exact'}"
    if signed.level == "G3" and signed.steps < computed.steps:
        return f"signed {signed.steps} steps to replay, computed at least {computed.steps}"
    return None


def _differences(where: str, signed: Any, computed: Any) -> Iterator[str]:
    """Values that differ, by their place; shares that agree but for the last digit do not."""
    if isinstance(signed, dict) and isinstance(computed, dict) and signed.keys() == computed.keys():
        for name in computed:
            yield from _differences(f"{where}.{name}", signed[name], computed[name])
    elif isinstance(signed, list) and isinstance(computed, list) and len(signed) == len(computed):
        for index, (one, other) in enumerate(zip(signed, computed, strict=True)):
            yield from _differences(f"{where}[{index}]", one, other)
    elif where.endswith(".share") and isinstance(signed, float) and isinstance(computed, float):
        if not abs(signed - computed) < 2 * 10.0**-DIGITS:
            yield f"{where}: signed {signed}, computed {computed}"
    elif where.endswith(".share") and isinstance(signed, float) and computed is None:
        yield f"{where}: signed {signed}, and cannot be told from the ledger: numbers are sealed, or were erased since"
    elif signed != computed:
        yield f"{where}: signed {signed!r:.200}, computed {computed!r:.200}"
