"""Watching a log: what is new in it since the last look, and whether it is still the same log.

A fold over the entries that nobody has folded yet. Its memory is one file: the last checkpoint that was found right,
when that was, and how many entries of each kind there were up to it. Each look starts from the remembered root, adds
the new entries, and has to come out at the new root: so the entries are those that the log's key has signed, and the
tree extends the one of the last look. A look that was interrupted leaves the memory as it was, and is made again.

What it cannot see: entries that are true and should not be there, and another log that is shown to others. For the
latter the checkpoint has to be cosigned by witnesses; the anchor says by which.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from explorer import merkle, note, rundir
from explorer.entries.heads import read_head
from explorer.entries.kinds import KINDS
from explorer.errors import LedgerError, NoteError, RunError
from explorer.ledger.edge import Edge
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.tiles import TILE
from explorer.ledger.trust_anchor import Anchor, Judgement, judge, utc
from explorer.ledger.verify import Evidence
from explorer.note import Note

FORMAT = "explorer/monitor/v1"
MAX_MEMORY = 2 * note.MAX_BYTES
MAX_KINDS = 1_000
_KNOWN = {kind for kind, _ in KINDS}
FOREIGN = "(not an entry)"  # what has no kind: bytes of other software


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """What the last look found right."""

    note: Note
    checkpoint: Checkpoint
    seen: int  # when this checkpoint was first seen, seconds since 1970
    kinds: Mapping[str, int]  # entries of each kind up to it


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What one look found."""

    before: Checkpoint | None
    judgement: Judgement
    memory: Memory  # to remember
    new: Mapping[str, int]  # entries since the last look, by kind
    unknown: Mapping[str, int]  # of these, kinds that are not known here
    silent: int | None  # seconds without a new checkpoint, where that is longer than allowed
    evidence: Evidence | None  # of a fork or a roll-back: nothing of it is remembered


def look(
    ledger: LedgerDirectory, held: Memory | None, *, anchor: Anchor, now: int, patience: int | None = None
) -> Look:
    """Compare a log with what is remembered of it. `patience`: seconds that it may go without a new checkpoint.

    Raises `LedgerError` where the log cannot be read, is damaged, or is not believed by the anchor.
    """
    found = ledger.note()
    judgement = judge(found, anchor=anchor, now=now)
    new = judgement.checkpoint
    old = None if held is None else held.checkpoint
    if old is not None and old.origin != new.origin:
        raise LedgerError(f"another log, {new.origin!r}; remembered is {old.origin!r}")
    evidence, counted = None, Counter[str]()
    if (
        held is not None
        and old is not None
        and (old.size > new.size or (old.size == new.size and old.root != new.root))
    ):
        evidence = _evidence(held, found, anchor, root_then=None)
    else:
        start = old or Checkpoint(origin=new.origin, size=0, root=merkle.EMPTY_ROOT)
        root_then = _root(start.size, ledger)
        if root_then == start.root:
            counted = _fold(ledger, start, new)
        elif held is not None and _leads_to(ledger, start.size, root_then, new):
            evidence = _evidence(held, found, anchor, root_then=root_then)
        else:
            raise LedgerError(f"{ledger.path}: its tiles lead neither to the remembered root nor to the signed one")
    if held is not None and (evidence is not None or old == new):
        memory = held
    else:
        kinds = Counter(held.kinds if held else {}) + counted
        memory = Memory(note=note.of_keys(found, anchor.verifiers), checkpoint=new, seen=now, kinds=dict(kinds))
    quiet = now - memory.seen
    return Look(
        before=old,
        judgement=judgement,
        memory=memory,
        new=dict(counted),
        unknown={kind: count for kind, count in counted.items() if kind not in _KNOWN},
        silent=quiet if patience is not None and quiet > patience else None,
        evidence=evidence,
    )


