"""Countersigning: the trainer's own signature under a checkpoint that a delegated key has signed.

A delegated key counts until its delegation ends, and only for a reader who has the ledger, whose first entry names the
delegation. Once a run is back where the trainer's key is, its ledger is verified and the trainer signs the same
checkpoint. From then on it is as good as any other ledger of this trainer, and its checkpoint as good as any other in
an attestation or a proof.
"""

from collections.abc import Collection
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.entries.heads import read_head
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory, read_checkpoint, write_file
from explorer.ledger.trust_anchor import NONE
from explorer.ledger.verify import verify
from explorer.note import Algorithm, Note, Signer, with_signatures
from explorer.provenance.keys import public_bytes
from explorer.provenance.trust import Trust, find
from explorer.runlog.anchor import anchor_of_ledger, delegate_of


def countersign(ledger: LedgerDirectory, *, keys: Collection[Ed25519PrivateKey], trust: Trust, now: int) -> str | None:
    """Add the trainer's signature to the checkpoint of a finished run; return the trainer who had delegated it, None:
    the ledger needs no other signature. Repeating it changes nothing.

    Raises `LedgerError` for a run that has not ended, and with the first finding for a ledger that does not verify, and
    `ProvenanceError` if none of the keys is that trainer's.
    """
    delegate = delegate_of(ledger, trust)
    if delegate is None:
        return None
    # Cosignatures may follow later: the trainer says no more with this signature than with that of a run at home.
    anchor = replace(anchor_of_ledger(ledger, trust), quorum=NONE)
    verification = verify(ledger.path, anchor=anchor, now=now)
    if not verification.ok:
        raise LedgerError(f"{ledger.path}: {verification.findings[0].path}: {verification.findings[0].message}")
    if read_head(next(ledger.entries(verification.checkpoint.size - 1))).kind != "end":
        raise LedgerError(f"{ledger.path}: unfinished: its run may still sign it; let it end first")
    signed = countersigned(read_checkpoint(ledger.path)[0], ledger, keys=keys, trust=trust)
    write_file(ledger.path / CHECKPOINT, signed.content)
    return delegate.trainer


def countersigned(signed: Note, ledger: LedgerDirectory, *, keys: Collection[Ed25519PrivateKey], trust: Trust) -> Note:
    """Return a checkpoint of this ledger with the signature of the trainer who delegated it, if one did.

    The caller has verified the ledger. Raises `ProvenanceError` if none of the keys is that trainer's.
    """
    delegate = delegate_of(ledger, trust)
    if delegate is None:
        return signed
    own = {key.raw for key in find(trust, delegate.trainer).keys}
    signers = [
        Signer(name=delegate.value.ledger, algorithm=Algorithm.ED25519, private_key=key)
        for key in keys
        if public_bytes(key) in own
    ]
    if not signers:
        raise ProvenanceError(
            f"{ledger.path}: {delegate.trainer} delegated it: only that trainer's key countersigns it"
        )
    return with_signatures(signed, [signer.sign(signed.text) for signer in signers])
