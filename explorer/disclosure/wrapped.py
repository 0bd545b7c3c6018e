"""Wrapped keys, `<run>/grants/<grant id>.json`: the keys by which one grantee reads one run; made, revoked and opened.

    {"format": "explorer/wrapped-keys/v1",
     "grant": the signed grant, a DSSE envelope,
     "run": run id, "ledger": {"origin", "size", "root"},
     "keys": [{"class": "licensed/news", "kind": "step", "wrapped": base64}, ...]}

For each class and kind of entry that the grant covers there is one bundle: the reading keys of all stretches that the
run had when it was wrapped, in their order, each as first step, u64 big-endian || key, 32 bytes. The class * is for
numbers over several classes; only a grant to all classes has its keys. A bundle is wrapped by HPKE to the grantee's key
(`explorer.provenance.keys`) with

    info = {"class", "format", "grant": SHA-256 of the grant's payload, "kind", "ledger": origin, "run"}    RFC 8785

so that it opens only as what it was wrapped as. Anyone can make such a file, so what its keys open is checked against
the ledger's commitments. `size` and `root` name the state of the ledger that the keys cover.

Keys are wrapped for what the run has recorded so far. Later records need a new wrapping, which checks the grant again:
after its end or its revocation, nothing new opens. Keys that were handed over cannot be recalled; but this program
refuses a revoked grant, and removes its file from every run of the project. Every grantee has a file and a wrapping of
their own, so that revoking one leaves the others as they are.
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
    """A bundle as written in a file."""

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
    """A file of wrapped keys, of which only the form was checked."""

    grant: Envelope
    run: str
    ledger: LedgerState
    keys: Mapping[tuple[str, str], bytes]  # wrapped bundles by class path (or *) and kind of entry

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
        """Return the bytes that HPKE binds a bundle to."""
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
    """Parse a file of wrapped keys. Raises `ProvenanceError` for any other content."""
    value = parse_json(content, where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    file = from_json(_File, value, where=where, error=ProvenanceError)
    keys = bundles_of(file.keys, where=where)
    grant = parse_envelope(canonical(file.grant), where=f"{where}: grant")
    return WrappedKeys(grant=grant, run=file.run, ledger=file.ledger, keys=keys)


def wrapped_bundles(keys: Mapping[tuple[str, str], bytes]) -> list[dict[str, str]]:
    """Return bundles as written in a file, in their order."""
    return [
        {"class": path, "kind": kind, "wrapped": base64.b64encode(wrapped).decode()}
        for (path, kind), wrapped in keys.items()
    ]


def bundles_of(keys: Sequence[WrappedBundle], *, where: str) -> dict[tuple[str, str], bytes]:
    """Return bundles by class path (or *) and kind of entry. Raises `ProvenanceError` for a pair that is there
    twice."""
    bundles = {(key.class_, key.kind): _decoded(key, where) for key in keys}
    if len(bundles) != len(keys):
        raise ProvenanceError(f"{where}: keys: a class and kind are listed twice")
    return bundles


def encode_bundle(bundle: Bundle) -> bytes:
    """Encode reading keys in the order of their stretches."""
    return b"".join(_STRETCH.pack(first, bundle[first]) for first in sorted(bundle))


def decode_bundle(content: bytes, *, where: str) -> Bundle:
    """Decode reading keys. Raises `ProvenanceError` for a bundle that is cut short or out of order."""
    if not content or len(content) % _STRETCH.size:
        raise ProvenanceError(f"{where}: a bundle of {len(content)} bytes; expected {_STRETCH.size} for each stretch")
    pairs = list(_STRETCH.iter_unpack(content))
    firsts = [first for first, _ in pairs]
    if firsts != sorted(set(firsts)):
        raise ProvenanceError(f"{where}: a bundle whose stretches are not in order, each once")
    return dict(pairs)


def words(path: str, kind: str) -> str:
    """Return the name of a bundle in messages."""
    return f"{kind} keys of {'the numbers over several classes' if path == JOINT else path}"


def _decoded(key: WrappedBundle, where: str) -> bytes:
    try:
        return base64.b64decode(key.wrapped, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProvenanceError(f"{where}: {words(key.class_, key.kind)}: not base64") from error


# --- wrapping and revoking ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapping:
    """The result of wrapping the keys of a run for a grant."""

    path: Path
    keys: dict[tuple[str, str], int]  # by class path (or *) and kind of entry: the number of stretches
    erased: tuple[str, ...]  # classes that the grant covers and whose secret was destroyed
    entry: int  # of the project's ledger


def wrap_keys(run: RunLedger, signed: Signed[Grant], *, project: Project) -> Wrapping:
    """Record the wrapping of a grant's keys, for all that the run has recorded, and write them.

    `signed` was just opened with the reader's trust file. Raises `ProvenanceError` for a grant to other runs, classes
    or kinds of entries, for one that was revoked or replaced, and where there is nothing to wrap.
    """
    # The grant covers this run and is in force.
    grant, path = signed.value, wrapped_path(run.run, signed.value.id)
    classes = covered_classes(run.genesis, grant)
    check_standing(project.entries(), naming(signed))
    _refuse_other_owner(path, grant)
    # The keys are here, for all stretches that have numbers.
    keys = own_keys(run.run, run.genesis)
    if not isinstance(keys, OwnKeys):
        raise ProvenanceError(f"{run.run / rundir.SECRETS}: missing; wrap keys on the host that has the run's secrets")
    covered = {of: firsts for of, firsts in stretches(run, grant.entries).items() if of[0] in classes - keys.erased}
    erased = tuple(sorted(keys.erased & classes))
    if not covered:
        why = f"the secret of {', '.join(erased)} was destroyed" if erased else "the run has recorded none so far"
        raise ProvenanceError(f"grant {grant.id}: its classes have no numbers to wrap keys for: {why}")
    ledger = ledger_state(run)
    bare = WrappedKeys(grant=signed.envelope, run=run.genesis.run, ledger=ledger, keys={})
    made = replace(bare, keys={of: _bundle(bare, keys, grant, of, firsts) for of, firsts in covered.items()})
    parse_wrapped(made.content, where=str(path))  # one that is too large to be read is not written
    # The entry comes before the file: keys that can be used are always on record.
    entry = project.append(_use("wrapped", naming(signed), ledger))
    rundir.write_bytes(path, made.content)
    return Wrapping(path=path, keys={of: len(firsts) for of, firsts in covered.items()}, erased=erased, entry=entry)


def revoke(grant: Named, *, runs: Path, project: Project) -> tuple[int | None, tuple[Path, ...]]:
    """Revoke a grant in all runs of a project; return the entry, None if it was revoked before, and the removed files.

    The revocation is recorded first; then the grant's files are removed, and damaged ones with its id. Raises
    `RunError` for a file that cannot be removed; the grant is revoked even then.
    """
    entry = None
    if not is_revoked(project.entries(), grant):
        entry = project.append(_use("revoked", grant, None))
    # Another owner's grant with the same id keeps its file; a damaged file has no owner that could be asked.
    paths = sorted(runs.glob(f"*/*/{rundir.GRANTS}/{grant.id}.json"))
    removed = tuple(path for path in paths if _owner(path) in (grant.owner, None))
    for path in removed:
        _remove(path)
    return entry, removed


def wrapped_path(run: Path, id: str) -> Path:
    """Return the path of a grant's wrapped keys."""
    return run / rundir.GRANTS / f"{id}.json"


