"""Statements of use: how much of each party's data trained which layers, signed by the trainer, a line for each party.

A party is a provenance class, an authority that vouches for tags, or a source that the tags name. Each party gets a
file of its own, with only its line. The statement is the same for all: an in-toto statement in a DSSE envelope.

    subject    lines, by the Merkle root over all of them
    predicate  {"by": "class", "period": null, "runs": {"count": 2, "root": ...}, "lines": {"count": 7, "root": ...},
                "issued": ..., "expires": ...}

Both trees follow RFC 6962. Leaves, before they are hashed (`explorer.merkle.leaf_hash`), are

    of `runs`     the canonical JSON (RFC 8785) of a run's facts, in the order of the ledgers' origins
    of `lines`    SHA-256(salt || canonical JSON of the line), in the order of the parties, followed by that of the
                  total; each salt is 32 random bytes

Guesses of a line cannot be tried without its salt, so a party learns only how many other parties there are. The total
would reveal the sum of the other lines, so only the holder of the whole statement has it.

    {"format": "explorer/usage/v1", "statement": {the envelope},
     "line": {"content": {...}, "salt": hex, "index": 3, "proof": [hex, ...]},
     "runs": [{"content": {...}, "index": 0, "proof": [hex, ...], "entries": [hex, ...]}]}

`entries` proves that the ledger has the entries [first, last] of the line (`explorer.merkle.prove_range`); their
content stays hidden. The whole statement has `"format": "explorer/usage-whole/v1"`, all lines and all runs in order,
and no proofs: its reader builds both trees.
"""

import hashlib
import secrets
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from explorer import merkle
from explorer.canonical import canonical
from explorer.errors import LedgerError, ProvenanceError
from explorer.provenance.commitments import SALT_BYTES, commit
from explorer.provenance.envelope import Envelope
from explorer.provenance.signing import Kind, Signed, open_document, sign_document
from explorer.provenance.spellings import Ascii, Digest, LedgerName, Time, Whole, parse_time
from explorer.provenance.trust import Role, Trust
from explorer.schema import from_json, parse_json, record, to_json

SUBJECT = "lines"
PARTY, WHOLE = "explorer/usage/v1", "explorer/usage-whole/v1"
MAX_BYTES = 64 * 2**20  # of a file
MAX_LINES = 100_000
MAX_RUNS = 10_000
MAX_NOTE = 2**20
MAX_PARTY = 500  # bytes of a source, which is the longest of the three

Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64)]
"""32 bytes: a salt, or a hash of a proof."""

Party = Annotated[str, Field(max_length=MAX_PARTY)]
"""A class path, the name of an authority, or a source as the tag table has it, which may be empty."""


class By(StrEnum):
    """What a party is."""

    CLASS = "class"
    AUTHORITY = "authority"
    SOURCE = "source"


class Untold(StrEnum):
    """Why something cannot be told of some steps."""

    ERASED = "erased"  # an entry of the project's ledger says so
    NOT_HERE = "not here"  # the numbers or slots are missing, and no entry says that they were erased
    SEALED = "sealed"  # the policy calls the numbers of some class confidential
    NOT_MEASURED = "not measured"
    ESTIMATED = "estimated"  # the recipe takes exact numbers in some steps only, and shares are made of those
    NOT_FINITE = "not finite"  # a gradient overflowed
    NOT_CLOSED = "not closed"  # no state follows the steps: the run was cut off there
    SHARED = "shared"  # a class of several parties, and which of its examples these were is on no record
    NOT_COSIGNED = "not cosigned"  # no cosignature covers the steps, so only the trainer dates them


@record
class Gap:
    """Something that cannot be told of some of the steps."""

    what: Literal["share", "examples", "superseded", "period"]
    steps: Whole
    why: Untold


@record
class Period:
    """From `begins`, before `ends`: a step is in it if the first cosignature of a checkpoint that covers it is."""

    begins: Time
    ends: Time


@record
class Cosigned:
    """An earlier checkpoint that a witness has cosigned, and the proof that the run's checkpoint extends it."""

    note: Annotated[str, Field(max_length=MAX_NOTE)]
    consistency: Annotated[tuple[Hex, ...], Field(max_length=merkle.MAX_PATH)]


