"""The entropy profiles of a run's layers, each time they were measured, from the blobs that their entries name."""

from collections.abc import Iterator
from dataclasses import dataclass

from explorer.entries.profiles import Doubles, decode_class, decode_joint
from explorer.entries.run import Profile
from explorer.provenance.layers import ADAPTER
from explorer.recorded.run_ledger import Placed, RunLedger
from explorer.store.spool import ALL

MAX_BYTES = 2**24


@dataclass(frozen=True, kw_only=True, slots=True)
class DepthProfile:
    """What one layer's outputs on the probes looked like once, for one class or for all together ("*")."""

    step: int
    layer: str
    class_: str
    examples: int
    entropy: float  # nats
    effective_rank: float
    renyi2: float
    chi: float | None  # of all classes together; None for single ones
    chi_null: float | None  # its mean over permutations of the labels: what chance alone gives
    p_value: float | None


def depth_profiles(run: RunLedger) -> tuple[DepthProfile, ...]:
    """All profiles, by step, layer and class; what was erased is left out. Raises `LedgerError` for damaged blobs."""
    layers = [name for name in run.genesis.layers if ADAPTER not in name]  # adapters are switched off in a profile
    found: list[DepthProfile] = []
    for placed in run.read(run.outline.profiles, Profile):
        contents = list(_contents(run, placed, len(layers)))
        for at, layer in enumerate(layers):
            for class_, examples, numbers in contents:
                found.append(_profile(placed.entry.step, layer, class_, examples, numbers[at]))
    return tuple(found)


def _contents(run: RunLedger, placed: Placed[Profile], layers: int) -> Iterator[tuple[str, int, Doubles]]:
    """Class, number of its probes, and its numbers, L columns; all classes together come last."""
    for path in run.genesis.classes:
        content = run.blob(placed, f"numbers/{path}", max_bytes=MAX_BYTES)
        if content is not None:
            yield path, *decode_class(content, layers=layers)
    content = run.blob(placed, "joint", max_bytes=MAX_BYTES)
    if content is not None:
        yield ALL, *decode_joint(content, layers=layers)


def _profile(step: int, layer: str, class_: str, examples: int, numbers: Doubles) -> DepthProfile:
    entropy, effective_rank, renyi2, *rest = numbers.tolist()
    chi, chi_null, p_value = rest or (None, None, None)
    return DepthProfile(
        step=step,
        layer=layer,
        class_=class_,
        examples=examples,
        entropy=entropy,
        effective_rank=effective_rank,
        renyi2=renyi2,
        chi=chi,
        chi_null=chi_null,
        p_value=p_value,
    )
