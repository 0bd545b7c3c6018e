"""A monitor of a log: it counts new entries since its last look, and checks that the log is still the same.

A look is a fold over the entries since the last one. Its memory is one file: the last good checkpoint, when it was
first seen, and the number of entries of each kind up to it. Each look starts from the remembered root, adds the new
entries, and must arrive at the new root. So the entries are those that the log's key has signed, and the tree extends
the one of the last look. An interrupted look leaves the memory as it was, and is repeated.

A monitor cannot see genuine entries that should not exist, nor a different log that is shown to others. The latter
takes witnesses who cosign checkpoints; the anchor names them.
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
FOREIGN = "(not an entry)"  # bytes of other software, which have no kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """The state of a log at the last good look."""

    note: Note
    checkpoint: Checkpoint
    seen: int  # when this checkpoint was first seen, seconds since 1970
    kinds: Mapping[str, int]  # entries of each kind up to it


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """Result of one look."""

    before: Checkpoint | None
    judgement: Judgement
    memory: Memory  # to remember
    new: Mapping[str, int]  # entries since the last look, by kind
    unknown: Mapping[str, int]  # those of them whose kind is not known here
    silent: int | None  # seconds without a new checkpoint, where that is longer than allowed
    evidence: Evidence | None  # of a fork or a roll-back; the memory stays as it was


def look(
    ledger: LedgerDirectory, held: Memory | None, *, anchor: Anchor, now: int, patience: int | None = None
) -> Look:
    """Compare a log with the memory of it.

    Args:
        ledger: the log.
        held: memory of the last look; None: this is the first.
        anchor: keys that are believed, with the quorum of witnesses.
        now: time of the look, in seconds since 1970.
        patience: seconds that the log may be without a new checkpoint.

    Raises `LedgerError` for a log that cannot be read, is damaged, or is not believed by the anchor.
    """
    signed = ledger.note()
    judgement = judge(signed, anchor=anchor, now=now)
    new = judgement.checkpoint
    old = None if held is None else held.checkpoint
    if old is not None and old.origin != new.origin:
        raise LedgerError(f"another log, {new.origin!r}; remembered is {old.origin!r}")
    # Both checkpoints are signed. A smaller tree, or another root at the same size, is evidence by itself. Otherwise
    # the root at the old size decides: computed from the tiles, it is the remembered one in an honest log.
    evidence, counted = None, Counter[str]()
    if (
        held is not None
        and old is not None
        and (old.size > new.size or (old.size == new.size and old.root != new.root))
    ):
        evidence = _evidence(held, signed, anchor, root_then=None)
    else:
        start = old or Checkpoint(origin=new.origin, size=0, root=merkle.EMPTY_ROOT)
        root_then = _root(start.size, ledger)
        if root_then == start.root:
            counted = _fold(ledger, start, new)
        elif held is not None and _leads_to(ledger, start.size, root_then, new):
            # The new tree has another past: the tiles prove it, and with the two notes so can anyone.
            evidence = _evidence(held, signed, anchor, root_then=root_then)
        else:
            # The tiles fit neither checkpoint: a damaged copy, and no evidence against the log.
            raise LedgerError(f"{ledger.path}: its tiles lead neither to the remembered root nor to the signed one")
    if held is not None and (evidence is not None or old == new):
        memory = held
    else:
        kinds = Counter(held.kinds if held else {}) + counted
        memory = Memory(note=note.of_keys(signed, anchor.verifiers), checkpoint=new, seen=now, kinds=dict(kinds))
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
    """Read the memory; None if there is no such file. Raises `LedgerError` for a memory that cannot be used."""
    if not path.exists():
        return None
    try:
        value = rundir.read_json(path) if path.stat().st_size <= MAX_MEMORY else None
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise LedgerError(f"{path}: not the memory of a monitor; expected the format {FORMAT!r}")
        text, seen, kinds = value.get("checkpoint"), value.get("seen"), value.get("kinds")
        if not isinstance(text, str) or type(seen) is not int or not isinstance(kinds, dict) or len(kinds) > MAX_KINDS:
            raise LedgerError(f"{path}: the memory of this monitor was damaged: expected checkpoint, seen and kinds")
        if not all(type(count) is int and count > 0 for count in kinds.values()):
            raise LedgerError(f"{path}: the memory of this monitor was damaged: expected counts of kinds")
        # Its signatures are verified again: the file may have been edited, and a false memory accuses the log.
        signed = note.parse(text.encode())
        note.verify(signed, anchor.verifiers)
        return Memory(note=signed, checkpoint=parse_checkpoint(signed.text), seen=seen, kinds=kinds)
    except (NoteError, RunError, OSError, UnicodeEncodeError) as error:
        raise LedgerError(f"{path}: the memory of this monitor cannot be used: {error}") from error


def write_memory(path: Path, memory: Memory) -> None:
    """Write the memory, whole or not at all."""
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
    """Count the entries between two checkpoints by kind, and check that they lead from the old root to the new one."""
    # A tile of entries at a time, so that memory does not grow with the log.
    counted = Counter[str]()
    edge = Edge.load(old.size, ledger.tile)
    at = old.size
    while at < new.size:
        stop = min(new.size, (at // TILE + 1) * TILE)
        entries = list(ledger.entries(at, stop))
        edge.add(merkle.leaf_hashes(entries))
        for entry in entries:
            # A log may hold any number of kinds; beyond `MAX_KINDS` they are counted as one.
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
    """Return the kind of an entry, with its version where kind and version are not known here."""
    try:
        head = read_head(entry)
    except LedgerError:
        return FOREIGN
    return head.kind if (head.kind, head.version) in KINDS else f"{head.kind} v{head.version}"


def _root(size: int, ledger: LedgerDirectory) -> bytes:
    return Edge.load(size, ledger.tile).root()


def _leads_to(ledger: LedgerDirectory, size: int, root: bytes, new: Checkpoint) -> bool:
    """Return whether the tiles prove that the tree of the checkpoint had this root at that size."""
    try:
        proof = merkle.prove_consistency(size, new.size, ledger.read_hashes)
        merkle.check_consistency(proof, old_size=size, old_root=root, new_size=new.size, new_root=new.root)
    except LedgerError:
        return False
    return True


def _evidence(held: Memory, present: Note, anchor: Anchor, *, root_then: bytes | None) -> Evidence:
    return Evidence(
        held=held.note,
        found=present,
        holder="you hold",
        held_signers=_signers(held.note, anchor),
        found_signers=_signers(present, anchor),
        root_then=root_then,
    )


def _signers(signed: Note, anchor: Anchor) -> tuple[str, ...]:
    try:
        signatures = note.verify(signed, [key.verifier for key in anchor.logs])
        return tuple(signature.verifier.name for signature in signatures)
    except NoteError:
        return ()
