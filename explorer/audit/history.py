"""The history of a governed run, as plain values for views and reports: no torch, no pandas, nothing to draw.

    run = RunLedger(directory)                      opens it
    badge(run, trust=..., now=...)                  is the ledger sound, and who signed it
    vouchers(run, trust=...)                        who vouches for taxonomy, policy and tags
    depth_profiles(run)                             entropy and chi of the layers, each time they were measured
    decisions(run)                                  what the run decided, by step
    directions(run, steps)                          the sketches of the classes' gradients, added up
    cell(run, layer=..., class_=..., steps=...)     the entries behind one number, and a proof of each

The shares of the classes in the layers, over some steps or over time, are in `explorer.audit.shares`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from explorer.audit.badges import verify_ledger
from explorer.audit.named_blobs import ALL_HERE, Blobs, look_for_blobs
from explorer.audit.withheld import read_withheld
from explorer.entries.entropy_profile import (
    Doubles,
    Told,
    counts_of,
    decode_class,
    decode_joint,
    shown_class,
    shown_joint,
)
from explorer.entries.fields import read_float
from explorer.entries.kinds import Decision, End, Profile
from explorer.entries.numbers import SKETCH, decode_sketches
from explorer.errors import LedgerError
from explorer.ledger.proof import Proof, make_proof
from explorer.provenance.regions import ADAPTER
from explorer.provenance.tag_attestation import VerifiedTags
from explorer.provenance.trust import Trust
from explorer.runlog.documents import Basis, Rules, read_basis, read_rules, read_verified_tags
from explorer.runlog.run_ledger import Placed, RunLedger
from explorer.store.spool_reader import ALL


@dataclass(frozen=True, kw_only=True, slots=True)
class Badge:
    """Outcome of verifying a run's ledger."""

    origin: str
    size: int  # entries
    root: str  # hexadecimal
    steps: int
    outcome: Literal["finished", "stopped", "unfinished"]
    anchored: bool  # the caller gave a trust file; without one no signer is believed
    signed_by: tuple[str, ...]
    cosigned_by: tuple[str, ...]  # with their times
    cosigned_at: tuple[int, ...]  # times of all cosignatures that count, of earlier checkpoints too
    findings: tuple[str, ...]  # faults, with the path below the ledger's directory
    blobs: Blobs = ALL_HERE  # missing blobs that entries name

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the findings, and the blobs that are missing without an erasure on record."""
        more = self.blobs.missing - len(self.blobs.first)
        return (*self.findings, *self.blobs.first, *([f"and {more} more blobs"] if more else []))

    @property
    def verified(self) -> bool:
        """Return whether signers that the caller believes have signed it and nothing contradicts it."""
        return self.anchored and not self.faults


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Vouchers:
    """The authorities that vouch for a run: for its taxonomy (`basis.by`), its policy (`rules.by`) and its tags
    (`tags.authorities`; `tags.table.vouchers` has their counts by class)."""

    basis: Basis
    rules: Rules | None  # None: the run routes nothing
    tags: VerifiedTags


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """A decision on the timeline."""

    index: int  # of its entry
    step: int
    action: str
    rule: str
    parameters: dict[str, float]
    subjects: tuple[str, ...]  # classes that it is about; empty: all
    layers: tuple[str, ...]  # empty: all
    evidence: tuple[str, ...]  # classes whose numbers decided: channels from these to the subjects
    superseded: bool  # undone by a later re-execution


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Directions:
    """Sketches of weighted gradients, summed over whole segments. Their cosines have an error of about 0.13."""

    first: int
    stop: int
    classes: tuple[str, ...]
    layers: tuple[str, ...]
    sketches: NDArray[np.float32]  # C L 64; zeros for a class that has none
    missing: tuple[str, ...]  # classes whose sketches are erased or missing


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """The entries behind the numbers of one class in one layer over some steps."""

    layer: str
    class_: str
    steps: tuple[int, int]
    entries: tuple[int, ...]  # the steps in which the class has numbers
    states: tuple[int, ...]  # the entries whose blobs hold them


def badge(run: RunLedger, *, trust: Trust | None, now: int) -> Badge:
    """Verify the whole ledger of a run. Raises `ProvenanceError` for a trust file that refuses every checkpoint."""
    origin = run.ledger.checkpoint().origin
    verification, fields = verify_ledger(run.ledger.path, trust=trust, now=now)
    # Times count from the present checkpoint and from earlier ones that witnesses kept.
    cosignatures = verification.judgement.cosignatures if verification.judgement else ()
    times = {signature.time for signature in cosignatures if signature.fault is None}
    times |= {signer.time for seen in verification.older for signer in seen.cosigners if signer.time is not None}
    return Badge(
        origin=origin,
        steps=run.steps,
        outcome=outcome(run),
        cosigned_at=tuple(sorted(times)),
        blobs=look_for_blobs(run.ledger, erasures=read_withheld(run.ledger, trust=trust, now=now)),
        **fields,
    )


def outcome(run: RunLedger) -> Literal["finished", "stopped", "unfinished"]:
    """Return how the run ended, by its last entry."""
    if run.outline.end is None:
        return "unfinished"
    (end,) = run.read([run.outline.end], End)
    return end.entry.outcome


def vouchers(run: RunLedger, *, trust: Trust | None = None) -> Vouchers:
    """Read the signed documents of the run with their signers. Raises the errors of `read_basis`."""
    basis = read_basis(run.run, run.genesis, trust=trust)
    rules, tags = read_rules(run.run, run.genesis, basis), read_verified_tags(run.run, run.genesis, basis)
    return Vouchers(basis=basis, rules=rules, tags=tags)


def decisions(run: RunLedger) -> tuple[Decided, ...]:
    """Return all decisions, in the order in which they were taken."""
    return tuple(
        Decided(
            index=placed.index,
            step=placed.entry.step,
            action=placed.entry.action,
            rule=placed.entry.rule,
            parameters={name: read_float(text) for name, text in placed.entry.parameters.items()},
            subjects=placed.entry.subjects,
            layers=placed.entry.layers,
            evidence=tuple(sorted(placed.entry.evidence)),
            superseded=placed.index in run.outline.superseded,
        )
        for placed in run.read(run.outline.decisions, Decision)
    )


def directions(run: RunLedger, steps: range | None = None) -> Directions:
    """Return the directions of the classes' gradients, over the whole segments that have one of these steps."""
    # Sketches are linear, so those of segments add up; there is no finer part than a segment.
    classes, layers = run.genesis.classes, run.genesis.layers
    total, missing = np.zeros((len(classes), len(layers), SKETCH), np.float32), set[str]()
    segments = list(run.segments(steps))
    for segment in segments:
        for index, path in enumerate(classes):
            name = f"sketches/{path}"
            content = run.blob(segment.state, name, max_bytes=4 * SKETCH * len(layers))
            if content is not None:
                total[index] += decode_sketches(content, layers=len(layers))
            elif name in segment.state.entry.blobs:
                missing.add(path)
    return Directions(
        first=segments[0].first if segments else 0,
        stop=segments[-1].stop if segments else 0,
        classes=classes,
        layers=layers,
        sketches=total,
        missing=tuple(sorted(missing)),
    )


