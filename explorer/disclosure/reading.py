"""Reading with a grant: the numbers that it opens, each held against its commitment; on record before they are read."""

import hashlib
from dataclasses import dataclass

from explorer.canonical import canonical
from explorer.disclosure.contents import Cell, Contents
from explorer.disclosure.coverage import covered_classes
from explorer.disclosure.opening import GrantKeys
from explorer.disclosure.standing import check_standing, check_wrapped
from explorer.disclosure.wrapping import ledger_state, naming
from explorer.entries import profiles
from explorer.entries.project import Access
from explorer.errors import ProvenanceError, unknown
from explorer.project import Project
from explorer.provenance.grants import Grant
from explorer.provenance.reading_keys import KINDS
from explorer.provenance.signed import Signed
from explorer.recorded.keys import JOINT
from explorer.recorded.run_ledger import RunLedger

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
    access: int  # the entry of the project's ledger that says that this was read
    rows: tuple[tuple[Cell, ...], ...]
    checked: int  # contents that were held against their commitments, and agree
    unread: tuple[str, ...]  # what was asked for and could not be read, and why


def ask(
    run: RunLedger, grant: Grant, *, kind: str | None = None, class_: str | None = None, steps: range | None = None
) -> Query:
    """What to read: all that the grant covers, unless told otherwise. Raises `ProvenanceError` for what it does not
    cover, and says what it does; `LedgerError` for steps that were not done."""
    covered, known = covered_classes(run.genesis, grant), (*run.genesis.classes, JOINT)
    kind = next(each for each in KINDS if each in grant.entries) if kind is None else kind
    if kind not in KINDS:
        raise ProvenanceError(unknown("kind of entry with numbers", kind, KINDS))
    if class_ is not None and class_ not in known:
        raise ProvenanceError(unknown("class", class_, known))
    if kind not in grant.entries:
        raise ProvenanceError(f"entries of kind {kind} are outside of the grant: {grant.words}")
    if class_ is not None and class_ not in covered:
        what = "numbers over several classes" if class_ == JOINT else f"class {class_}"
        raise ProvenanceError(f"{what}: outside of the grant: {grant.words}")
    return Query(
        run=run.genesis.run,
        kind=kind,
        classes=tuple(path for path in known if path in covered) if class_ is None else (class_,),
        steps=run.range_of(None, None) if steps is None else steps,
    )


def read(run: RunLedger, query: Query, signed: Signed[Grant], keys: GrantKeys, *, project: Project) -> Answer:
    """Read, after the project's ledger has it on record that the holder of this grant reads this; others have that
    ledger again while the numbers are read.

    Raises `ProvenanceError` for a grant that was revoked or replaced, or that was never wrapped here; `LedgerError`
    where the read cannot be recorded, and for content that is damaged or not what was committed to.
    """
    name, ledger = naming(signed), ledger_state(run)
    with project:
        recorded = project.entries()
        check_standing(recorded, name)
        check_wrapped(recorded, name, origin=ledger.origin)
        index = project.append(Access(ledger=ledger, grant=name.digest, query=query.digest, blobs={}))
    contents = Contents(run=run.reading_with(keys), classes=query.classes)
    of_kind = {"step": contents.steps, "profile": contents.profiles, "decision": contents.decisions}[query.kind]
    rows = tuple(of_kind(query.steps))
    return Answer(query=query, access=index, rows=rows, checked=contents.checked, unread=tuple(contents.unread))
