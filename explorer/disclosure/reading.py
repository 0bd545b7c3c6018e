"""Reading with the keys that a grant gave: the numbers that they open, each held against its commitment.

How a reader comes by keys, and what is put on record before, is said in `explorer.disclosure.requests`.
"""

import hashlib
from dataclasses import dataclass

from explorer.canonical import canonical
from explorer.disclosure.contents import Cell, Contents
from explorer.disclosure.coverage import covered_classes
from explorer.disclosure.opening import GrantKeys
from explorer.entries import profiles
from explorer.errors import ProvenanceError, unknown
from explorer.provenance.encryption import KINDS
from explorer.provenance.grants import Grant
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import RunLedger

KEYS = ("entry", "step", "layer", "class")
"""What a row is about: the number of the entry that committed to it, the step, the layer, the class (* is several)."""

COLUMNS = {
    "step": ("weight", "norm", "share_num", "share_den", "dot", "exact", "update_sq"),
    "profile": ("examples", *profiles.SHOWN),
    "decision": ("action", "rule", "evidence"),
}
"""What it says, by kind of entry. The columns share_* and update_* are those of the spool; evidence is hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """What somebody wants to read of a run."""

    run: str
    kind: str  # of entries
    classes: tuple[str, ...]  # * is for numbers over several
    steps: range

    @property
    def digest(self) -> str:
        """The SHA-256 of its canonical JSON, by which the project's ledger names it."""
        asked = {"classes": [*self.classes], "kind": self.kind, "run": self.run}
        return hashlib.sha256(canonical({**asked, "first": self.steps.start, "stop": self.steps.stop})).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The numbers; a row has a cell for each of `KEYS` and each of the `COLUMNS` of its kind."""

    query: Query
    rows: tuple[tuple[Cell, ...], ...]
    checked: int  # contents that were held against their commitments, and agree
    unread: tuple[str, ...]  # what was asked for and could not be read, and why


def ask(
    run: RunLedger, grant: Grant, *, kind: str | None = None, class_: str | None = None, steps: range | None = None
) -> Query:
    """What to read: all that the grant covers, unless told otherwise. Raises `ProvenanceError` for what it does not
    cover, and says what it does; `LedgerError` for steps that were not done."""
    covered, known = covered_classes(run.genesis, grant), (*run.genesis.classes, JOINT)
    query = Query(
        run=run.genesis.run,
        kind=next(each for each in KINDS if each in grant.entries) if kind is None else kind,
        classes=tuple(path for path in known if path in covered) if class_ is None else (class_,),
        steps=run.range_of(None, None) if steps is None else steps,
    )
    check_query(run, grant, query)
    return query


def check_query(run: RunLedger, grant: Grant, query: Query) -> None:
    """Check that a grant covers all that a query asks for. Raises `ProvenanceError` for what it does not cover, and
    says what it does; `LedgerError` for steps that were not done."""
    covered, known = covered_classes(run.genesis, grant), (*run.genesis.classes, JOINT)
    if query.kind not in KINDS:
        raise ProvenanceError(unknown("kind of entry with numbers", query.kind, KINDS))
    for path in query.classes:
        if path not in known:
            raise ProvenanceError(unknown("class", path, known))
    if query.kind not in grant.entries:
        raise ProvenanceError(f"entries of kind {query.kind} are outside of the grant: {grant.words}")
    for path in query.classes:
        if path not in covered:
            what = "numbers over several classes" if path == JOINT else f"class {path}"
            raise ProvenanceError(f"{what}: outside of the grant: {grant.words}")
    if query.classes != tuple(path for path in known if path in query.classes):
        raise ProvenanceError(
            f"classes {', '.join(query.classes)}: expected each once, in the order of the run's genesis"
        )
    run.range_of(query.steps.start, query.steps.stop)


def read(run: RunLedger, query: Query, keys: GrantKeys) -> Answer:
    """Read with these keys and no others.

    Raises `LedgerError` for content that is damaged or not what was committed to.
    """
    contents = Contents(run=run.reading_with(keys), classes=query.classes)
    of_kind = {"step": contents.steps, "profile": contents.profiles, "decision": contents.decisions}[query.kind]
    rows = tuple(of_kind(query.steps))
    return Answer(query=query, rows=rows, checked=contents.checked, unread=tuple(contents.unread))
