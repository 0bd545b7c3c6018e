"""What can be said of a run's model, computed from the run's directory alone: the claims of its attestation.

The trainer computes them to sign them, and whoever has the directory computes them again to hold them against what was
signed (differences.py). Two things follow from no ledger: which checkpoints are still kept, and whether anything is in
the way of a deletion (`deletable_here`). So what is signed about deletability is held against the level and the least
number of steps that the ledger gives (`deletable_at_best`); to claim less is no lie.
"""

import math
from collections.abc import Callable, Iterator

from explorer import rundir
from explorer.audit.contents import examine_contents
from explorer.audit.withheld import read_withheld
from explorer.entries.kinds import Genesis
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.rebuild import Findings
from explorer.ledger.trust_anchor import Anchor
from explorer.ledger.verify import Verification, read_witnesses, verify
from explorer.note import Note, with_signatures
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
from explorer.provenance.regions import recorded_layers
from explorer.provenance.spellings import LedgerName
from explorer.provenance.trust import Trust
from explorer.release.contributions import Contributions, contributions
from explorer.release.past import before, deletion_of, stretches
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.documents import read_basis, read_rules
from explorer.runlog.forecast import obstacles, route_of
from explorer.runlog.influence import Presence, Reach, reach_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.schema import to_json

CERTIFICATE = "certificate.json"


Deletability = Callable[[Presence, Reach], Deletable]


def claims(
    run: RunLedger, *, trust: Trust, now: int, issued: str, expires: str, deletability: Deletability
) -> ModelAttestation:
    """All that is said of a run's model.

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
    """The run's checkpoint with the cosignatures of those whom the trust file knows, once the whole ledger verifies.

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
    """The layers of a run with their depths. Raises `LedgerError` for the adapter of a layer that is not there."""
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
    """What a deletion takes in this directory, as `explorer delete plan` says it."""
    route = route_of(presence.run, reached)
    level = None if obstacles(presence, reached, level=route.level) else route.level
    return Deletable(level=level, steps=route.steps)


def deletable_at_best(presence: Presence, reached: Reach) -> Deletable:
    """What a deletion takes where every state was kept and nothing is in its way."""
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
    """The deletions that made this run, the newest first; each run has the certificate of its own."""
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