def cell(run: RunLedger, *, layer: str, class_: str, steps: range) -> Cell:
    """Return the entries behind a number of a class in a layer. Raises `LedgerError` for names that the run does not
    have."""
    run.layer(layer)
    index = run.class_(class_)
    entries = [placed.index for placed in run.read_steps(steps) if placed.entry.numbers[index] is not None]
    return Cell(
        layer=layer,
        class_=class_,
        steps=(steps.start, steps.stop),
        entries=tuple(entries),
        states=tuple(segment.state.index for segment in run.segments(steps)),
    )


def proofs(run: RunLedger, cell: Cell) -> Iterator[Proof]:
    """Yield an inclusion proof of each entry of a cell, steps first. Raises `LedgerError` for a damaged ledger."""
    return (make_proof(run.ledger, index) for index in (*cell.entries, *cell.states))


# --- depth profiles ---

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
    chi_null: float | None  # its mean over permutations of the labels: the value by chance
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
        """Return how well a linear rule separates the classes in this layer; None where it was not measured."""
        if self.told_apart is None or self.told_low is None or self.told_high is None or self.told_chance is None:
            return None
        return Told(accuracy=self.told_apart, low=self.told_low, high=self.told_high, chance=self.told_chance)


def depth_profiles(run: RunLedger) -> tuple[DepthProfile, ...]:
    """Return all profiles, by step, layer and class, without erased ones. Raises `LedgerError` for damaged blobs."""
    layers = [name for name in run.genesis.layers if ADAPTER not in name]  # adapters are switched off in a profile
    profiles: list[DepthProfile] = []
    for placed in run.read(run.outline.profiles, Profile):
        contents, joint = _classes(run, placed, len(layers)), _joint(run, placed, len(layers))
        for at, layer in enumerate(layers):
            for place, (class_, examples, numbers) in enumerate(contents):
                # The probe's counts are by place among the classes with a profile; an erased one shifts the places.
                whole = joint is not None and len(contents) == len(placed.entry.classes)
                shown = shown_class(numbers[at], joint[1][at] if joint and whole else None, place)
                profiles.append(_profile(placed.entry.step, layer, class_, examples, shown))
            if joint is not None:
                profiles.append(_profile(placed.entry.step, layer, ALL, joint[0], shown_joint(joint[1][at])))
    return tuple(profiles)


def profile_faults(run: RunLedger) -> Iterator[tuple[int, str]]:
    """Yield entry and fault of every profile whose numbers cannot be those of its probes: a content that cannot be
    read, or a linear probe that was tested on other examples than the classes have. Missing numbers are skipped."""
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
                    actual = joint[0] if counts is None else counts.sum(1).tolist()
                    words = f"profile, layer {at}: found {actual} probes over all classes, expected {expected}"
                    yield placed.index, words
                    break  # all layers have the same probes: one fault is enough
        except LedgerError as error:
            yield placed.index, f"profile: {error}"


def _classes(run: RunLedger, placed: Placed[Profile], layers: int) -> list[tuple[str, int, Doubles]]:
    """Return each class that can be read, with the number of its probes and its numbers, L columns."""
    classes: list[tuple[str, int, Doubles]] = []
    for path in run.genesis.classes:
        content = run.blob(placed, f"numbers/{path}", max_bytes=MAX_BYTES)
        if content is not None:
            classes.append((path, *decode_class(content, layers=layers)))
    return classes


def _joint(run: RunLedger, placed: Placed[Profile], layers: int) -> tuple[int, Doubles] | None:
    """Return the number of all probes, and the numbers over all classes; None where they are missing."""
    content = run.blob(placed, "joint", max_bytes=MAX_BYTES)
    return None if content is None else decode_joint(content, layers=layers)


def _profile(step: int, layer: str, class_: str, examples: int, shown: dict[str, float | None]) -> DepthProfile:
    return DepthProfile(step=step, layer=layer, class_=class_, examples=examples, **shown)  # pyright: ignore
