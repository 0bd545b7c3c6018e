"""The entries of a project's ledger, which goes on when the ledgers of its runs are closed and points to them."""

from typing import ClassVar, Literal

from explorer.entries.fields import Blobs, ByClass, ByName, Digest, Float, LedgerState, Line, Whole
from explorer.provenance.spellings import ClassPath
from explorer.schema import record


@record
class GrantUse:
    """What was done with a grant: the keys of a run were wrapped for its grantee, or it opens nothing any more."""

    KIND: ClassVar[str] = "grant"
    VERSION: ClassVar[int] = 1

    action: Literal["wrapped", "revoked"]
    owner: Line  # the authority that granted
    id: Line  # that the owner gave it
    grant: Digest  # of its payload
    ledger: LedgerState | None  # of the run whose keys were wrapped, as it was then; None: revoked, for every run
    blobs: Blobs


@record
class Access:
    """Somebody read what only a grant opens."""

    KIND: ClassVar[str] = "access"
    VERSION: ClassVar[int] = 1

    ledger: LedgerState  # that was read
    grant: Digest
    query: Digest  # of what was asked for
    blobs: Blobs


@record
class Deletion:
    """A request to delete what a model learned from some examples, and how far it was met."""

    KIND: ClassVar[str] = "deletion"
    VERSION: ClassVar[int] = 1

    ledger: LedgerState  # of the run that had them
    result: LedgerState | None  # of the run without them; None: below G2 there is none
    request: Digest  # a salted commitment: a request names a person
    classes: tuple[ClassPath, ...]  # what was asked for: these classes,
    authorities: tuple[Line, ...]  # or all that these vouch for,
    records: Whole  # or so many single records; which ones, the list beside the certificate says
    level: Literal["G0", "G1", "G2", "G3"]  # inactive, localised and ablated, exact by structure, exact by replay
    evidence: ByName[Digest]  # `certificate`: of its payload
    blobs: Blobs


@record
class Erasure:
    """What a run's directory has recorded about some classes, or what links records to their tags, is destroyed.

    Of a class: its secret, its blobs, and its rows in the spool; with them the numbers over several classes. The entry
    is written before anything is destroyed. The model and the ledger of the run stay as they are.
    """

    KIND: ClassVar[str] = "erasure"
    VERSION: ClassVar[int] = 1

    ledger: LedgerState  # of the run, which is finished
    classes: tuple[ClassPath, ...]  # whose numbers are destroyed,
    records: Whole  # or of so many single records the salts; which ones is on no record
    blobs: Blobs


@record
class Observation:
    """What somebody who evaluates, fine-tunes or deploys a model says about it, signed by them."""

    KIND: ClassVar[str] = "observation"
    VERSION: ClassVar[int] = 1

    ledger: LedgerState  # of the run that made the model
    model: Digest
    role: Literal["evaluator", "fine-tuner", "deployer"]
    admitted: ByClass[Float]  # with which weight they let a class through
    statement: Digest  # of the payload of their signed statement
    blobs: Blobs
