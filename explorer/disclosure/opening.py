"""What a grantee has: the reading keys of a run that were wrapped for them, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from explorer import merkle
from explorer.disclosure.coverage import covered_classes
from explorer.disclosure.wrapped import Bundle, WrappedKeys, decode_bundle, words
from explorer.errors import ProvenanceError
from explorer.provenance.grants import Grant, open_grant
from explorer.provenance.keys import reader_public_text, unwrap
from explorer.provenance.signing import Signed
from explorer.provenance.trust import Trust
from explorer.runlog.run_ledger import RunLedger


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class GrantKeys:
    """The keys that a grant gives, as `explorer.runlog.run_keys.Keys`. They are never printed."""

    bundles: Mapping[tuple[str, str], Bundle]  # by class path, or *, and kind of entry

    def of(self, class_path: str, kind: str, first: int) -> bytes | None:
        return self.bundles.get((class_path, kind), {}).get(first)


def believe(file: WrappedKeys, run: RunLedger, *, trust: Trust, now: int, where: str) -> Signed[Grant]:
    """The grant of a file of wrapped keys, if it holds now and the file is of this run and no wider than the grant.

    Raises `ProvenanceError` that says what is wrong. Only what the project's ledger says of the grant is not known
    here: `explorer.disclosure.standing`.
    """
    signed = open_grant(file.grant.content, trust=trust, now=now, where=f"{where}: grant")
    checkpoint = run.ledger.checkpoint()
    if (file.run, file.ledger.origin) != (run.genesis.run, checkpoint.origin):
        raise ProvenanceError(
            f"{where}: holds keys of another run: {file.run} with the ledger {file.ledger.origin}; this is "
            f"{run.genesis.run} with {checkpoint.origin}"
        )
    size = file.ledger.size
    if size > checkpoint.size or merkle.root(size, run.ledger.read_hashes).hex() != file.ledger.root:
        raise ProvenanceError(
            f"{where}: wrapped for a ledger of {size} entries with the root {file.ledger.root}, which this one, of "
            f"{checkpoint.size}, does not go on from"
        )
    classes = covered_classes(run.genesis, signed.value)
    for path, kind in file.keys:
        if path not in classes or kind not in signed.value.entries:
            raise ProvenanceError(f"{where}: {words(path, kind)}: not covered: {signed.value.words}")
    return signed


def open_keys(file: WrappedKeys, grant: Grant, key: X25519PrivateKey, *, where: str) -> GrantKeys:
    """The keys in a file whose grant is believed. Raises `ProvenanceError` for another reader's key, and for a bundle
    that was changed or wrapped as something else."""
    if reader_public_text(key) != grant.grantee.public_key:
        raise ProvenanceError(
            f"{where}: this is not the key of {grant.grantee.name}, which is {grant.grantee.public_key}; found "
            f"{reader_public_text(key)}"
        )
    bundles: dict[tuple[str, str], Bundle] = {}
    for of, wrapped in file.keys.items():
        here = f"{where}: {words(*of)}"
        bundles[of] = decode_bundle(unwrap(wrapped, key, info=file.info(*of), where=here), where=here)
    return GrantKeys(bundles=bundles)
