"""The claims of a model's attestation, computed from the directory of its run.

The trainer computes them to sign them; a reader with the directory computes them again and compares (`differences`).
Two facts follow from no ledger: which checkpoints are still kept, and whether anything prevents a deletion
(`deletable_here`). So the signed deletability is compared with the level and the least number of steps that the ledger
gives (`deletable_at_best`); claiming less is allowed.

A run that a deletion made has only the steps that were executed again; the steps before them are in the ledger that its
first entry names. That ledger is searched for among the runs of the same project (`<runs>/<sweep>/<run id>`), verified
like any other, and has to be in the very state that is named.

A class counts as having trained a layer in a step if it had examples in the batch, the table in force admitted it to
the layer, and the layer was updated. No numbers are needed for that, so it can be counted where they are sealed or
erased. Shares need all numbers: where a class of the run is confidential, or numbers are missing, there are none.
"""

import math
import shlex
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
from explorer.runlog.anchor import anchor_of_ledger
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
    """Return the parent from which a deletion made this run; None: no deletion made it.

    Raises `LedgerError` for several, and for a run that begins after a step and names none.
    """
    parents = [parent for parent in run.genesis.parents if parent.kind == "deletion"]
    if len(parents) > 1:
        raise LedgerError(f"{run.run}: entry 0: continues {len(parents)} runs at once; expected at most one")
    if run.begins and not parents:
        raise LedgerError(f"{run.run}: entry 0: begins after {run.begins} steps, and names no ledger that holds them")
    return parents[0] if parents else None


def before(run: RunLedger, *, trust: Trust, now: int) -> tuple[RunLedger, ...]:
    """Return the runs from which deletions made this one, the newest first.

    Raises `LedgerError` for one that is not here, does not verify, or is not in the state that is named.
    """
    older: list[RunLedger] = []
    while (parent := deletion_of(older[-1] if older else run)) is not None:
        if len(older) == MOST:
            raise LedgerError(f"{run.run}: more than {MOST} deletions in a row")
        older.append(_open(run, parent.ledger, trust=trust, now=now))
    return tuple(older)


def stretches(run: RunLedger, older: tuple[RunLedger, ...]) -> tuple[Stretch, ...]:
    """Return the steps of a run that each ledger holds, the newest ledger first.

    A run that a deletion repeated from the start takes over no steps: its older ledgers have empty stretches.
    """
    spans, stop = [Stretch(run=run, steps=range(run.begins, run.steps))], run.begins
    for other in older:
        _check_same(run, other)
        if stop > other.steps:
            raise LedgerError(f"{run.run}: takes over {stop} steps of {other.run.name}, which has {other.steps}")
        first = min(other.begins, stop)
        spans.append(Stretch(run=other, steps=range(first, stop)))
        stop = first
    return tuple(spans)


def _check_same(run: RunLedger, other: RunLedger) -> None:
    for what in ("classes", "layers", "taxonomy", "policy"):
        if getattr(run.genesis, what) != getattr(other.genesis, what):
            raise LedgerError(f"{run.run}: entry 0: the {what} differ from those of the run it continues, {other.run}")


def _open(run: RunLedger, named: LedgerState, *, trust: Trust, now: int) -> RunLedger:
    name, runs = named.origin.rpartition("/")[2], runs_of(run.run)
    for place in _places(runs, name):
        other = RunLedger(place)
        seal = badge(other, trust=trust, now=now)
        if (seal.origin, seal.size, seal.root) != (named.origin, named.size, named.root):
            continue
        if not seal.verified:
            raise LedgerError(f"{place}: the run that {run.run.name} continues: {seal.findings[0]}")
        return other
    raise LedgerError(
        f"{run.run}: continues the ledger {named.origin}, which is not here: expected in {runs}/<sweep>/{name}"
    )


def _places(runs: Path, name: str) -> list[Path]:
    """Return the directories of runs of this name."""
    # The name comes from a ledger, so from a stranger: it must not lead out of the directory of runs.
    if name in ("", ".", ".."):
        return []
    try:
        return sorted(place / name for place in runs.iterdir() if (place / name / rundir.LEDGER).is_dir())
    except OSError as error:
        raise RunError(f"cannot read {runs}: {error.strerror or error}") from error


# --- who trained what ---

DIGITS = 6  # of a share: further digits may differ between machines, as sums are rounded in another order


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Contributions:
    """Sums over all steps of a run. C classes and L layers of the genesis."""

    batches: NDArray[np.int64]  # C: examples in batches, denied ones included
    steps: NDArray[np.int64]  # C L: steps in which the class trained the layer
    examples: NDArray[np.int64]  # C L: its examples in these steps
    shares: NDArray[np.float64] | None  # C L: of the layer's summed gradient; NaN where it had none


