"""A trust file as the trust anchor of a ledger: trainers sign it, the others cosign it by the quorum for checkpoints.

A ledger's key bears the ledger's name, as C2SP tlog-checkpoint requires. So a trainer's public key is trusted under the
origin of the checkpoint that is being checked, and one trust file covers every run; but where the origin begins with
one trainer's name, no other trainer may sign it. Authorities cosign under their own names. Where an authority has
several keys, a cosignature by any one of them counts.
"""

from collections.abc import Sequence

from explorer.errors import LedgerError, NoteError, ProvenanceError
from explorer.ledger.trust_anchor import NONE, Anchor, TrustedKey
from explorer.note import Algorithm, Verifier
from explorer.provenance.trust import Authority, AuthorityKey, Role, Trust, cosigner

CHECKPOINTS = "the quorum for checkpoints"


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
