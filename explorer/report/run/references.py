"""References from the figures of a run's report to their evidence: entries of a ledger, or signed documents that the
first entry names by digest. References link to the list of entries at the end of the report."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from explorer.entries.heads import read_head
from explorer.merkle import leaf_hash
from explorer.page.document import Span
from explorer.runlog.run_ledger import RunLedger

MAX_LISTED = 300  # entries; a long run has thousands, which would drown the report
SHOWN = 16  # digits of a digest in a citation; all of it is under "Who vouched" or "The run"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """Entries [first, last] of the run's ledger, or of the project's, which goes on when that of the run is closed."""

    first: int
    last: int
    of: Literal["run", "project"] = "run"

    def __str__(self) -> str:
        words = f"entry {self.first}" if self.first == self.last else f"entries {self.first}-{self.last}"
        return words if self.of == "run" else f"{words} of the project's ledger"


GENESIS = Reference(first=0, last=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A file that the first entry of the run's ledger binds, by the digest that stands there."""

    what: str  # "taxonomy", "policy", "tags", "trust file", "recipe", "environment"
    digest: str

    def __str__(self) -> str:
        return f"{self.what} sha256:{self.digest}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedEntry:
    """An entry in the list."""

    index: int
    kind: str
    step: int | None
    leaf: str  # its hash in the tree, in hexadecimal


def refer(indices: Iterable[int], *, of: Literal["run", "project"] = "run") -> Reference:
    """Return the smallest range that holds these entries, of which there must be at least one."""
    ordered = sorted(indices)
    return Reference(first=ordered[0], last=ordered[-1], of=of)


def references_in(value: Any) -> Iterator[Reference]:
    """Yield the references anywhere in a record."""
    if isinstance(value, Reference):
        yield value
    elif isinstance(value, Mapping):
        yield from references_in(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from references_in(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from references_in(getattr(value, field.name))


def list_entries(run: RunLedger, references: Iterable[Reference]) -> tuple[tuple[ListedEntry, ...], int]:
    """List the entries of the run's ledger that are referred to, and return the number of those left out.

    At most `MAX_LISTED` are listed, or more if there are so many ends of ranges. Raises `LedgerError` for damaged
    entries.
    """
    ranges = {reference for reference in references if reference.of == "run"}
    # Both ends of a range are always listed, because citations link to them.
    ends = {end for reference in ranges for end in (reference.first, reference.last)}
    wanted = {index for reference in ranges for index in range(reference.first, reference.last + 1)}
    kept = ends | set(sorted(wanted - ends)[: max(0, MAX_LISTED - len(ends))])
    listed = []
    for index, leaf in enumerate(run.ledger.entries()):
        if index in kept:
            head = read_head(leaf)
            step = head.fields.get("step")
            hash_ = leaf_hash(leaf).hex()
            listed.append(
                ListedEntry(index=index, kind=head.kind, step=step if isinstance(step, int) else None, leaf=hash_)
            )
    return tuple(listed), len(wanted) - len(kept)


class Citations:
    """The entries that a report lists, and links to them."""

    listed: tuple[ListedEntry, ...]
    unlisted: int  # entries that are referred to, but left out of the list

    def __init__(self, run: RunLedger, references: Iterable[Reference]) -> None:
        """Raises `LedgerError` for damaged entries."""
        self.listed, self.unlisted = list_entries(run, references)
        self._indices = {entry.index for entry in self.listed}

    def __call__(self, reference: Reference) -> Span:
        """Return a link to the first of the entries. Entries of the project's ledger are not listed, so not linked."""
        if reference.of == "project":
            return Span(str(reference))
        # The list comes from the sections' records, so a citation that is in none of them would lead nowhere.
        assert reference.first in self._indices, f"{reference} is cited and not listed"
        return Span(str(reference), "link", f"#entry-{reference.first}")

    def all(self, references: Iterable[Reference], documents: Iterable[Document] = ()) -> tuple[Span, ...]:
        """Return links to all of these references, with the documents below."""
        links: list[Span] = []
        for reference in references:
            links += [Span(", "), self(reference)] if links else [self(reference)]
        return (*links, *(Span(f"{document.what} {document.digest[:SHOWN]}", "small") for document in documents))
