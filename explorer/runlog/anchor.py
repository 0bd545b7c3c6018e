"""A trust file as the trust anchor of a ledger: trainers sign it, the others cosign it by the quorum for checkpoints.

A ledger's key bears the ledger's name, as C2SP tlog-checkpoint requires. So a trainer's public key is trusted under the
origin of the checkpoint that is being checked, and one trust file covers every run; but where the origin begins with
one trainer's name, no other trainer may sign it. Authorities cosign under their own names. Where an authority has
several keys, a cosignature by any one of them counts.

The ledger of a run that another machine executed is signed by a key of its own. The first entry names the trainer's
statement about that key (provenance/delegation.py), which has to be about this ledger, this run and this plan. Only a
reader of the ledger can follow it: a checkpoint without its ledger names no delegation.
"""

from collections.abc import Sequence
from dataclasses import replace

from explorer.entries.kinds import Genesis, decode
from explorer.errors import LedgerError, NoteError, ProvenanceError
from explorer.ledger.storage import LedgerDirectory, blob_path, read_file
from explorer.ledger.trust_anchor import NONE, Anchor, TrustedKey
from explorer.note import Algorithm, Verifier
from explorer.provenance.delegation import MAX_BYTES, Delegate, open_delegation
from explorer.provenance.trust import Authority, AuthorityKey, Role, Trust, cosigner

CHECKPOINTS = "the quorum for checkpoints"


DELEGATION = "delegation"  # blob of the genesis: the signed statement


def anchor_of_ledger(ledger: LedgerDirectory, trust: Trust) -> Anchor:
    """Return a trust file as the anchor of this ledger, with the key that a trainer delegated for it, if one did.

    Raises `LedgerError` for a checkpoint that cannot be read, and `ProvenanceError` like `anchor_of_trust`. Where the
    delegation does not hold, the anchor says why (`Anchor.doubt`), and its key does not count.
    """
    origin = ledger.checkpoint().origin
    anchor = anchor_of_trust(trust, origin=origin)
    try:
        delegate = delegate_of(ledger, trust)
        if delegate is None:
            return anchor
        verifier = Verifier(name=origin, algorithm=Algorithm.ED25519, public_key=delegate.public_key)
        return anchor.with_log(
            TrustedKey(
                verifier=verifier,
                valid_from=delegate.valid_from,
                valid_until=delegate.valid_until,
                whose=delegate.words,
                ends=delegate.ends,
            )
        )
    except (LedgerError, NoteError, ProvenanceError) as error:
        return replace(anchor, doubt=str(error))


def delegate_of(ledger: LedgerDirectory, trust: Trust) -> Delegate | None:
    """Return the key to which the signing of this ledger was delegated; None: its first entry names none.

    Raises `LedgerError` or `ProvenanceError` for a delegation that is missing, forged, or not of this ledger.
    """
    checkpoint = ledger.checkpoint()
    genesis = decode(next(ledger.entries(0, 1))) if checkpoint.size else None
    if not isinstance(genesis, Genesis) or genesis.delegation is None:
        return None
    where = "entry 0: delegation"
    blob = genesis.blobs.get(DELEGATION)
    path = "" if blob is None else blob_path(blob.sha256)
    content = read_file(ledger.path, path, max_bytes=MAX_BYTES) if path else None
    if content is None:
        raise LedgerError(f"{where}: the genesis names a statement, and its blob is missing: {path or 'it names none'}")
    delegate = open_delegation(content, trust=trust, where=where)
    if delegate.digest != genesis.delegation:
        raise LedgerError(f"{where}: the blob has digest {delegate.digest}; the genesis names {genesis.delegation}")
    delegate.check_run(genesis.run, plan=genesis.recipe, where=where)
    if delegate.value.ledger != checkpoint.origin:
        raise LedgerError(f"{where}: for another ledger, {delegate.value.ledger}; this one is {checkpoint.origin}")
    return delegate


def anchor_of_trust(trust: Trust, *, origin: str) -> Anchor:
    """Return a trust file as the anchor of the ledger with this origin.

    Raises `ProvenanceError` for a trust file that refuses every checkpoint, with the reason.
    """
    quorum = dict(trust.quorum.checkpoints)
    where = f"the trust file {trust.name!r}"
    if (trainers := quorum.pop(Role.TRAINER, 0)) != 1:
        raise ProvenanceError(
            f"{where} asks for {trainers} trainers to sign a checkpoint and so refuses every one: "
            "a ledger is signed by one, and others cosign it"
        )
    try:
        anchor = _with_authorities(Anchor(), trust.authorities, origin)
        if not anchor.logs:
            raise ProvenanceError(f"{where} lists no trainer and so refuses every checkpoint")
        return _with_quorum(anchor, trust, quorum)
    except (LedgerError, NoteError) as error:
        raise ProvenanceError(f"{where} refuses every checkpoint: {error}") from error


def _with_authorities(anchor: Anchor, authorities: Sequence[Authority], origin: str) -> Anchor:
    # Of two trainers `lab` and `lab/eu`, the longer name owns `lab/eu/run`.
    trainers = [authority for authority in authorities if authority.role is Role.TRAINER]
    namesakes = [authority for authority in trainers if origin.startswith(f"{authority.name}/")]
    owner = max(namesakes, key=lambda authority: len(authority.name), default=None)
    for authority in authorities:
        if authority.role is Role.TRAINER:
            for key in authority.keys if owner in (None, authority) else ():
                signer = Verifier(name=origin, algorithm=Algorithm.ED25519, public_key=key.raw)
                anchor = anchor.with_log(_trusted(signer, key))
        else:
            anchor = _with_cosigner(anchor, authority)
    return anchor


def _with_cosigner(anchor: Anchor, authority: Authority) -> Anchor:
    """Add an authority under one name, whether it has one key or a group of keys: quorums count authorities."""
    verifiers = [cosigner(authority, key) for key in authority.keys]
    keys = [_trusted(verifier, key) for verifier, key in zip(verifiers, authority.keys, strict=True) if verifier]
    if len(keys) == 1:
        return anchor.with_witness(authority.name, keys[0])
    names = [f"{authority.name}+{key.verifier.key_id.hex()}" for key in keys]
    for name, key in zip(names, keys, strict=True):
        anchor = anchor.with_witness(name, key)
    return anchor.with_group(authority.name, 1, names)


def _with_quorum(anchor: Anchor, trust: Trust, quorum: dict[Role, int]) -> Anchor:
    if not quorum:
        return anchor.with_quorum(NONE)
    # A group for each role with its threshold, and one over all groups that requires every one of them.
    groups = []
    for role, threshold in sorted(quorum.items()):
        members = [authority.name for authority in trust.authorities if authority.role is role]
        groups.append(f"{role} authorities")
        anchor = anchor.with_group(groups[-1], threshold, members)
    return anchor.with_group(CHECKPOINTS, len(groups), groups).with_quorum(CHECKPOINTS)


def _trusted(verifier: Verifier, key: AuthorityKey) -> TrustedKey:
    return TrustedKey(verifier=verifier, valid_from=key.valid_from, valid_until=key.valid_until)
