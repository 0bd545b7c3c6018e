"""The section on deletion: what deleting each class takes, which deletions are certified, what was erased."""

from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup

from explorer.errors import ExplorerError
from explorer.recorded.keys import JOINT, OwnKeys
from explorer.views.ledger_certificates import certificates_html
from explorer.views.ledger_deletions import deletions_table
from explorer.views.ledger_pane import coded, heading, note, warning
from explorer.views.ledger_runs import OpenRun

NOT_HERE = "Whether numbers of a class were erased cannot be told: the run's secrets are not here."
ERASED = "Erased from the record, with the secrets that opened them: numbers {}. The model has what it learned."
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
    """Whose numbers nobody can open any more. Raises `LedgerError` or `ProvenanceError` for secrets that cannot be
    used."""
    keys = opened.ledger.keys
    if not isinstance(keys, OwnKeys):
        return note(NOT_HERE)
    if not keys.erased:
        return note(coded(KEPT))
    names = [f"of {path}" for path in opened.classes if path in keys.erased]
    names += ["over several classes"] if JOINT in keys.erased else []
    return note(ERASED.format(", ".join(names)))


def _part(write: Callable[[], Markup]) -> Markup:
    try:
        return write()
    except ExplorerError as error:
        return warning(str(error))
