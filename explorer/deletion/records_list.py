"""The list of deleted records: what a certificate commits to and does not show.

    {"format": "explorer/deleted-records/v1", "records": [17, 4711], "salt": "..."}

A certificate goes to many, and rows of a tag table are people: it has SHA-256(salt || the list in canonical JSON). The
file stays with whoever deleted them, and goes to whom they show it.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from explorer.canonical import canonical
from explorer.entries.fields import Digest, Whole
from explorer.errors import ProvenanceError, RunError
from explorer.provenance.commitments import commit, new_salt
from explorer.provenance.deletion_certificate import Listed
from explorer.provenance.keys import write_private
from explorer.rundir import PRIVATE, read_bytes
from explorer.runlog.target import MAX_RECORDS
from explorer.schema import from_json, parse_json, record, to_json

FORMAT = "explorer/deleted-records/v1"
FILE = f"{PRIVATE}/deleted.json"  # in the new run's directory
MAX_BYTES = 2**24


@record
class RecordsList:
    """The file."""

    format: Literal["explorer/deleted-records/v1"]
    salt: Digest
    records: Annotated[tuple[Whole, ...], Field(min_length=1, max_length=MAX_RECORDS)]  # ascending

    @property
    def listed(self) -> Listed:
        """What the certificate says of it."""
        content = canonical(list(self.records))
        return Listed(commitment=commit(bytes.fromhex(self.salt), content).hex(), number=len(self.records))


def read_list(path: Path) -> RecordsList:
    """Read the file. Raises `ProvenanceError` for what is not one."""
    content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
    value = parse_json(content, where=str(path), error=ProvenanceError, max_bytes=MAX_BYTES)
    return from_json(RecordsList, value, where=str(path), error=ProvenanceError)


def keep_list(run: Path, records: tuple[int, ...]) -> RecordsList:
    """The list in a new run's directory, made with a fresh salt where there is none yet.

    Raises `ProvenanceError` for a file of other records, `RunError` if the disk refuses.
    """
    path = run / FILE
    if path.exists():
        found = read_list(path)
        if found.records != records:
            raise ProvenanceError(f"{path}: lists {len(found.records)} other records than were deleted")
        return found
    made = RecordsList(format=FORMAT, salt=new_salt().hex(), records=records)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {path.parent}: {error.strerror or error}") from error
    write_private(path, canonical(to_json(made)))
    return made
