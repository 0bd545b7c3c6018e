"""The claims that can be made about a run's model, computed from the run's directory, for its attestation.

The trainer computes them to sign them; a reader with the directory computes them again and compares (`differences`).
Two facts follow from no ledger: which checkpoints are still kept, and whether anything prevents a deletion
(`deletable_here`). So the signed deletability is compared with the level and the least number of steps that the ledger
gives (`deletable_at_best`); to claim less is no lie.

A run that a deletion made has only the steps that were executed again; those before it are in the ledger that its first
entry names. That ledger is looked for among the runs of the same project (`<runs>/<sweep>/<run id>`), verified like any
other, and has to be the very one that is named.

A class counts as having trained a layer in a step if it had examples in the batch, the table in force admitted it to
the layer, and the layer was updated. No numbers are needed for that, so it can be counted where they are sealed or
erased. Shares need all numbers: where a class of the run is confidential, or numbers are missing, there are none.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.audit.contents import examine_contents
from explorer.audit.history import badge
from explorer.audit.withheld import read_withheld
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Genesis, Parent
from explorer.entries.numbers import share_terms
from explorer.errors import LedgerError, ProvenanceError, RunError
from explorer.ledger.rebuild import Findings
from explorer.ledger.trust_anchor import Anchor
from explorer.ledger.verify import Verification, read_witnesses, verify
from explorer.note import Note, with_signatures
from explorer.project import runs_of
from explorer.provenance.deletion_certificate import open_certificate
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.model_attestation import (
    Ancestor,
    ClassClaim,
    Deletable,
    Deleted,
    Facts,
    LayerDepth,
    ModelAttestation,
    Trained,
)
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.regions import recorded_layers, region_of
from explorer.provenance.spellings import LedgerName
from explorer.provenance.trust import Trust
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.documents import read_basis, read_rules
from explorer.runlog.forecast import obstacles, route_of
from explorer.runlog.influence import Presence, Reach, reach_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.segments import read_numbers
from explorer.runlog.target import Target
from explorer.schema import to_json

# --- the ledgers of a run's steps ---

MOST = 100  # deletions in a row


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stretch:
    """The steps of a run that one ledger holds."""

    run: RunLedger
    steps: range


def deletion_of(run: RunLedger) -> Parent | None:
    """Return what a run continues that a deletion made; None: it is a run of its own. Raises `LedgerError` for
    several."""
    found = [parent for parent in run.genesis.parents if parent.kind == "deletion"]
    if len(found) > 1:
        raise LedgerError(f"{run.run}: entry 0: goes on from {len(found)} runs at once")
    if run.begins and not found:
        raise LedgerError(f"{run.run}: entry 0: begins after {run.begins} steps, and names no ledger that holds them")
    return found[0] if found else None


def before(run: RunLedger, *, trust: Trust, now: int) -> tuple[RunLedger, ...]:
    """Return the runs that deletions made it of, the newest first. Raises `LedgerError` for one that is not here, does
    not verify, or is not the one that is named."""
    found: list[RunLedger] = []
    while (parent := deletion_of(found[-1] if found else run)) is not None:
        if len(found) == MOST:
            raise LedgerError(f"{run.run}: more than {MOST} deletions in a row")
        found.append(_open(run, parent.ledger, trust=trust, now=now))
    return tuple(found)


def stretches(run: RunLedger, older: tuple[RunLedger, ...]) -> tuple[Stretch, ...]:
    """Return which ledger holds which steps of the run, the newest first; none of those before it where it begins from
    the start."""
    found, stop = [Stretch(run=run, steps=range(run.begins, run.steps))], run.begins
    for each in older:
        _check_same(run, each)
        if stop > each.steps:
            raise LedgerError(f"{run.run}: takes over {stop} steps of {each.run.name}, which has {each.steps}")
        first = min(each.begins, stop)
        found.append(Stretch(run=each, steps=range(first, stop)))
        stop = first
    return tuple(found)


def _check_same(run: RunLedger, other: RunLedger) -> None:
    for what in ("classes", "layers", "taxonomy", "policy"):
        if getattr(run.genesis, what) != getattr(other.genesis, what):
            raise LedgerError(f"{run.run}: entry 0: other {what} than the run that it goes on from, {other.run}")


def _open(run: RunLedger, named: LedgerState, *, trust: Trust, now: int) -> RunLedger:
    name, runs = named.origin.rpartition("/")[2], runs_of(run.run)
    for place in _places(runs, name):
        other = RunLedger(place)
        seal = badge(other, trust=trust, now=now)
        if (seal.origin, seal.size, seal.root) != (named.origin, named.size, named.root):
            continue
        if not seal.verified:
            raise LedgerError(f"{place}: the run that {run.run.name} goes on from: {seal.findings[0]}")
        return other
    raise LedgerError(
        f"{run.run}: goes on from the ledger {named.origin}, which is not here: expected in {runs}/<sweep>/{name}"
    )


def _places(runs: Path, name: str) -> list[Path]:
    """Return the directories of runs of this name; none for what is not a name."""
    if name in ("", ".", ".."):
        return []
    try:
        return sorted(place / name for place in runs.iterdir() if (place / name / rundir.LEDGER).is_dir())
    except OSError as error:
        raise RunError(f"cannot read {runs}: {error.strerror or error}") from error


# --- who trained what ---

DIGITS = 6  # of a share: what is beyond them may differ between machines


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Contributions:
    """Sums over all steps of a run. C classes and L layers of the genesis."""

    batches: NDArray[np.int64]  # C: examples that stood in batches
    steps: NDArray[np.int64]  # C L: in which the class trained the layer
    examples: NDArray[np.int64]  # C L: of it, in these steps
    shares: NDArray[np.float64] | None  # C L: of the layer's summed gradient; NaN where it had none


def contributions(stretches: Sequence[Stretch], *, policy: RoutingPolicy) -> Contributions:
    """Count over all stretches of a run, the newest first.

    Classes that it leaves out have no examples. That they have no numbers since they are left out, and that before
    they trained nothing that was kept, is compared with the ledgers. Raises `LedgerError` where it is not so, and for a
    ledger that is damaged.
    """
    newest = Presence(stretches[0].run)
    classes, layers = newest.run.genesis.classes, newest.run.genesis.layers
    absent = [newest.run.class_(path) for path in newest.absent.classes if path in classes]
    _check_gone(stretches[0], absent)
    batches = np.zeros(len(classes), np.int64)
    steps, examples = np.zeros((2, len(classes), len(layers)), np.int64)
    for stretch in stretches:
        presence = newest if stretch.run is newest.run else Presence(stretch.run)
        counts = _counts(stretch, presence)
        moved, of_them = _trained(stretch, presence, counts)
        _check_absent(stretch, moved[absent], absent, policy)
        counts[:, absent], moved[absent], of_them[absent] = 0, 0, 0
        batches += counts.sum(axis=0)
        steps += moved
        examples += of_them
    shares = None if any(map(policy.is_confidential, classes)) else _shares(stretches)
    return Contributions(batches=batches, steps=steps, examples=examples, shares=shares)


def _counts(stretch: Stretch, presence: Presence) -> NDArray[np.int64]:
    """Examples of each class in each step, S C; none of what the run leaves out by its own recipe."""
    first = stretch.steps.start - stretch.run.begins
    return presence.examples[first : first + len(stretch.steps)].astype(np.int64)


def _trained(
    stretch: Stretch, presence: Presence, counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return steps in which each class trained each layer, and its examples in them, C L."""
    steps, examples = np.zeros((2, counts.shape[1], presence.updated.shape[1]), np.int64)
    covered, begins = 0, stretch.run.begins
    for each in presence.stretches:
        first = max(each.places.start + begins, stretch.steps.start)
        stop = max(first, min(each.places.stop + begins, stretch.steps.stop))
        here = counts[first - stretch.steps.start : stop - stretch.steps.start]
        updated = presence.updated[first - begins : stop - begins].astype(np.int64)
        steps += each.admitted * ((here > 0).astype(np.int64).T @ updated)
        examples += each.admitted * (here.T @ updated)
        covered += stop - first
    if covered != len(stretch.steps):
        raise LedgerError(f"{stretch.run.run}: {len(stretch.steps) - covered} steps without a table of weights")
    return steps, examples