def read_wrapped(path: Path) -> WrappedKeys:
    """Read a file of wrapped keys. Raises `ProvenanceError` for any other file."""
    return parse_wrapped(rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError), where=str(path))


def naming(signed: Signed[Grant]) -> Named:
    """Return a grant as the project's ledger names it."""
    return Named(owner=signed.value.owner, id=signed.value.id, digest=grant_digest(signed.envelope))


def ledger_state(run: RunLedger) -> LedgerState:
    """Return the state of the run's ledger when the run was opened."""
    checkpoint = run.ledger.checkpoint()
    return LedgerState(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex())


def _use(action: Literal["wrapped", "revoked"], grant: Named, ledger: LedgerState | None) -> GrantUse:
    return GrantUse(action=action, owner=grant.owner, id=grant.id, grant=grant.digest, ledger=ledger, blobs={})


def _bundle(file: WrappedKeys, keys: OwnKeys, grant: Grant, of: tuple[str, str], firsts: set[int]) -> bytes:
    path, kind = of
    bundle = {first: key for first in firsts if (key := keys.of(path, kind, first)) is not None}
    return wrap(encode_bundle(bundle), grant.grantee.public_key, info=file.info(path, kind))


def _refuse_other_owner(path: Path, grant: Grant) -> None:
    """Refuse to overwrite the keys of another owner's grant with the same id."""
    owner = _owner(path) if path.exists() else None
    if owner not in (grant.owner, None):
        raise ProvenanceError(f"{path}: holds keys for a grant of {owner}: the grant of {grant.owner} needs another id")


