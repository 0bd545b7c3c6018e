"""The table of kinds, and the way from a record to the bytes of an entry and back."""

from dataclasses import asdict, dataclass, fields

from explorer.entries.envelope import Head, read_head, write_entry
from explorer.entries.project import Access, Deletion, Erasure, GrantUse, Observation
from explorer.entries.run import Decision, End, Genesis, Profile, State, Step
from explorer.errors import LedgerError
from explorer.schema import from_json

Entry = Genesis | Step | Profile | State | Decision | End | Access | Deletion | Erasure | GrantUse | Observation

KINDS: dict[tuple[str, int], type[Entry]] = {
    (kind.KIND, kind.VERSION): kind
    for kind in (Genesis, Step, Profile, State, Decision, End, Access, Deletion, Erasure, GrantUse, Observation)
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """An entry whose kind or version is not known here: kept as it is and reported."""

    head: Head
    leaf: bytes


def encode(entry: Entry) -> bytes:
    """The bytes of an entry: canonical JSON, without the fields that have their default.

    Raises `LedgerError` for what does not fit or does not meet its schema.
    """
    defaults = {field.name: field.default for field in fields(entry)}
    given = {name: value for name, value in asdict(entry).items() if value != defaults[name]}
    content = write_entry({**given, "kind": entry.KIND, "version": entry.VERSION})
    decode(content)  # a record that was made in Python has not been checked before
    return content


def decode(leaf: bytes) -> Entry | Unknown:
    """The entry that these bytes are. Raises `LedgerError` for what is no entry, and for an entry of a known kind
    whose fields are wrong."""
    head = read_head(leaf)
    kind = KINDS.get((head.kind, head.version))
    if kind is None:
        return Unknown(head=head, leaf=leaf)
    blobs = {name: {"sha256": blob.sha256, "size": blob.size} for name, blob in head.blobs.items()}
    where = f"{head.kind} entry"
    return from_json(kind, {**head.fields, "blobs": blobs}, where=where, error=LedgerError)