def read_memory(path: Path, *, anchor: Anchor) -> Memory | None:
    """Return what was remembered; None if there is no such file. Raises `LedgerError` for a memory that cannot be
    used."""
    if not path.exists():
        return None
    try:
        found = rundir.read_json(path) if path.stat().st_size <= MAX_MEMORY else None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise LedgerError(f"{path}: not the memory of a monitor; expected the format {FORMAT!r}")
        text, seen, kinds = found.get("checkpoint"), found.get("seen"), found.get("kinds")
        if not isinstance(text, str) or type(seen) is not int or not isinstance(kinds, dict) or len(kinds) > MAX_KINDS:
            raise LedgerError(f"{path}: the memory of this monitor was damaged: expected checkpoint, seen and kinds")
        if not all(type(count) is int and count > 0 for count in kinds.values()):
            raise LedgerError(f"{path}: the memory of this monitor was damaged: expected counts of kinds")
        signed = note.parse(text.encode())
        note.verify(signed, anchor.verifiers)
        return Memory(note=signed, checkpoint=parse_checkpoint(signed.text), seen=seen, kinds=kinds)
    except (NoteError, RunError, OSError, UnicodeEncodeError) as error:
        raise LedgerError(f"{path}: the memory of this monitor cannot be used: {error}") from error


def write_memory(path: Path, memory: Memory) -> None:
    """Remember, whole or not at all."""
    value = {
        "format": FORMAT,
        "checkpoint": memory.note.content.decode(),
        "seen": memory.seen,
        "first_seen": utc(memory.seen),
        "kinds": dict(sorted(memory.kinds.items())),
    }
    try:
        rundir.write_json(path, value)
    except RunError as error:
        raise LedgerError(str(error)) from error


def _fold(ledger: LedgerDirectory, old: Checkpoint, new: Checkpoint) -> Counter[str]:
    """Return the kinds of the entries from one checkpoint to the other, which have to lead from its root to the
    other's."""
    counted = Counter[str]()
    edge = Edge.load(old.size, ledger.tile)
    at = old.size
    while at < new.size:
        stop = min(new.size, (at // TILE + 1) * TILE)
        entries = list(ledger.entries(at, stop))
        edge.add(merkle.leaf_hashes(entries))
        for entry in entries:
            kind = _kind(entry)
            counted[kind if kind in counted or len(counted) < MAX_KINDS else FOREIGN] += 1
        at = stop
    if (root := edge.root()) != new.root:
        raise LedgerError(
            f"{ledger.path}: the entries {old.size} to {new.size} do not lead to the signed root: expected "
            f"{new.root.hex()}, found {root.hex()}"
        )
    return counted


def _kind(entry: bytes) -> str:
    """Return the kind of an entry, with its version where the two are not known here."""
    try:
        head = read_head(entry)
    except LedgerError:
        return FOREIGN
    return head.kind if (head.kind, head.version) in KINDS else f"{head.kind} v{head.version}"


def _root(size: int, ledger: LedgerDirectory) -> bytes:
    return Edge.load(size, ledger.tile).root()


def _leads_to(ledger: LedgerDirectory, size: int, root: bytes, new: Checkpoint) -> bool:
    """Return whether the tiles prove that the tree of the checkpoint has this root at that size."""
    try:
        proof = merkle.prove_consistency(size, new.size, ledger.read_hashes)
        merkle.check_consistency(proof, old_size=size, old_root=root, new_size=new.size, new_root=new.root)
    except LedgerError:
        return False
    return True


def _evidence(held: Memory, found: Note, anchor: Anchor, *, root_then: bytes | None) -> Evidence:
    return Evidence(
        held=held.note,
        found=found,
        holder="you hold",
        held_signers=_signers(held.note, anchor),
        found_signers=_signers(found, anchor),
        root_then=root_then,
    )


def _signers(signed: Note, anchor: Anchor) -> tuple[str, ...]:
    try:
        return tuple(each.verifier.name for each in note.verify(signed, [key.verifier for key in anchor.logs]))
    except NoteError:
        return ()
