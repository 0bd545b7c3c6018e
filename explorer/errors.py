"""The errors a user can meet, as one tree. Every message says what was found, what was expected and what is allowed.

The command line prints only the message; `--debug` adds the traceback. Errors of the system (`OSError`), such as a full
disk, are treated alike. Any other exception is a defect of Explorer and keeps its traceback.
"""

import difflib
from collections.abc import Iterable


class ExplorerError(Exception):
    """The root of the tree: an error caused by input or surroundings, whose message says how to mend it."""


class RecipeError(ExplorerError):
    """A recipe, or a value in one, cannot be used."""


class SpecError(RecipeError):
    """A specification file cannot be used."""


class DataError(ExplorerError):
    """A dataset is absent or damaged."""


class ErasedError(DataError):
    """An example was erased from the data on purpose."""


class RunError(ExplorerError):
    """A run directory is absent, damaged, or in use by another process."""


class CheckpointError(RunError):
    """A checkpoint is damaged or belongs to another run."""


class TrainingError(ExplorerError):
    """Training cannot continue, for example because the loss is no longer finite."""


class DivergedError(TrainingError):
    """Training has diverged: a loss, a metric or a weight is not finite."""


class SweepError(ExplorerError):
    """A sweep cannot start or continue."""


class PlaceError(ExplorerError):
    """A place where a sweep is published cannot be used, or holds something damaged."""


class StoreError(ExplorerError):
    """The database is absent, damaged, or in use by another process."""


class AnalysisError(ExplorerError):
    """The results cannot answer a question."""


class PriceError(ExplorerError):
    """A price table cannot be used."""


class NoteError(ExplorerError):
    """A signed note or a key of one cannot be used."""


class LedgerError(ExplorerError):
    """A ledger, a checkpoint or a proof is damaged, forged, or in use by another process."""


class ProvenanceError(ExplorerError):
    """A key, a trust file, a credential or a signed document cannot be used or must not be trusted."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that is not in a table, with the nearest name that is.

    >>> unknown("method", "mixupp", ["mixup", "sam"])
    "unknown method 'mixupp'; did you mean 'mixup'? known: mixup, sam"
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return f"unknown {kind} {name!r}{hint} known: {', '.join(names) or 'none'}"