@record
class UsageRun:
    """What all lines have in common of a run."""

    run: Ascii
    simulated: bool  # simulated provenance: the classes were cut for demonstration, and have no real sources
    ledger: LedgerName
    checkpoint: Annotated[str, Field(max_length=MAX_NOTE)]  # a signed note, with its cosignatures
    cosigned: Annotated[tuple[Cosigned, ...], Field(max_length=100)]  # by size; empty where no period is asked for
    outcome: Literal["finished", "stopped", "unfinished"]
    steps: Whole  # done, in their latest execution
    counted: Whole  # of these, in the period
    shared: Whole  # of the counted ones: those whose shares of gradient are known
    superseded: Whole  # steps that were executed again later; they are in no other number
    tokens: Whole | None  # of an example; None: not text, or no recipe says it
    gaps: Annotated[tuple[Gap, ...], Field(max_length=100)]


@record
class Superseded:
    """Use by steps that were executed again later, and whose result was thrown away."""

    steps: Whole
    examples: Whole


@record
class Use:
    """What a run used of one party, over the counted steps."""

    run: Digest  # SHA-256 of the run's facts
    first: Whole | None  # the entry of the first step that used any; None: no step did
    last: Whole | None  # and of the last one
    steps: Whole  # in which an example of the party trained
    examples: Whole  # that trained: slots of batches, so that an example counts each time
    denied: Whole  # that were in batches and trained nothing
    unclear: Whole  # that were in batches, without a record whether they trained
    tokens: Whole | None  # of the examples that trained; at most, where methods shorten them
    layers: Annotated[tuple[Ascii, ...], Field(max_length=100_000)]  # that they trained
    share: float | None  # of the summed gradient, over layers and steps; may be negative. None: known for no step
    apportioned: Whole  # of the steps, those in which the class's share was split by number of examples: an estimate
    superseded: Superseded | None  # None: unknown for this party


@record
class Line:
    """What a party is told."""

    party: Party
    uses: Annotated[tuple[Use, ...], Field(min_length=1, max_length=MAX_RUNS)]

    @property
    def examples(self) -> int:
        """That trained, over all runs."""
        return sum(use.examples for use in self.uses)

    @property
    def tokens(self) -> int | None:
        """Tokens of these examples; None: a run with examples of the party does not say how many."""
        counted = [use.tokens for use in self.uses if use.examples or use.tokens is not None]
        return None if not counted or None in counted else sum(tokens or 0 for tokens in counted)

    @property
    def steps(self) -> int:
        """In which an example trained, over all runs."""
        return sum(use.steps for use in self.uses)

    @property
    def idle(self) -> bool:
        """Return whether no batch had an example of the party, as far as that is on record."""
        again = (use.superseded.steps for use in self.uses if use.superseded is not None)
        return not any((*(use.examples + use.denied + use.unclear for use in self.uses), *again))


@record
class RunTotal:
    """The slots of all batches of the counted steps of a run: those of the lines, and those of no party."""

    run: Digest
    slots: Whole
    quarantined: Whole  # whose examples have no valid tag: never read
    absent: Whole  # left empty, because the run's recipe leaves their examples out
    unplaced: Whole  # of unknown parties


@record
class Total:
    """What the lines come to. It comes after the last line."""

    total: Annotated[tuple[RunTotal, ...], Field(max_length=MAX_RUNS)]


@record
class Tree:
    """A Merkle tree, by its size and root."""

    count: Annotated[int, Field(ge=1, le=MAX_LINES + 1)]
    root: Digest


@record
class Usage:
    """The predicate."""

    by: By
    period: Period | None  # None: everything that is on record
    runs: Tree
    lines: Tree
    issued: Time
    expires: Time


@record
class ProvedLine:
    """A line, and its place in the tree."""

    content: Line
    salt: Hex
    index: Whole
    proof: Annotated[tuple[Hex, ...], Field(max_length=merkle.MAX_PATH)]


@record
class ProvedRun:
    """A run, its place in the tree, and the entries of its ledger that a line is about."""

    content: UsageRun
    index: Whole
    proof: Annotated[tuple[Hex, ...], Field(max_length=merkle.MAX_PATH)]
    entries: Annotated[tuple[Hex, ...], Field(max_length=merkle.MAX_RANGE)]  # empty: no step used any