def _check_gone(stretch: Stretch, absent: list[int]) -> None:
    """A class whose places were empty has left no numbers."""
    for placed in stretch.run.read_steps(stretch.steps) if absent else ():
        for index in absent:
            if placed.entry.numbers[index] is not None:
                path = stretch.run.genesis.classes[index]
                raise LedgerError(f"{stretch.run.run}: entry {placed.index}: {path} is left out, and has numbers")


def _check_absent(stretch: Stretch, moved: NDArray[np.int64], absent: list[int], policy: RoutingPolicy) -> None:
    """A class that was left out later trained, before that, at most its own region."""
    genesis = stretch.run.genesis
    for index, row in zip(absent, moved, strict=True):
        for at in np.flatnonzero(row):
            if region_of(policy.sealed, genesis.layers[at]) is None:
                cell = f"{genesis.classes[index]} trained {genesis.layers[at]} in {row[at]} steps"
                raise LedgerError(f"{stretch.run.run}: {cell} that were taken over, and is called deleted")


def _shares(stretches: Iterable[Stretch]) -> NDArray[np.float64] | None:
    """Numerators and denominators are added, and divided last. None where numbers are not here."""
    total, whole = 0.0, 0.0
    for stretch in stretches:
        run = stretch.run
        for segment in run.segments(stretch.steps):
            found = read_numbers(run, segment)
            if found.missing:
                return None
            for placed, numbers in found.by_step():
                if placed.entry.step in stretch.steps:
                    terms = np.zeros((len(run.genesis.classes), len(run.genesis.layers)))
                    terms[list(numbers.classes)], all_of_it = share_terms(numbers.gram)
                    total, whole = total + terms, whole + all_of_it
    with np.errstate(divide="ignore", invalid="ignore"):
        return None if isinstance(total, float) else np.round(total / whole, DIGITS)


