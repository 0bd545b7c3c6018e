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

from explorer.audit.named_blobs import ALL_HERE, Blobs, look_for_blobs
from explorer.audit.profiles import DepthProfile as DepthProfile
from explorer.audit.profiles import depth_profiles as depth_profiles
from explorer.audit.withheld import read_withheld
from explorer.entries.fields import read_float
from explorer.entries.numbers import SKETCH, decode_sketches
from explorer.entries.run import Decision, End
from explorer.ledger.proof import Proof, make_proof
from explorer.ledger.trust_anchor import Anchor, utc
from explorer.ledger.verify import Verification, verify
from explorer.provenance.tag_attestation import VerifiedTags
from explorer.provenance.trust import Trust
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.documents import Basis, Rules, read_basis, read_rules, read_verified_tags
from explorer.runlog.run_ledger import RunLedger


@dataclass(frozen=True, kw_only=True, slots=True)
class Badge:
    """Whether a ledger is sound, in what can be shown beside its name."""

    origin: str
    size: int  # entries
    root: str  # hexadecimal
    steps: int
    outcome: Literal["finished", "stopped", "unfinished"]
    anchored: bool  # somebody's trust file was brought; without one nobody is believed
    signed_by: tuple[str, ...]
    cosigned_by: tuple[str, ...]  # with the time of each
    cosigned_at: tuple[int, ...]  # the times of all cosignatures that count, those of earlier checkpoints too
    findings: tuple[str, ...]  # what is wrong, with the path below the ledger's directory
    blobs: Blobs = ALL_HERE  # that entries name and that are not here

    @property
    def faults(self) -> tuple[str, ...]:
        """The findings, and the blobs that are missing without an erasure on record."""
        more = self.blobs.missing - len(self.blobs.first)
        return (*self.findings, *self.blobs.first, *([f"and {more} more blobs"] if more else []))

    @property
    def verified(self) -> bool:
        """Signed by those whom the caller believes, and nothing contradicts it."""
        return self.anchored and not self.faults


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Vouchers:
    """Who vouches for a run: for its taxonomy (`basis.by`), its policy (`rules.by`) and its tags (`tags.authorities`,
    and in `tags.table.vouchers` who for how many of which class)."""

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
    subjects: tuple[str, ...]  # classes that it is about; none: all
    layers: tuple[str, ...]  # none: all
    evidence: tuple[str, ...]  # classes whose numbers decided: each is a channel to the subjects
    superseded: bool  # undone by a later re-execution


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Directions:
    """Sketches of weighted gradients, added up over whole segments. Cosines of them are good to about 0.13."""

    first: int
    stop: int
    classes: tuple[str, ...]
    layers: tuple[str, ...]
    sketches: NDArray[np.float32]  # C L 64; zeros for a class that has none
    missing: tuple[str, ...]  # classes whose sketches are erased or not here


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One class in one layer over some steps: the entries that stand behind its numbers."""

    layer: str
    class_: str
    steps: tuple[int, int]
    entries: tuple[int, ...]  # the steps in which the class has numbers
    states: tuple[int, ...]  # the entries whose blobs hold them


def badge(run: RunLedger, *, trust: Trust | None, now: int) -> Badge:
    """Verify the whole ledger. Raises `ProvenanceError` for a trust file that can believe no checkpoint."""
    origin = run.ledger.checkpoint().origin
    anchor = Anchor() if trust is None else anchor_of_trust(trust, origin=origin)
    found = verify(run.ledger.path, anchor=anchor, now=now)
    cosigned = found.judgement.cosignatures if found.judgement else ()
    return Badge(
        origin=origin,
        size=found.checkpoint.size,
        root=found.checkpoint.root.hex(),
        steps=run.steps,
        outcome=outcome(run),
        anchored=trust is not None,
        signed_by=tuple(each.name for each in (found.judgement.signed_by if found.judgement else ())),
        cosigned_by=tuple(f"{each.verifier.name} at {utc(each.time)}" for each in cosigned if each.fault is None),
        cosigned_at=_times(found),
        findings=tuple(f"{finding.path}: {finding.message}" for finding in found.findings),
        blobs=look_for_blobs(run.ledger, erasures=read_withheld(run.ledger, trust=trust, now=now)),
    )


def _times(found: Verification) -> tuple[int, ...]:
    """In seconds since 1970, ascending."""
    now = [each.time for each in (found.judgement.cosignatures if found.judgement else ()) if each.fault is None]
    before = [each.time for seen in found.older for each in seen.cosigners if each.time is not None]
    return tuple(sorted({*now, *before}))


def outcome(run: RunLedger) -> Literal["finished", "stopped", "unfinished"]:
    """How the run ended, as its last entry says."""
    if run.outline.end is None:
        return "unfinished"
    (end,) = run.read([run.outline.end], End)
    return end.entry.outcome


def vouchers(run: RunLedger, *, trust: Trust | None = None) -> Vouchers:
    """Who signed what the run was governed by; see `vouched` for what it raises."""
    basis = read_basis(run.run, run.genesis, trust=trust)
    rules, tags = read_rules(run.run, run.genesis, basis), read_verified_tags(run.run, run.genesis, basis)
    return Vouchers(basis=basis, rules=rules, tags=tags)


def decisions(run: RunLedger) -> tuple[Decided, ...]:
    """All decisions, in the order in which they were taken."""
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
    """The directions in which the classes pulled, over the whole segments that have one of these steps."""
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
    """The entries behind a number of a class in a layer. Raises `LedgerError` for names that the run does not have."""
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


def proofs(run: RunLedger, found: Cell) -> Iterator[Proof]:
    """A proof of each of its entries, steps first. Raises `LedgerError` for a ledger that is damaged."""
    return (make_proof(run.ledger, index) for index in (*found.entries, *found.states))