@record
class PartyFile:
    """What a party is given."""

    format: Literal["explorer/usage/v1"]
    statement: dict[str, object]
    line: ProvedLine
    runs: Annotated[tuple[ProvedRun, ...], Field(min_length=1, max_length=MAX_RUNS)]  # in the order of the uses


@record
class SaltedLine:
    """A line of the whole statement."""

    content: Line
    salt: Hex


@record
class SaltedTotal:
    """The total of the whole statement."""

    content: Total
    salt: Hex


@record
class WholeFile:
    """What the trainer keeps and an auditor may be given: every line."""

    format: Literal["explorer/usage-whole/v1"]
    statement: dict[str, object]
    lines: Annotated[tuple[SaltedLine, ...], Field(min_length=1, max_length=MAX_LINES)]
    total: SaltedTotal
    runs: Annotated[tuple[UsageRun, ...], Field(min_length=1, max_length=MAX_RUNS)]


def new_salt() -> str:
    """Return a salt for one line."""
    return secrets.token_bytes(SALT_BYTES).hex()


def line_leaf(content: Line | Total, salt: str) -> bytes:
    """Return the leaf hash of a line or of the total."""
    return merkle.leaf_hash(commit(bytes.fromhex(salt), canonical(to_json(content))))


def run_leaf(content: UsageRun) -> bytes:
    """Return the leaf hash of a run."""
    return merkle.leaf_hash(canonical(to_json(content)))


def run_digest(content: UsageRun) -> str:
    """Return the name of a run in the lines: SHA-256 of its canonical JSON."""
    return hashlib.sha256(canonical(to_json(content))).hexdigest()


def tree_over(leaves: Sequence[bytes]) -> Tree:
    """Return the tree over these leaf hashes."""
    return Tree(count=len(leaves), root=merkle.root_of(leaves).hex())


def _check_usage(value: Usage, where: str) -> None:
    check_period(value.period, where=where)


USAGE = Kind(name="usage/v1", record=Usage, role=Role.TRAINER, check=_check_usage, about=(SUBJECT,), joint=True)
PREDICATE_TYPE = USAGE.predicate_type
Opened = Signed[Usage]


def sign_usage(value: Usage, *, keys: Collection[Ed25519PrivateKey], trust: Trust, now: int, where: str) -> Envelope:
    """Sign a statement. Raises `ProvenanceError` for an empty period, and for a key that may not sign."""
    return sign_document(value, USAGE, keys, about=(value.lines.root,), trust=trust, now=now, where=where)


def open_usage(content: bytes, *, trust: Trust, now: int, where: str) -> Opened:
    """Read a statement. Raises `ProvenanceError` unless a trainer has signed it under the trust file."""
    opened = open_document(content, USAGE, trust=trust, now=now, where=where)
    # Subject and predicate both name the root. A statement in which they differ could be quoted as either.
    if opened.about != (opened.value.lines.root,):
        raise ProvenanceError(f"{where}: subject: another root than that of the lines in the predicate")
    return opened


def read_file(content: bytes, *, where: str) -> PartyFile | WholeFile:
    """Read the file of a party or the whole statement, without checking it. Raises `ProvenanceError`."""
    value = parse_json(content, where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    format_ = value.get("format") if isinstance(value, dict) else None
    if format_ not in (PARTY, WHOLE):
        raise ProvenanceError(f"{where}: not a statement of use: format: found {format_!r:.80}, expected {PARTY!r}")
    return from_json(PartyFile if format_ == PARTY else WholeFile, value, where=where, error=ProvenanceError)


def check_period(period: Period | None, *, where: str) -> None:
    """Raise `ProvenanceError` for an empty period."""
    if period is not None and parse_time(period.begins) >= parse_time(period.ends):
        raise ProvenanceError(f"{where}: period: ends {period.ends}, which is not after it begins, {period.begins}")


def check_place(tree: Tree, leaf: bytes, *, index: int, proof: Sequence[str], where: str) -> None:
    """Raise `ProvenanceError` unless the proof shows the leaf hash at `index` of the tree."""
    hashes = [bytes.fromhex(digits) for digits in proof]
    try:
        merkle.check_inclusion(hashes, size=tree.count, index=index, leaf=leaf, root=bytes.fromhex(tree.root))
    except LedgerError as error:
        raise ProvenanceError(f"{where}: not what was signed: {error}") from error
