"""Wrapping the reading keys of a run for a grantee, and taking a grant back.

Keys are wrapped for what the run has recorded so far. What it records later needs a new wrapping, which asks again
whether the grant holds: after its end or its revocation nothing new opens. What was handed over before cannot be taken
out of anybody's hands; a revoked grant opens nothing any more through us, and its file is gone from every run of the
project. Every grantee has a file and a wrapping of their own, so nobody else's need be made again when one is revoked.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from explorer import rundir
from explorer.disclosure.coverage import covered_classes, stretches
from explorer.disclosure.standing import Named, check_standing, is_revoked
from explorer.disclosure.wrapped import MAX_BYTES, WrappedKeys, encode_bundle, parse_wrapped
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import GrantUse
from explorer.errors import ProvenanceError, RunError
from explorer.project import Project
from explorer.provenance.grants import Grant, claimed_grant, grant_digest
from explorer.provenance.keys import wrap
from explorer.provenance.signing import Signed
from explorer.runlog.run_keys import OwnKeys, own_keys
from explorer.runlog.run_ledger import RunLedger


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapping:
    """What was wrapped."""

    path: Path
    keys: dict[tuple[str, str], int]  # by class path, or *, and kind of entry: of how many stretches
    erased: tuple[str, ...]  # that the grant covers, and whose secret was destroyed
    entry: int  # of the project's ledger


def wrap_keys(run: RunLedger, signed: Signed[Grant], *, project: Project) -> Wrapping:
    """Wrap the keys that a grant covers, for all that the run has recorded; on record before anybody can have them.

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
    """Where the wrapped keys of a grant stand."""
    return run / rundir.GRANTS / f"{id}.json"


def read_wrapped(path: Path) -> WrappedKeys:
    """Read a file of wrapped keys. Raises `ProvenanceError` for what is not one."""
    return parse_wrapped(rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError), where=str(path))


def naming(signed: Signed[Grant]) -> Named:
    """A grant as the project's ledger names it."""
    return Named(owner=signed.value.owner, id=signed.value.id, digest=grant_digest(signed.envelope))


def ledger_state(run: RunLedger) -> LedgerState:
    """The run's ledger as it was when it was opened."""
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
    """Who granted what stands there, as the file says; None for one that is damaged."""
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