def _owner(path: Path) -> str | None:
    """Return the owner that a file of wrapped keys claims; None for a damaged file."""
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

    bundles: Mapping[tuple[str, str], Bundle]  # by class path (or *) and kind of entry

    def of(self, class_path: str, kind: str, first: int) -> bytes | None:
        return self.bundles.get((class_path, kind), {}).get(first)


def believe(file: WrappedKeys, run: RunLedger, *, trust: Trust, now: int, where: str) -> Signed[Grant]:
    """Check a file of wrapped keys and return its grant.

    The grant has to be valid now, and the file of this run and no wider than the grant. Raises `ProvenanceError`
    otherwise. Whether the grant was revoked or replaced is in the project's ledger:
    `explorer.disclosure.grants_in_force`.

    Args:
        file: the file.
        run: the run.
        trust: the authorities that count.
        now: the time of the check, in seconds since 1970.
        where: the file's name in messages.
    """
    signed = open_grant(file.grant.content, trust=trust, now=now, where=f"{where}: grant")
    checkpoint = run.ledger.checkpoint()
    if (file.run, file.ledger.origin) != (run.genesis.run, checkpoint.origin):
        raise ProvenanceError(
            f"{where}: holds keys of another run: found {file.run} with the ledger {file.ledger.origin}, expected "
            f"{run.genesis.run} with {checkpoint.origin}"
        )
    size = file.ledger.size
    if size > checkpoint.size or merkle.root(size, run.ledger.read_hashes).hex() != file.ledger.root:
        raise ProvenanceError(
            f"{where}: wrapped for a ledger of {size} entries with the root {file.ledger.root}, which this one, of "
            f"{checkpoint.size}, does not extend"
        )
    classes = covered_classes(run.genesis, signed.value)
    for path, kind in file.keys:
        if path not in classes or kind not in signed.value.entries:
            raise ProvenanceError(f"{where}: {words(path, kind)}: not covered: {signed.value.words}")
    return signed


def open_keys(file: WrappedKeys, grant: Grant, key: X25519PrivateKey, *, where: str) -> GrantKeys:
    """Unwrap the keys in a file that `believe` has checked.

    Raises `ProvenanceError` for another reader's key, and for a bundle that was changed or wrapped as something else.
    """
    if reader_public_text(key) != grant.grantee.public_key:
        raise ProvenanceError(
            f"{where}: not the key of {grant.grantee.name}: found {reader_public_text(key)}, expected "
            f"{grant.grantee.public_key}"
        )
    bundles: dict[tuple[str, str], Bundle] = {}
    for of, wrapped in file.keys.items():
        here = f"{where}: {words(*of)}"
        bundles[of] = decode_bundle(unwrap(wrapped, key, info=file.info(*of), where=here), where=here)
    return GrantKeys(bundles=bundles)