# --- the claims ---

CERTIFICATE = "certificate.json"


Deletability = Callable[[Presence, Reach], Deletable]


def claims(
    run: RunLedger, *, trust: Trust, now: int, issued: str, expires: str, deletability: Deletability
) -> ModelAttestation:
    """Return all that is said of a run's model.

    Raises `LedgerError` for a run that is unfinished or whose ledger does not verify, a quorum that is not met
    included, and `ProvenanceError` for documents that are not believed and for a run without a policy.
    """
    if run.outline.end is None:
        raise ProvenanceError(f"{run.run}: unfinished: its ledger has no end, so that nobody knows what came out")
    checkpoint, genesis = signed_checkpoint(run, trust=trust, now=now), run.genesis
    basis = read_basis(run.run, genesis, trust=trust)
    rules = read_rules(run.run, genesis, basis)
    if rules is None:
        raise ProvenanceError(f"{run.run}: has no policy: which class trained what cannot be told")
    older = before(run, trust=trust, now=now)
    for each in (run, *older):
        _check_entries(each, trust=trust, now=now)
    policy = rules.routing.policy
    found = contributions(stretches(run, older), policy=policy)
    return ModelAttestation(
        run=genesis.run,
        ledger=_ledger(run),
        checkpoint=checkpoint.content.decode(),
        facts=_facts(genesis),
        steps=run.steps,
        layers=layer_depths(genesis.layers),
        classes=tuple(_classes(run, policy, found, deletability)),
        deletions=tuple(_deletions([run, *older], trust=trust, now=now)),
        parents=tuple(
            Ancestor(
                kind=parent.kind,
                ledger=LedgerName(origin=parent.ledger.origin, size=parent.ledger.size, root=parent.ledger.root),
                model=parent.model,
                attestation=parent.attestation,
                admitted={path: float.fromhex(weight) for path, weight in parent.admitted.items()},
            )
            for parent in genesis.parents
        ),
        issued=issued,
        expires=expires,
    )


def signed_checkpoint(run: RunLedger, *, trust: Trust, now: int) -> Note:
    """Return the run's checkpoint with the cosignatures of those whom the trust file knows, once the whole ledger
    verifies.

    Raises `LedgerError` with what does not hold; where cosignatures are missing, with how they come about.
    """
    directory, origin = run.ledger.path, run.ledger.checkpoint().origin
    anchor = anchor_of_trust(trust, origin=origin)
    found = verify(directory, anchor=anchor, now=now)
    if not found.ok:
        raise LedgerError(f"{directory}: {_fault(found, directory)}")
    seen, _ = read_witnesses(directory, anchor=anchor, origin=origin, findings=Findings())
    known = _cosigners(anchor)
    added = [
        signature
        for each in seen
        if each.note.text == found.note.text
        for signature in each.note.signatures
        if (signature.name, signature.key_id) in known
    ]
    return with_signatures(found.note, added)


def layer_depths(names: tuple[str, ...]) -> tuple[LayerDepth, ...]:
    """Return the layers of a run with their depths. Raises `LedgerError` for the adapter of a layer that is not
    there."""
    try:
        found = recorded_layers(names, {})
    except ProvenanceError as error:
        raise LedgerError(f"entry 0: {error}") from error
    return tuple(LayerDepth(name=layer.name, depth=layer.depth) for layer in found)


