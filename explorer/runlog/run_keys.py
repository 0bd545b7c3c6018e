"""The reading keys of a run's reader: they open sealed numbers and commitments, class by class.

The owner of a run derives all keys from the secrets in its `private` directory. A reader with a grant has the keys that
were wrapped for them; any other reader has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from explorer import rundir
from explorer.entries.kinds import Genesis
from explorer.errors import LedgerError, ProvenanceError
from explorer.provenance.commitments import Salts, read_salts
from explorer.provenance.encryption import reading_key

JOINT = "*"  # in place of a class path: numbers over several classes


class Keys(Protocol):
    """Source of reading keys."""

    def of(self, class_path: str, kind: str, first: int) -> bytes | None:
        """Return the reading key of a class's numbers in entries of this kind, from the step `first` on; None: the
        reader does not have it, or it was destroyed. See `explorer.provenance.encryption`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnKeys:
    """All keys of a run, from its secrets."""

    secrets: Salts
    classes: Sequence[str]  # of the genesis; the last secret is for numbers over several

    def of(self, class_path: str, kind: str, first: int) -> bytes | None:
        names = (*self.classes, JOINT)
        secret = self.secrets.of(names.index(class_path)) if class_path in names else None
        return None if secret is None else reading_key(secret, kind=kind, class_path=class_path, first=first)

    @property
    def erased(self) -> frozenset[str]:
        """Return the classes whose secret was destroyed; * is for numbers over several."""
        return frozenset(name for slot, name in enumerate((*self.classes, JOINT)) if self.secrets.of(slot) is None)


class NoKeys:
    """The keys of a reader without any."""

    def of(self, class_path: str, kind: str, first: int) -> None:
        return None


def own_keys(run: Path, genesis: Genesis) -> OwnKeys | NoKeys:
    """Derive the keys from the secrets in the run's directory; no keys where that has no secrets.

    Raises `LedgerError` for secrets of another number of classes, `ProvenanceError` for a file that others can
    read, or that the reader cannot.
    """
    # A directory that may not be entered is an error: as "no secrets" it would silently seal everything.
    path = run / rundir.SECRETS
    try:
        here = path.exists()
    except OSError as error:
        raise ProvenanceError(f"cannot look for {path}: {error.strerror or error}") from error
    if not here:
        return NoKeys()
    secrets, expected = read_salts(path), len(genesis.classes) + 1
    if len(secrets) != expected:
        raise LedgerError(f"{path}: {len(secrets)} secrets; the run's classes and the joint one are {expected}")
    return OwnKeys(secrets=secrets, classes=genesis.classes)
