"""What the signed documents of a run say: its own copies, held against the digests in its genesis.

Whether anybody believes who signed them, `explorer.audit.vouched` says. Here they are read as what the run was governed
by, which the genesis binds.
"""

import hashlib
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.errors import ExplorerError, LedgerError, ProvenanceError
from explorer.provenance.envelope import MAX_BYTES, parse_envelope
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.tag_table import MAX_ROWS
from explorer.provenance.tags import Tags, read_authorities, read_tags
from explorer.provenance.tags_parquet import TagFile
from explorer.provenance.taxonomy import QUARANTINE, Taxonomy
from explorer.runlog.run_ledger import Placed, RunLedger
from explorer.schema import from_json, parse_json

POLICY = "policy.json"
TAXONOMY = "taxonomy.json"
TABLE = "tags.parquet"
MAX_QUARANTINE = 2**28

Document = TypeVar("Document")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TagRows:
    """The tag table of a run, row by row."""

    tags: Tags
    classes: NDArray[np.int64]  # index into the genesis' classes; of what never trained, the number behind the last
    authorities: tuple[str, ...]  # by the numbers in `tags`

    def vouched_by(self, authority: str) -> NDArray[np.int64]:
        """The rows that an authority vouches for, ascending; none for one that the table does not name."""
        if authority not in self.authorities:
            return np.array([], np.int64)
        return np.flatnonzero(self.tags.authorities == self.authorities.index(authority))


def read_policy(run: RunLedger) -> RoutingPolicy | None:
    """The policy of a run; None: it routes nothing. Raises `ProvenanceError` for a file that is not one, `LedgerError`
    for another policy than the genesis names."""
    return None if run.genesis.policy is None else _read(run, POLICY, RoutingPolicy, run.genesis.policy)


def read_tag_rows(run: RunLedger) -> TagRows:
    """The tags of a run's examples. Raises as `read_policy` does."""
    if run.genesis.taxonomy is None:
        raise LedgerError("entry 0: the run has no taxonomy, and so no tagged examples")
    taxonomy = _read(run, TAXONOMY, Taxonomy, run.genesis.taxonomy)
    path = run.run / rundir.GOVERNANCE / TABLE
    with TagFile(path) as file:
        authorities = read_authorities(file)
        tags = read_tags(file, codes=taxonomy.codes, authorities=authorities)
    if tags.root.hex() not in {sources.root for sources in run.genesis.tags.values()}:
        raise LedgerError(f"entry 0: tags: the genesis names {len(run.genesis.tags)} tag tables, and {path} is none")
    nowhere = len(run.genesis.classes)
    numbers = np.full(max(taxonomy.codes.values()) + 1, nowhere, np.int64)
    for index, class_ in enumerate(run.genesis.classes):
        numbers[taxonomy.codes[class_]] = index
    classes = numbers[tags.classes]
    classes[[row for row in quarantine_of(run) if row < len(classes)]] = nowhere
    return TagRows(tags=tags, classes=classes, authorities=authorities)


def quarantine_of(run: RunLedger) -> frozenset[int]:
    """The rows that the run set aside when it began, as its genesis says. Raises `LedgerError` for what is no list."""
    content = quarantine_content(run)
    if content is None:
        return frozenset()
    found = parse_json(content, where="entry 0: quarantine", error=LedgerError, max_bytes=MAX_QUARANTINE)
    return frozenset(rows_set_aside(found, where="entry 0: quarantine", error=LedgerError))


def quarantine_content(run: RunLedger) -> bytes | None:
    """The same, as the blob has it; None where nothing was set aside. Raises `LedgerError` where it is not here."""
    content = run.blob(Placed(index=0, entry=run.genesis), QUARANTINE, max_bytes=MAX_QUARANTINE)
    if content is None and QUARANTINE in run.genesis.blobs:
        raise LedgerError("entry 0: quarantine: the list of the rows that were set aside is not here")
    return content


def rows_set_aside(found: object, *, where: str, error: type[ExplorerError]) -> dict[int, str]:
    """Rows and reasons, from JSON that lists rows by reason. Raises `error` for what is no such list."""
    rows: dict[int, str] = {}
    for reason, numbers in (found if isinstance(found, dict) else {"": found}).items():
        for row in numbers if isinstance(numbers, list) else [numbers]:
            if type(row) is not int or not 0 <= row < MAX_ROWS:
                raise error(f"{where}: expected lists of rows by reason")
            rows[row] = reason
    return rows


def _read(run: RunLedger, name: str, kind: type[Document], expected: str) -> Document:
    """A signed document, which has to be the one that the genesis names."""
    path = run.run / rundir.GOVERNANCE / name
    envelope = parse_envelope(rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError), where=str(path))
    found = hashlib.sha256(envelope.payload).hexdigest()
    if found != expected:
        raise LedgerError(f"entry 0: {path} has digest {found}; the genesis names {expected}")
    value = parse_json(envelope.payload, where=str(path), error=ProvenanceError, max_bytes=MAX_BYTES)
    return from_json(kind, value, where=str(path), error=ProvenanceError)