def _check_entries(run: RunLedger, *, trust: Trust, now: int) -> None:
    """Raise `LedgerError` for entries that cannot stand where they do, for any whose meaning is not known here, and for
    blobs that are missing without an erasure on record."""
    found = examine_contents(run.ledger, erasures=read_withheld(run.ledger, trust=trust, now=now))
    if found.order is None:
        raise LedgerError(f"{run.ledger.path}: {found.fault or 'its entries are not those of a run'}")
    if found.order.unknown:
        what = f"{found.order.unknown} entries of kinds or versions that are not known here"
        raise LedgerError(f"{run.ledger.path}: {what}: what they did cannot be told")
    if found.blobs.missing:
        raise LedgerError(f"{run.ledger.path}: {found.blobs.missing} blobs, the first {found.blobs.first[0]}")


def _ledger(run: RunLedger) -> LedgerName:
    checkpoint = run.ledger.checkpoint()
    return LedgerName(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex())


def _facts(genesis: Genesis) -> Facts:
    assert genesis.taxonomy is not None and genesis.policy is not None and genesis.trust is not None
    return Facts(
        recipe=genesis.recipe,
        code=genesis.code,
        environment=genesis.environment,
        data=genesis.data,
        tags={name: sources.root for name, sources in genesis.tags.items()},
        taxonomy=genesis.taxonomy,
        policy=genesis.policy,
        trust=genesis.trust,
        judged=genesis.judged or 0,
    )


def deletable_here(presence: Presence, reached: Reach) -> Deletable:
    """Return what a deletion takes in this directory, as `explorer delete plan` says it."""
    route = route_of(presence.run, reached)
    level = None if obstacles(presence, reached, level=route.level) else route.level
    return Deletable(level=level, steps=route.steps)


def deletable_at_best(presence: Presence, reached: Reach) -> Deletable:
    """Return what a deletion takes where every state was kept and nothing is in its way."""
    if reached.structural:
        return Deletable(level="G2", steps=0)
    return Deletable(level="G3", steps=presence.run.steps - (reached.first or 0))


def _classes(
    run: RunLedger, policy: RoutingPolicy, found: Contributions, deletability: Deletability
) -> Iterator[ClassClaim]:
    presence, names = Presence(run), run.genesis.layers
    for index, path in enumerate(run.genesis.classes):
        yield ClassClaim(
            path=path,
            confidential=policy.is_confidential(path),
            examples=int(found.batches[index]),
            trained=tuple(
                Trained(
                    layer=name,
                    steps=int(found.steps[index, at]),
                    examples=int(found.examples[index, at]),
                    share=_share(found, index, at),
                )
                for at, name in enumerate(names)
                if found.steps[index, at]
            ),
            deletable=deletability(presence, reach_of(presence, Target(classes=(path,)))),
        )


def _share(found: Contributions, index: int, layer: int) -> float | None:
    share = None if found.shares is None else float(found.shares[index, layer])
    return share if share is not None and math.isfinite(share) else None


def _deletions(runs: list[RunLedger], *, trust: Trust, now: int) -> Iterator[Deleted]:
    """Yield the deletions that made this run, the newest first; each run has the certificate of its own."""
    for run in runs:
        if (parent := deletion_of(run)) is None:
            continue
        path = run.run / CERTIFICATE
        content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
        opened = open_certificate(content, trust=trust, now=now, where=str(path))
        value, old = opened.value, parent.ledger
        if value.new.ledger != _ledger(run) or to_json(value.old.ledger) != to_json(old):
            raise ProvenanceError(f"{path}: the certificate of another deletion than the one that made this run")
        target = value.target
        yield Deleted(
            certificate=opened.digest,
            level=value.level,
            ledger=value.old.ledger,
            classes=target.classes,
            authorities=target.authorities,
            records=0 if target.records is None else target.records.number,
        )


def _cosigners(anchor: Anchor) -> set[tuple[str, bytes]]:
    return {(each.key.verifier.name, each.key.verifier.key_id) for each in anchor.witnesses}


def _fault(found: Verification, directory: object) -> str:
    first = found.findings[0]
    words = f"{first.path}: {first.message}"
    if "the quorum is not met" in first.message:
        words += f"; those who are missing: explorer ledger cosign {directory} --key KEY --trust TRUST, then attest"
    return words


# --- differences from what was signed ---


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
    """Return what is signed of a note, without its signatures."""
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
    """Return why a claim about deletability says more than the ledger gives."""
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