def contributions(stretches: Sequence[Stretch], *, policy: RoutingPolicy) -> Contributions:
    """Count over all stretches of a run, the newest first.

    Classes that the run leaves out count as having no examples. The ledgers have to bear that out: no numbers since
    they are left out, and before that no training of anything that was kept. Raises `LedgerError` where they do not,
    and for a damaged ledger.
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
        # The check comes first: it needs the rows that are then set to 0.
        _check_absent(stretch, moved[absent], absent, policy)
        counts[:, absent], moved[absent], of_them[absent] = 0, 0, 0
        batches += counts.sum(axis=0)
        steps += moved
        examples += of_them
    # One confidential class withholds the shares of all: its own would follow from the others, as shares add up to 1.
    shares = None if any(map(policy.is_confidential, classes)) else _shares(stretches)
    return Contributions(batches=batches, steps=steps, examples=examples, shares=shares)


def _counts(stretch: Stretch, presence: Presence) -> NDArray[np.int64]:
    """Return the examples of each class in each step, S C; none of classes that the run's own recipe leaves out."""
    first = stretch.steps.start - stretch.run.begins
    return presence.examples[first : first + len(stretch.steps)].astype(np.int64)


def _trained(
    stretch: Stretch, presence: Presence, counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the steps in which each class trained each layer, and its examples in them, both C L."""
    steps, examples = np.zeros((2, counts.shape[1], presence.updated.shape[1]), np.int64)
    covered, begins = 0, stretch.run.begins
    # One table of weights is in force in each part of a run. Within a part, a product of matrices counts the steps
    # in which a class had examples and a layer was updated; the table then drops the layers that denied the class.
    for part in presence.stretches:
        first = max(part.places.start + begins, stretch.steps.start)
        stop = max(first, min(part.places.stop + begins, stretch.steps.stop))
        here = counts[first - stretch.steps.start : stop - stretch.steps.start]
        updated = presence.updated[first - begins : stop - begins].astype(np.int64)
        steps += part.admitted * ((here > 0).astype(np.int64).T @ updated)
        examples += part.admitted * (here.T @ updated)
        covered += stop - first
    if covered != len(stretch.steps):
        raise LedgerError(f"{stretch.run.run}: {len(stretch.steps) - covered} steps without a table of weights")
    return steps, examples


def _check_gone(stretch: Stretch, absent: list[int]) -> None:
    """Raise `LedgerError` for a class that is left out and has numbers in a step."""
    for placed in stretch.run.read_steps(stretch.steps) if absent else ():
        for index in absent:
            if placed.entry.numbers[index] is not None:
                path = stretch.run.genesis.classes[index]
                raise LedgerError(f"{stretch.run.run}: entry {placed.index}: {path} is left out, and has numbers")


def _check_absent(stretch: Stretch, moved: NDArray[np.int64], absent: list[int], policy: RoutingPolicy) -> None:
    """Raise `LedgerError` for a class that was left out later and had trained more than its own sealed region."""
    genesis = stretch.run.genesis
    for index, row in zip(absent, moved, strict=True):
        for at in np.flatnonzero(row):
            if region_of(policy.sealed, genesis.layers[at]) is None:
                cell = f"{genesis.classes[index]} is left out as deleted, but trained {genesis.layers[at]}"
                raise LedgerError(f"{stretch.run.run}: {cell} in {row[at]} steps that were taken over")


def _shares(stretches: Iterable[Stretch]) -> NDArray[np.float64] | None:
    """Return the shares of all steps with exact numbers, C L; None where numbers are missing.

    Numerators and denominators are summed and divided last: a mean of the steps' shares would give a step with a tiny
    gradient the weight of any other. NaN for a class that has no exact numbers in the layer.
    """
    total, whole, known = 0.0, 0.0, False
    for stretch in stretches:
        run = stretch.run
        for segment in run.segments(stretch.steps):
            recorded = read_numbers(run, segment)
            if recorded.missing:
                return None
            for placed, numbers in recorded.by_step():
                if placed.entry.step in stretch.steps and not placed.entry.estimated:
                    terms = np.zeros((len(run.genesis.classes), len(run.genesis.layers)))
                    terms[list(numbers.classes)], all_of_it = share_terms(numbers.gram)
                    weights = np.zeros_like(terms)
                    weights[list(numbers.classes)] = numbers.weights
                    total, whole, known = total + terms, whole + all_of_it, known | (weights > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = None if isinstance(total, float) else np.round(total / whole, DIGITS)
    if shares is not None:
        shares[np.logical_not(known)] = np.nan
    return shares


# --- the claims ---

CERTIFICATE = "certificate.json"


Deletability = Callable[[Presence, Reach], Deletable]


def claims(
    run: RunLedger, *, trust: Trust, now: int, issued: str, expires: str, deletability: Deletability
) -> ModelAttestation:
    """Return the claims about a run's model.

    Raises `LedgerError` for a run that is unfinished or whose ledger does not verify (a missing quorum included), and
    `ProvenanceError` for documents that are not believed and for a run without a policy.

    Args:
        run: the run.
        trust: the authorities that count.
        now: the time of the check, in seconds since 1970.
        issued: the beginning of validity, for the claims themselves.
        expires: the end of validity.
        deletability: `deletable_here` to sign, `deletable_at_best` to compare.
    """
    if run.outline.end is None:
        raise ProvenanceError(f"{run.run}: unfinished: its ledger has no end, which would name the final model")
    # The ledger is verified before anything is read from it, and so is each older ledger, by `before`.
    checkpoint, genesis = signed_checkpoint(run, trust=trust, now=now), run.genesis
    basis = read_basis(run.run, genesis, trust=trust)
    rules = read_rules(run.run, genesis, basis)
    if rules is None:
        raise ProvenanceError(f"{run.run}: has no policy, without which it is unknown which class trained what")
    older = before(run, trust=trust, now=now)
    for ledger in (run, *older):
        _check_entries(ledger, trust=trust, now=now)
    policy = rules.routing.policy
    counted = contributions(stretches(run, older), policy=policy)
    return ModelAttestation(
        run=genesis.run,
        ledger=_ledger(run),
        checkpoint=checkpoint.content.decode(),
        facts=_facts(genesis),
        steps=run.steps,
        layers=layer_depths(genesis.layers),
        classes=tuple(_classes(run, policy, counted, deletability)),
        deletions=tuple(_deletions([run, *older], trust=trust, now=now)),
        parents=tuple(_ancestors(run)),
        issued=issued,
        expires=expires,
    )


def _ancestors(run: RunLedger) -> Iterator[Ancestor]:
    for parent in run.genesis.parents:
        yield Ancestor(
            kind=parent.kind,
            ledger=_named(parent.ledger),
            model=parent.model,
            attestation=parent.attestation,
            admitted={path: float.fromhex(weight) for path, weight in parent.admitted.items()},
        )
    for trunk in run.trunks:
        yield Ancestor(kind="trunk", ledger=_named(trunk.ledger), model=None, attestation=None, admitted={})


def _named(state: LedgerState) -> LedgerName:
    return LedgerName(origin=state.origin, size=state.size, root=state.root)


def signed_checkpoint(run: RunLedger, *, trust: Trust, now: int) -> Note:
    """Verify the whole ledger and return its checkpoint with all cosignatures that the trust file counts.

    Raises `LedgerError` with the first fault; where cosignatures are missing, with the command that adds them.
    """
    directory, origin = run.ledger.path, run.ledger.checkpoint().origin
    anchor = anchor_of_ledger(run.ledger, trust)
    verification = verify(directory, anchor=anchor, now=now)
    if not verification.ok:
        raise LedgerError(f"{directory}: {_fault(verification, directory)}")
    # Witnesses keep their cosignatures in files of their own. Collected into one note, they travel with the model.
    seen, _ = read_witnesses(directory, anchor=anchor, origin=origin, findings=Findings())
    known = {(witness.key.verifier.name, witness.key.verifier.key_id) for witness in anchor.witnesses}
    added = [
        signature
        for witnessed in seen
        if witnessed.note.text == verification.note.text
        for signature in witnessed.note.signatures
        if (signature.name, signature.key_id) in known
    ]
    return with_signatures(verification.note, added)


def layer_depths(names: tuple[str, ...]) -> tuple[LayerDepth, ...]:
    """Return the layers of a run with their depths. Raises `LedgerError` for the adapter of a missing layer."""
    try:
        layers = recorded_layers(names, {})
    except ProvenanceError as error:
        raise LedgerError(f"entry 0: {error}") from error
    return tuple(LayerDepth(name=layer.name, depth=layer.depth) for layer in layers)


def _check_entries(run: RunLedger, *, trust: Trust, now: int) -> None:
    """Raise `LedgerError` for entries in an impossible order or of unknown kinds, and for blobs that are missing
    without an erasure on record."""
    contents = examine_contents(run.ledger, erasures=read_withheld(run.ledger, trust=trust, now=now))
    if contents.order is None:
        raise LedgerError(f"{run.ledger.path}: {contents.fault or 'its entries are not those of a run'}")
    if contents.order.unknown:
        what = f"{contents.order.unknown} entries of kinds or versions that are not known here"
        raise LedgerError(f"{run.ledger.path}: {what}: their effect on the model is unknown")
    if contents.blobs.missing:
        raise LedgerError(f"{run.ledger.path}: {contents.blobs.missing} blobs, the first {contents.blobs.first[0]}")


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
    """Return what a deletion takes in this directory, as `explorer delete plan` forecasts it."""
    route = route_of(presence.run, reached)
    level = None if obstacles(presence, reached, level=route.level) else route.level
    return Deletable(level=level, steps=route.steps)


def deletable_at_best(presence: Presence, reached: Reach) -> Deletable:
    """Return what a deletion takes at best: every state was kept, and nothing prevents it."""
    if reached.structural:
        return Deletable(level="G2", steps=0)
    return Deletable(level="G3", steps=presence.run.steps - (reached.first or 0))


def _classes(
    run: RunLedger, policy: RoutingPolicy, counted: Contributions, deletability: Deletability
) -> Iterator[ClassClaim]:
    presence, names = Presence(run), run.genesis.layers
    for index, path in enumerate(run.genesis.classes):
        yield ClassClaim(
            path=path,
            confidential=policy.is_confidential(path),
            examples=int(counted.batches[index]),
            trained=tuple(
                Trained(
                    layer=name,
                    steps=int(counted.steps[index, at]),
                    examples=int(counted.examples[index, at]),
                    share=_share(counted, index, at),
                )
                for at, name in enumerate(names)
                if counted.steps[index, at]
            ),
            deletable=deletability(presence, reach_of(presence, Target(classes=(path,)))),
        )


def _share(counted: Contributions, index: int, layer: int) -> float | None:
    share = None if counted.shares is None else float(counted.shares[index, layer])
    return share if share is not None and math.isfinite(share) else None  # JSON has no NaN


def _deletions(runs: list[RunLedger], *, trust: Trust, now: int) -> Iterator[Deleted]:
    """Yield the deletions that made the newest of these runs, the newest first; each run keeps its own certificate."""
    for run in runs:
        if (parent := deletion_of(run)) is None:
            continue
        path = run.run / CERTIFICATE
        content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
        opened = open_certificate(content, trust=trust, now=now, where=str(path))
        value, old = opened.value, parent.ledger
        if value.new.ledger != _ledger(run) or to_json(value.old.ledger) != to_json(old):
            raise ProvenanceError(f"{path}: certifies another deletion than the one that made this run")
        target = value.target
        yield Deleted(
            certificate=opened.digest,
            level=value.level,
            ledger=value.old.ledger,
            classes=target.classes,
            authorities=target.authorities,
            records=0 if target.records is None else target.records.number,
        )


def _fault(verification: Verification, directory: object) -> str:
    first = verification.findings[0]
    words = f"{first.path}: {first.message}"
    if "the quorum is not met" in first.message:
        ledger = shlex.quote(str(directory))
        words += f"; add cosignatures with explorer ledger cosign {ledger} --key KEY --trust TRUST, then attest"
    return words


# --- differences from what was signed ---


def differences(signed: ModelAttestation, computed: ModelAttestation) -> Iterator[str]:
    """Yield each signed claim that differs from the computed one, in words."""
    ours, theirs = to_json(computed), to_json(signed)
    # Of the checkpoint only the text is compared: cosignatures may have been added since.
    for name in ours:
        if name == "checkpoint":
            ours[name], theirs[name] = (_text(value[name]) for value in (ours, theirs))
        if name == "classes":
            yield from _class_differences(signed, computed)
        elif ours[name] != theirs[name]:
            yield from _differences(name, theirs[name], ours[name])


def _text(checkpoint: str) -> str:
    """Return the signed text of a note, without its signatures."""
    return checkpoint.rpartition("\n\n")[0]


def _class_differences(signed: ModelAttestation, computed: ModelAttestation) -> Iterator[str]:
    theirs, ours = [claim.path for claim in signed.classes], [claim.path for claim in computed.classes]
    if theirs != ours:
        yield f"classes: signed {theirs}, computed {ours}"
        return
    for their, our in zip(signed.classes, computed.classes, strict=True):
        yield from _differences(f"classes.{our.path}", _plain(to_json(their)), _plain(to_json(our)))
        if fault := _too_much(their.deletable, our.deletable):
            yield f"classes.{our.path}.deletable: {fault}"


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in value.items() if name != "deletable"}


def _too_much(signed: Deletable, computed: Deletable) -> str | None:
    """Return how a claim about deletability exceeds what the ledger gives; None: it does not."""
    if signed.level is not None and signed.level != computed.level:
        return f"signed {signed.level}, computed {computed.level or 'nothing exact'}"
    if signed.level == "G3" and signed.steps < computed.steps:
        return f"signed {signed.steps} steps to replay, computed at least {computed.steps}"
    return None


def _differences(where: str, signed: Any, computed: Any) -> Iterator[str]:
    """Yield the values that differ, by their place. Shares may differ in the last digit, by rounding."""
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
        yield f"{where}: signed {signed}, unknown from the ledger: numbers are sealed, or were erased since"
    elif signed != computed:
        yield f"{where}: signed {signed!r:.200}, computed {computed!r:.200}"
