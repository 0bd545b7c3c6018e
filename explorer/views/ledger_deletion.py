"""The section on deletion: what deleting each class takes, which deletions are certified, what was erased."""

from collections.abc import Callable, Collection
from pathlib import Path

from markupsafe import Markup

from explorer.audit.withheld import read_withheld
from explorer.errors import ExplorerError
from explorer.runlog.keys import JOINT, OwnKeys
from explorer.views.ledger_certificates import certificates_html
from explorer.views.ledger_deletions import deletions_table
from explorer.views.ledger_pane import coded, heading, note, warning
from explorer.views.ledger_runs import OpenRun

NOT_HERE = "No erasure is on record. Whether a secret was destroyed all the same cannot be told: they are not here."
ERASED = "Erased from the record, with the secrets that opened them: numbers {}. The model has what it learned."
SAID = "On record as entry {} of the project's ledger. Whether the run conforms cannot be told from then on."
UNSAID = "The secrets of these were destroyed, and {}: numbers {}. The run does not conform."
KEPT = "Every class still has the secret that opens its numbers: `explorer delete erase` has erased none of them."


def deletion_html(opened: OpenRun) -> Markup:
    """Three parts; what one of them cannot say hides no other."""
    parts = [
        heading("What deleting each class takes"),
        _part(lambda: deletions_table(opened.ledger)),
        heading("Certificates"),
        _part(lambda: certificates_html(opened, here=Path.cwd())),
        heading("Erased from the record"),
        _part(lambda: erased_html(opened)),
    ]
    return Markup("").join(parts)


def erased_html(opened: OpenRun) -> Markup:
    """Whose numbers nobody can open any more, and what the project's ledger says of it. Raises `LedgerError` or
    `ProvenanceError` for secrets that cannot be used."""
    keys, said = opened.ledger.keys, read_withheld(opened.ledger.ledger, trust=opened.trust, now=opened.now)
    destroyed = keys.erased if isinstance(keys, OwnKeys) else frozenset[str]()
    named = {*said.erased, JOINT} if said.erased else set[str]()
    found = Markup("")
    if named:
        entries = sorted({index for each in said.erased.values() for index in each})
        found += note(ERASED.format(_names(opened, named)))
        found += note(SAID.format(", ".join(map(str, entries))))
    if destroyed - named:
        found += warning(UNSAID.format(said.without, _names(opened, destroyed - named)))
    if found:
        return found
    return note(coded(KEPT)) if isinstance(keys, OwnKeys) else note(NOT_HERE)


def _names(opened: OpenRun, whose: Collection[str]) -> str:
    names = [f"of {path}" for path in opened.classes if path in whose]
    return ", ".join([*names, *(["over several classes"] if JOINT in whose else [])])


def _part(write: Callable[[], Markup]) -> Markup:
    try:
        return write()
    except ExplorerError as error:
        return warning(str(error))
