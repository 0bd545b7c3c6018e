"""The request that a deletion answers: a commitment to its text is kept, and the text nowhere.

    {"format": "explorer/request/v1", "salt": "...", "commitment": "..."}

The commitment is SHA-256(salt || the text in UTF-8), and stands in the certificate and in the project's ledger. Whoever
has the text and is shown this file can tell that they belong together; nobody else can guess whom it was about.
"""

from pathlib import Path
from typing import Literal

from explorer.canonical import canonical
from explorer.entries.fields import Digest
from explorer.errors import ProvenanceError
from explorer.provenance.commitments import commit, new_salt
from explorer.provenance.keys import write_private
from explorer.rundir import PRIVATE, read_bytes
from explorer.schema import from_json, parse_json, record, to_json

FILE = f"{PRIVATE}/request"  # in the new run's directory
MAX_BYTES = 4096


@record
class Request:
    """The file."""

    format: Literal["explorer/request/v1"]
    salt: Digest
    commitment: Digest


def keep_request(run: Path, text: str) -> str:
    """The commitment to the text of the request, made with a fresh salt where there is none yet.

    Raises `ProvenanceError` for a run that answers another request.
    """
    path = run / FILE
    if not path.exists():
        salt = new_salt()
        made = Request(format="explorer/request/v1", salt=salt.hex(), commitment=commit(salt, text.encode()).hex())
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, canonical(to_json(made)))
    found = _read(path)
    if commit(bytes.fromhex(found.salt), text.encode()).hex() != found.commitment:
        raise ProvenanceError(f"{path}: the deletion answers another request than this one")
    return found.commitment


def read_request(run: Path) -> str | None:
    """The commitment that is kept; None: none was. Raises `ProvenanceError` for a file that is not one."""
    path = run / FILE
    return _read(path).commitment if path.exists() else None


def _read(path: Path) -> Request:
    content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
    value = parse_json(content, where=str(path), error=ProvenanceError, max_bytes=MAX_BYTES)
    return from_json(Request, value, where=str(path), error=ProvenanceError)
