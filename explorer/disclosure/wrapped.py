"""Wrapped keys: `<run>/grants/<grant id>.json`, what one grantee needs to read of one run; made, revoked and opened.

    {"format": "explorer/wrapped-keys/v1",
     "grant": the signed grant, a DSSE envelope,
     "run": run id, "ledger": {"origin", "size", "root"},
     "keys": [{"class": "licensed/news", "kind": "step", "wrapped": base64}, ...]}

For each class and kind of entry that the grant covers there is one bundle: the reading keys of all stretches that the
run had when it was wrapped, in their order, each as first step, u64 big-endian || key, 32 bytes. The class * is for
numbers over several classes, and there only where the grant covers all of them. A bundle is wrapped by HPKE to the
grantee's key (`explorer.provenance.keys`) with

    info = {"class", "format", "grant": SHA-256 of the grant's payload, "kind", "ledger": origin, "run"}    RFC 8785

so that it opens as what it was wrapped as, and as nothing else. Anyone can make such a file; what its keys open is
checked against the ledger's commitments. `size` and `root` tell which entries of the ledger the keys cover.

Keys are wrapped for what the run has recorded so far. What it records later needs a new wrapping, which checks again
that the grant holds: after its end or its revocation nothing new opens. Keys that were handed over cannot be recalled;
a revoked grant opens nothing any more through this program, and its file is removed from every run of the project. A
grantee has a separate file and wrapping, so revoking one leaves the others as they are.
"""

import base64
import binascii
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import Field

from explorer import merkle, rundir
from explorer.canonical import canonical
from explorer.disclosure.grants_in_force import Named, check_standing, covered_classes, is_revoked, stretches
from explorer.entries.fields import LedgerState, Line
from explorer.entries.kinds import GrantUse
from explorer.errors import ProvenanceError, RunError
from explorer.project import Project
from explorer.provenance.encryption import KEY_BYTES
from explorer.provenance.envelope import Envelope, parse_envelope
from explorer.provenance.grants import EntryKind, Grant, claimed_grant, grant_digest, open_grant
from explorer.provenance.keys import reader_public_text, unwrap, wrap
from explorer.provenance.signing import Signed
from explorer.provenance.spellings import ClassPath
from explorer.provenance.trust import Trust
from explorer.runlog.run_keys import JOINT, OwnKeys, own_keys
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import from_json, parse_json, record, to_json

# --- the file ---

FORMAT = "explorer/wrapped-keys/v1"
MAX_BYTES = 2**26
_STRETCH = struct.Struct(f">Q{KEY_BYTES}s")

Bundle = Mapping[int, bytes]
"""Reading keys by the first step of their stretch."""


@record
class WrappedBundle:
    """A bundle as it is in a file."""

    class_: Annotated[ClassPath | Literal["*"], Field(alias="class")]
    kind: EntryKind
    wrapped: Annotated[str, Field(max_length=MAX_BYTES)]


