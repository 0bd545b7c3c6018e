"""The entropy profiles of a run's layers, each time they were measured, from the blobs that their entries name."""

from collections.abc import Iterator
from dataclasses import dataclass

from explorer.entries.profiles import Doubles, counts_of, decode_class, decode_joint, shown_class, shown_joint
from explorer.entries.run import Profile
from explorer.entries.told_apart import Told
from explorer.errors import LedgerError
from explorer.provenance.regions import ADAPTER
from explorer.runlog.run_ledger import Placed, RunLedger
from explorer.store.spool import ALL

MAX_BYTES = 2**24


@dataclass(frozen=True, kw_only=True, slots=True)
class DepthProfile:
    """What one layer's outputs on the probes looked like once, for one class or for all together ("*")."""

    step: int
    layer: str
    class_: str
    examples: int
    entropy: float  # nats, like the next two of the outputs as they are, not less their mean
    effective_rank: float
    renyi2: float
    chi: float | None  # of all classes together; None for single ones
    chi_null: float | None  # its mean over permutations of the labels: what chance alone gives
    p_value: float | None  # of chi
    entropy_centred: float | None = None  # nats, like the next two of the outputs less their mean
    effective_rank_centred: float | None = None  # None, like all that follows: a record of earlier versions
    renyi2_centred: float | None = None
    told_apart: float | None = None  # balanced accuracy of the linear probe; of one class against the others
    told_low: float | None = None  # its 95% interval
    told_high: float | None = None
    told_chance: float | None = None  # what guessing gives
    told_p_value: float | None = None  # of all classes together

    @property
    def told(self) -> Told | None:
        """How far a linear rule tells the classes apart in this layer; None where it was not measured."""
        if self.told_apart is None or self.told_low is None or self.told_high is None or self.told_chance is None:
            return None
        return Told(accuracy=self.told_apart, low=self.told_low, high=self.told_high, chance=self.told_chance)


def depth_profiles(run: RunLedger) -> tuple[DepthProfile, ...]:
    """All profiles, by step, layer and class; what was erased is left out. Raises `LedgerError` for damaged blobs."""
    layers = [name for name in run.genesis.layers if ADAPTER not in name]  # adapters are switched off in a profile
    found: list[DepthProfile] = []
    for placed in run.read(run.outline.profiles, Profile):
        contents, joint = _classes(run, placed, len(layers)), _joint(run, placed, len(layers))
        for at, layer in enumerate(layers):
            for place, (class_, examples, numbers) in enumerate(contents):
                # The probe's counts are of the classes that have a profile; where one is erased the places do not fit.
                whole = joint is not None and len(contents) == len(placed.entry.classes)
                shown = shown_class(numbers[at], joint[1][at] if joint and whole else None, place)
                found.append(_profile(placed.entry.step, layer, class_, examples, shown))
            if joint is not None:
                found.append(_profile(placed.entry.step, layer, ALL, joint[0], shown_joint(joint[1][at])))
    return tuple(found)


def faults(run: RunLedger) -> Iterator[tuple[int, str]]:
    """Entry and fault of every profile whose numbers cannot be those of its probes: a content that cannot be read, or a
    linear probe that was tested on other examples than the classes have. What is not here is not looked at."""
    layers = sum(ADAPTER not in name for name in run.genesis.layers)
    for placed in run.read(sorted((*run.outline.profiles, *run.outline.past_profiles)), Profile):
        try:
            contents, joint = _classes(run, placed, layers), _joint(run, placed, layers)
            expected = [examples for _, examples, _ in contents]
            if joint is None or len(contents) != len(placed.entry.classes):
                continue
            for at, row in enumerate(joint[1]):
                counts = counts_of(row)
                if joint[0] != sum(expected) or (counts is not None and counts.sum(1).tolist() != expected):
                    found = joint[0] if counts is None else counts.sum(1).tolist()
                    yield (
                        placed.index,
                        f"profile, layer {at}: found {found} probes over all classes, expected {expected}",
                    )
                    break
        except LedgerError as error:
            yield placed.index, f"profile: {error}"


def _classes(run: RunLedger, placed: Placed[Profile], layers: int) -> list[tuple[str, int, Doubles]]:
    """Class, number of its probes, and its numbers, L columns."""
    found: list[tuple[str, int, Doubles]] = []
    for path in run.genesis.classes:
        content = run.blob(placed, f"numbers/{path}", max_bytes=MAX_BYTES)
        if content is not None:
            found.append((path, *decode_class(content, layers=layers)))
    return found


def _joint(run: RunLedger, placed: Placed[Profile], layers: int) -> tuple[int, Doubles] | None:
    """The number of all probes, and the numbers of all classes together; None where they are not here."""
    content = run.blob(placed, "joint", max_bytes=MAX_BYTES)
    return None if content is None else decode_joint(content, layers=layers)


def _profile(step: int, layer: str, class_: str, examples: int, shown: dict[str, float | None]) -> DepthProfile:
    return DepthProfile(step=step, layer=layer, class_=class_, examples=examples, **shown)  # pyright: ignore