@record
class _File:
    format: Literal["explorer/wrapped-keys/v1"]
    grant: dict[str, Any]
    run: Line
    ledger: LedgerState
    keys: Annotated[tuple[WrappedBundle, ...], Field(min_length=1, max_length=10_000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class WrappedKeys:
    """Such a file, nothing in it checked beyond its form."""

    grant: Envelope
    run: str
    ledger: LedgerState
    keys: Mapping[tuple[str, str], bytes]  # wrapped bundles by class path, or *, and kind of entry

    @property
    def content(self) -> bytes:
        """Return the file: canonical JSON and a newline."""
        value = {
            "format": FORMAT,
            "grant": json.loads(self.grant.content),
            "run": self.run,
            "ledger": to_json(self.ledger),
            "keys": wrapped_bundles(self.keys),
        }
        return canonical(value) + b"\n"

    def info(self, path: str, kind: str) -> bytes:
        """Return what a bundle is bound to."""
        return canonical(
            {
                "class": path,
                "format": FORMAT,
                "grant": grant_digest(self.grant),
                "kind": kind,
                "ledger": self.ledger.origin,
                "run": self.run,
            }
        )


def parse_wrapped(content: bytes, *, where: str) -> WrappedKeys:
    """Read such a file. Raises `ProvenanceError` for what is not one."""
    value = parse_json(content, where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    file = from_json(_File, value, where=where, error=ProvenanceError)
    keys = bundles_of(file.keys, where=where)
    grant = parse_envelope(canonical(file.grant), where=f"{where}: grant")
    return WrappedKeys(grant=grant, run=file.run, ledger=file.ledger, keys=keys)


def wrapped_bundles(keys: Mapping[tuple[str, str], bytes]) -> list[dict[str, str]]:
    """Bundles as they are in a file, in their order."""
    return [
        {"class": path, "kind": kind, "wrapped": base64.b64encode(wrapped).decode()}
        for (path, kind), wrapped in keys.items()
    ]


def bundles_of(keys: Sequence[WrappedBundle], *, where: str) -> dict[tuple[str, str], bytes]:
    """Bundles by class path, or *, and kind of entry. Raises `ProvenanceError` for two of one."""
    found = {(each.class_, each.kind): _decoded(each, where) for each in keys}
    if len(found) != len(keys):
        raise ProvenanceError(f"{where}: keys: a class and kind stand twice")
    return found


def encode_bundle(bundle: Bundle) -> bytes:
    """Reading keys in the order of their stretches."""
    return b"".join(_STRETCH.pack(first, bundle[first]) for first in sorted(bundle))


def decode_bundle(content: bytes, *, where: str) -> Bundle:
    """Return the reading keys. Raises `ProvenanceError` for what was cut short or is out of order."""
    if not content or len(content) % _STRETCH.size:
        raise ProvenanceError(f"{where}: a bundle of {len(content)} bytes; expected {_STRETCH.size} for each stretch")
    found = list(_STRETCH.iter_unpack(content))
    firsts = [first for first, _ in found]
    if firsts != sorted(set(firsts)):
        raise ProvenanceError(f"{where}: a bundle whose stretches are not in order, each once")
    return dict(found)


def words(path: str, kind: str) -> str:
    """Return what a bundle is for, for people."""
    return f"{kind} keys of {'the numbers over several classes' if path == JOINT else path}"


def _decoded(key: WrappedBundle, where: str) -> bytes:
    try:
        return base64.b64decode(key.wrapped, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProvenanceError(f"{where}: {words(key.class_, key.kind)}: not base64") from error


# --- wrapping and revoking ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapping:
    """What was wrapped."""

    path: Path
    keys: dict[tuple[str, str], int]  # by class path, or *, and kind of entry: of how many stretches
    erased: tuple[str, ...]  # that the grant covers, and whose secret was destroyed
    entry: int  # of the project's ledger


def wrap_keys(run: RunLedger, signed: Signed[Grant], *, project: Project) -> Wrapping:
    """Wrap the keys that a grant covers, for all that the run has recorded; on record before anyone can have them.

    `signed` was opened now, with a trust file that says whom to believe. Raises `ProvenanceError` for a grant of other
    runs, classes or kinds of entries, for one that was revoked or has a later one in its place, and where there is
    nothing to wrap.
    """
    grant, path = signed.value, wrapped_path(run.run, signed.value.id)
    classes = covered_classes(run.genesis, grant)
    check_standing(project.entries(), naming(signed))
    _refuse_other_owner(path, grant)
    keys = own_keys(run.run, run.genesis)
    if not isinstance(keys, OwnKeys):
        raise ProvenanceError(f"{run.run / rundir.SECRETS}: missing; keys are wrapped where the secrets of the run are")
    found = {of: firsts for of, firsts in stretches(run, grant.entries).items() if of[0] in classes - keys.erased}
    erased = tuple(sorted(keys.erased & classes))
    if not found:
        why = f"the secret of {', '.join(erased)} was destroyed" if erased else "the run has recorded none so far"
        raise ProvenanceError(f"grant {grant.id}: there is no number of its classes to wrap a key for: {why}")
    ledger = ledger_state(run)
    bare = WrappedKeys(grant=signed.envelope, run=run.genesis.run, ledger=ledger, keys={})
    made = replace(bare, keys={of: _bundle(bare, keys, grant, of, firsts) for of, firsts in found.items()})
    parse_wrapped(made.content, where=str(path))  # not too large to be read again
    entry = project.append(_use("wrapped", naming(signed), ledger))
    rundir.write_bytes(path, made.content)
    return Wrapping(path=path, keys={of: len(firsts) for of, firsts in found.items()}, erased=erased, entry=entry)


def revoke(grant: Named, *, runs: Path, project: Project) -> tuple[int | None, tuple[Path, ...]]:
    """Revoke a grant in all runs of a project: on record first, then its files are removed, and those of its id that
    are damaged.

    Returns the entry, or None where it was revoked before, and the files. Raises `RunError` for a file that cannot be
    removed; the grant is revoked all the same.
    """
    entry = None
    if not is_revoked(project.entries(), grant):
        entry = project.append(_use("revoked", grant, None))
    found = sorted(runs.glob(f"*/*/{rundir.GRANTS}/{grant.id}.json"))
    removed = tuple(path for path in found if _owner(path) in (grant.owner, None))
    for path in removed:
        _remove(path)
    return entry, removed


def wrapped_path(run: Path, id: str) -> Path:
    """Return the path of a grant's wrapped keys."""
    return run / rundir.GRANTS / f"{id}.json"


def read_wrapped(path: Path) -> WrappedKeys:
    """Read a file of wrapped keys. Raises `ProvenanceError` for what is not one."""
    return parse_wrapped(rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError), where=str(path))


def naming(signed: Signed[Grant]) -> Named:
    """Return a grant as the project's ledger names it."""
    return Named(owner=signed.value.owner, id=signed.value.id, digest=grant_digest(signed.envelope))


def ledger_state(run: RunLedger) -> LedgerState:
    """Return the run's ledger as it was when it was opened."""
    checkpoint = run.ledger.checkpoint()
    return LedgerState(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex())


def _use(action: Literal["wrapped", "revoked"], grant: Named, ledger: LedgerState | None) -> GrantUse:
    return GrantUse(action=action, owner=grant.owner, id=grant.id, grant=grant.digest, ledger=ledger, blobs={})


def _bundle(file: WrappedKeys, keys: OwnKeys, grant: Grant, of: tuple[str, str], firsts: set[int]) -> bytes:
    path, kind = of
    bundle = {first: key for first in firsts if (key := keys.of(path, kind, first)) is not None}
    return wrap(encode_bundle(bundle), grant.grantee.public_key, info=file.info(path, kind))


def _refuse_other_owner(path: Path, grant: Grant) -> None:
    """Two owners may have chosen the same id."""
    owner = _owner(path) if path.exists() else None
    if owner not in (grant.owner, None):
        raise ProvenanceError(f"{path}: holds keys for a grant of {owner}: the grant of {grant.owner} needs another id")


def _owner(path: Path) -> str | None:
    """Return who granted what stands there, as the file says; None for one that is damaged."""
    try:
        return claimed_grant(read_wrapped(path).grant, where=str(path)).owner
    except ProvenanceError:
        return None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        rundir.flush_directory(path.parent)
    except OSError as error:
        raise RunError(f"cannot remove {path}: {error.strerror or error}; revoke the grant again") from error


# --- opening ---


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class GrantKeys:
    """The keys that a grant gives, as `explorer.runlog.run_keys.Keys`. They are never printed."""

    bundles: Mapping[tuple[str, str], Bundle]  # by class path, or *, and kind of entry

    def of(self, class_path: str, kind: str, first: int) -> bytes | None:
        return self.bundles.get((class_path, kind), {}).get(first)


def believe(file: WrappedKeys, run: RunLedger, *, trust: Trust, now: int, where: str) -> Signed[Grant]:
    """Return the grant of a file of wrapped keys, if it holds now and the file is of this run and no wider than the
    grant.

    Raises `ProvenanceError` that says what is wrong. Only what the project's ledger says of the grant is not known
    here: `explorer.disclosure.grants_in_force`.
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
    """Read the keys in a file whose grant is believed. Raises `ProvenanceError` for another reader's key, and for a
    bundle that was changed or wrapped as something else."""
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
