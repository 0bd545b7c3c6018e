"""Verification of a ledger without trust in its writer or its disk.

Everything is derived again from the entries and compared: every hash of every tile, the root, the signatures against
the caller's trust anchor, the cosignatures of earlier checkpoints, the checkpoint that the caller holds, every blob.
None of the writer's code is used.

Witnesses leave notes in `witness/<name>.note`, each with the checkpoint that one cosigned. A note remains when the log
grows; it then shows what its witness saw at a smaller size, and the tree has to agree. The cosigners of this package
name their notes `<name>+<key id>.note`: a file with the name of a witness that the anchor knows has to be that
witness's note. Any other file counts if it is valid, and is otherwise listed and ignored, however many there are, so
that writing into `witness/` cannot stop a verification.

Two signed checkpoints of one log that cannot both be true are `Evidence`: both notes together show anyone that the
log's key signed two histories, and need no trust.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from explorer import merkle, note
from explorer.errors import LedgerError, NoteError
from explorer.ledger.rebuild import Finding, Findings, Inventory, printable, rebuild, take_inventory
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.storage import (
    CHECKPOINT,
    MAX_WITNESSES,
    WITNESS,
    LedgerDirectory,
    list_notes,
    note_name,
    read_checkpoint,
    read_file,
    write_file,
)
from explorer.ledger.trust_anchor import Anchor, Judgement, judge
from explorer.note import MAX_NAME, MAX_NAMED, Note, Verified, Verifier


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A checkpoint that a reader holds, and the one in the directory that contradicts it."""

    held: Note
    found: Note
    holder: str  # "you hold", or "in <file>"
    held_signers: tuple[str, ...]  # keys of the log that have signed `held`
    found_signers: tuple[str, ...]  # and `found`
    root_then: bytes | None  # over the entries that the ledger has now, at the held size; None: there are fewer
    proof: tuple[bytes, ...] = ()  # of consistency, from `root_then` to the root of `found`

    @property
    def statement(self) -> str:
        """Return the contradiction in words."""
        held, present = parse_checkpoint(self.held.text), parse_checkpoint(self.found.text)
        done = "rolled back" if held.size > present.size else "rewritten"
        return "\n".join(
            [
                f"the ledger of {present.origin} was {done}",
                _line(f"checkpoint {self.holder}:", held, self.held_signers),
                _line("checkpoint on disk:", present, self.found_signers),
                f"  {self._why(held, present)}",
                "  keep both notes: together they are the evidence",
            ]
        )

    @property
    def name(self) -> str:
        """Return a name for the directory that keeps it; the same evidence has the same name."""
        return f"ledger-evidence-{hashlib.sha256(self.held.content + self.found.content).hexdigest()[:8]}"

    def keep(self, directory: Path) -> None:
        """Write both notes, the proof and the statement. Raises `LedgerError` if that is not possible."""
        files = {"held.note": self.held.content, "found.note": self.found.content}
        files["statement.txt"] = f"{self.statement}\n".encode()
        if self.proof:
            files["consistency.txt"] = self._consistency()
        for name, content in files.items():
            write_file(directory / name, content)

    def _why(self, held: Checkpoint, present: Checkpoint) -> str:
        if held.size > present.size:
            gone = held.size - present.size
            return f"entry {present.size} is gone" if gone == 1 else f"{gone} entries are gone, from {present.size} on"
        if held.size == present.size:
            return "one log has signed two trees of the same size"
        if self.root_then is None:
            return "the second does not extend the first"
        return (
            "the second does not extend the first: "
            f"its first {held.size} entries have root {base64.b64encode(self.root_then).decode()}"
        )

    def _consistency(self) -> bytes:
        """Return the proof in the form of a request to a witness (c2sp.org/tlog-witness): old size, hashes,
        checkpoint."""
        hashes = "".join(f"{base64.b64encode(hash_).decode()}\n" for hash_ in self.proof)
        return f"old {parse_checkpoint(self.held.text).size}\n{hashes}\n".encode() + self.found.content


def _line(what: str, checkpoint: Checkpoint, signers: tuple[str, ...]) -> str:
    root = base64.b64encode(checkpoint.root).decode()
    return f"  {what:<22} size {checkpoint.size}  root {root}  signed by {', '.join(signers)}"


# ----------------------------------------------------------------------------------------------- the notes of witnesses


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A checkpoint that the log's key signed and that was cosigned."""

    path: str  # below the ledger's directory, for messages
    note: Note
    checkpoint: Checkpoint
    cosigners: tuple[Verified, ...]  # those that the anchor knows, perhaps none


def read_witnesses(directory: Path, *, anchor: Anchor, origin: str, findings: Findings) -> tuple[list[Seen], list[str]]:
    """Return the notes that a known key has signed, and a line for each file that vouches for nothing.

    A file with the name of a known witness that is damaged, of another log or without the required signatures is a
    finding.
    """
    seen: list[Seen] = []
    idle: list[str] = []
    owners = {f"{WITNESS}/{note_name(witness.key.verifier)}": witness.key.verifier for witness in anchor.witnesses}
    try:
        paths, more = list_notes(directory, {path.removeprefix(f"{WITNESS}/") for path in owners})
    except LedgerError as error:
        findings.add(WITNESS, str(error))
        return [], []
    # Only a note under the name of a known witness can be a finding: anyone may write other files here.
    for path in paths:
        try:
            witnessed = _read(directory, path, owners.get(path), anchor, origin)
        except (LedgerError, NoteError) as error:
            why = str(error).removeprefix(f"{directory / path}: ")
            if path in owners:
                findings.add(path, why)
            else:
                idle.append(f"{printable(path)}: {printable(why)}")
            continue
        if witnessed is not None:
            seen.append(witnessed)
        if witnessed is None or not witnessed.cosigners:
            idle.append(f"{printable(path)}: not cosigned by any trusted key")
    if more:
        idle.append(f"{WITNESS}/: {more} more notes, which were not read; at most {MAX_WITNESSES} are")
    return seen, idle


def _read(directory: Path, path: str, owner: Verifier | None, anchor: Anchor, origin: str) -> Seen | None:
    left = note.parse(read_file(directory, path, max_bytes=note.MAX_BYTES) or b"")
    checkpoint = parse_checkpoint(left.text)
    logs = {key.verifier for key in anchor.logs}
    witnesses = {witness.key.verifier for witness in anchor.witnesses}
    keys = {(verifier.name, verifier.key_id) for verifier in anchor.verifiers}
    # Without any known key there is nothing to verify, and only the owner of the file's name could object.
    known = any((signature.name, signature.key_id) in keys for signature in left.signatures)
    verified = note.verify(left, anchor.verifiers) if known else ()
    cosigners = tuple(line for line in verified if line.verifier in witnesses)
    if owner is not None and owner not in [line.verifier for line in cosigners]:
        raise LedgerError(f"has no cosignature of {owner.name}")
    if not known:
        return None
    if checkpoint.origin != origin:
        raise LedgerError(f"is of another log, {checkpoint.origin!r}")
    # A cosignature proves that its witness saw the text, and only the log's signature that the log had this tree.
    if not any(line.verifier in logs for line in verified):
        raise LedgerError("no trusted log has signed its checkpoint")
    return Seen(path=printable(path), note=left, checkpoint=checkpoint, cosigners=cosigners)


# ----------------------------------------------------------------------------------------------------- the verification


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """The result of a verification. It is good if the anchor trusts the checkpoint and nothing contradicts it."""

    note: Note  # the file `checkpoint`
    checkpoint: Checkpoint
    judgement: Judgement | None  # None: the anchor does not trust the checkpoint
    held: Checkpoint | None  # the one that the caller holds
    older: tuple[Seen, ...]  # earlier checkpoints that witnesses have cosigned
    blobs: int  # that were hashed
    findings: tuple[Finding, ...]
    more: int  # findings beyond these
    uncovered: tuple[str, ...]  # in words: parts that no signature and no hash covers
    evidence: Evidence | None  # of the first contradiction between two signed checkpoints

    @property
    def ok(self) -> bool:
        return self.judgement is not None and not self.findings


def verify(directory: Path, *, anchor: Anchor, held: Note | None = None, now: int) -> Verification:
    """Verify the ledger in `directory` against the anchor, and against a checkpoint that the caller holds.

    `now` is in seconds since 1970. Memory does not grow with the log. Raises `LedgerError` if the checkpoint cannot be
    read, and if `held` is not a checkpoint of this log.
    """
    # Earlier checkpoints that the tree has to extend: the caller's first, so that it is the evidence of a fork.
    own_note, checkpoint = read_checkpoint(directory)
    findings = Findings()
    claims = [] if held is None else [_held(held, anchor, checkpoint.origin)]
    seen, idle = read_witnesses(directory, anchor=anchor, origin=checkpoint.origin, findings=findings)
    claims += [_Claim(note=s.note, checkpoint=s.checkpoint, holder=f"in {s.path}", path=s.path) for s in seen]
    # Signatures, then the tree, then both together. Nothing stops at the first fault: a reader sees them all.
    judgement = _judge(own_note, seen, idle, anchor=anchor, now=now, findings=findings)
    roots = _rebuild(directory, checkpoint, claims, findings)
    evidence = _contradictions(
        directory, own_note, checkpoint, claims=claims, roots=roots, anchor=anchor, findings=findings
    )
    # Last, since a damaged tree is worse than a file too many, and the number of findings is limited.
    inventory = take_inventory(directory, size=checkpoint.size, findings=findings)
    return Verification(
        note=own_note,
        checkpoint=checkpoint,
        judgement=judgement,
        held=claims[0].checkpoint if held else None,
        older=tuple(older for older in seen if older.checkpoint.size < checkpoint.size and older.cosigners),
        blobs=inventory.blobs,
        findings=tuple(findings.kept),
        more=findings.more,
        uncovered=tuple(_uncovered(judgement, idle, inventory)),
        evidence=evidence,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Claim:
    """An earlier checkpoint that the tree has to extend."""

    note: Note
    checkpoint: Checkpoint
    holder: str  # "you hold", or "in <file>"
    path: str  # where a contradiction is reported


def _held(held: Note, anchor: Anchor, origin: str) -> _Claim:
    """Return the caller's checkpoint, which needs a signature of a key in the anchor; its time does not matter."""
    try:
        checkpoint = parse_checkpoint(held.text)
        if anchor.logs:
            note.verify(held, anchor.verifiers)
    except (LedgerError, NoteError) as error:
        raise LedgerError(f"the checkpoint you hold: {error}") from error
    if checkpoint.origin != origin:
        raise LedgerError(f"the checkpoint you hold is of another log, {checkpoint.origin!r}; this one is {origin!r}")
    return _Claim(note=held, checkpoint=checkpoint, holder="you hold", path=CHECKPOINT)


def _judge(
    own_note: Note, seen: Sequence[Seen], idle: Sequence[str], *, anchor: Anchor, now: int, findings: Findings
) -> Judgement | None:
    """Return the judgement over the checkpoint with all its cosignatures; None, and a finding, if it is not trusted.

    Only cosignatures are taken from the witnesses' notes: the log has to have signed the file `checkpoint` itself.
    """
    cosigners = {(witness.key.verifier.name, witness.key.verifier.key_id) for witness in anchor.witnesses}
    same = [
        signature
        for witnessed in seen
        if witnessed.note.text == own_note.text
        for signature in witnessed.note.signatures
    ]
    cosignatures = [signature for signature in same if (signature.name, signature.key_id) in cosigners]
    try:
        return judge(note.with_signatures(own_note, cosignatures), anchor=anchor, now=now)
    except LedgerError as error:
        others = f"; ignored: {'; '.join(idle[:MAX_NAMED])}" if idle else ""
        findings.conclude(CHECKPOINT, f"{error}{others}")
        return None


def _rebuild(directory: Path, checkpoint: Checkpoint, claims: Sequence[_Claim], findings: Findings) -> dict[int, bytes]:
    sizes = {claim.checkpoint.size for claim in claims if claim.checkpoint.size <= checkpoint.size}
    roots = rebuild(directory, checkpoint, sizes=sizes, findings=findings)
    root = roots.get(checkpoint.size, checkpoint.root)
    if root != checkpoint.root:
        message = f"the {checkpoint.size} entries do not have the root that the checkpoint names"
        findings.conclude(CHECKPOINT, message, expected=checkpoint.root.hex(), found=root.hex())
    return roots


def _contradictions(
    directory: Path,
    own_note: Note,
    checkpoint: Checkpoint,
    *,
    claims: Sequence[_Claim],
    roots: Mapping[int, bytes],
    anchor: Anchor,
    findings: Findings,
) -> Evidence | None:
    """Compare the tree with every earlier checkpoint; return the evidence of the first contradiction.

    Args:
        directory: the ledger.
        own_note: its signed checkpoint.
        checkpoint: the same, parsed.
        claims: the earlier checkpoints.
        roots: the roots that the entries give, by size.
        anchor: the logs whose signatures make a contradiction evidence.
        findings: gets a fault for each contradiction.
    """
    evidence = None
    for claim in claims:
        size, root = claim.checkpoint.size, claim.checkpoint.root
        # In this order: fewer entries than were seen, two trees of one size, agreement, damaged entries, other entries.
        if size > checkpoint.size:
            message = f"rolled back: the checkpoint {claim.holder} is of size {size}, this one of {checkpoint.size}"
            findings.conclude(claim.path, message)
        elif size == checkpoint.size and root != checkpoint.root:
            message = f"a second tree of size {size}: the checkpoint {claim.holder} has another root"
            findings.conclude(claim.path, message, expected=root.hex(), found=checkpoint.root.hex())
        elif size == checkpoint.size or roots.get(size) == root:
            continue
        elif roots.get(checkpoint.size) != checkpoint.root:
            _check_by_tiles(directory, claim, checkpoint, findings)
            continue  # entries that belong to neither checkpoint are damage, not evidence against the signer
        else:
            message = f"rewritten: the first {size} entries do not have the root in the checkpoint {claim.holder}"
            findings.conclude(claim.path, message, expected=root.hex(), found=roots[size].hex())
        if evidence is None:
            evidence = _evidence(directory, claim, own_note, checkpoint, root_then=roots.get(size), anchor=anchor)
    return evidence


def _check_by_tiles(directory: Path, claim: _Claim, checkpoint: Checkpoint, findings: Findings) -> None:
    """Add a finding unless the tiles prove that the checkpoint extends the claim; the entries are damaged."""
    old, new = claim.checkpoint, checkpoint
    try:
        proof = merkle.prove_consistency(old.size, new.size, LedgerDirectory(directory).hashes(new.size))
        merkle.check_consistency(proof, old_size=old.size, old_root=old.root, new_size=new.size, new_root=new.root)
    except LedgerError:
        message = f"cannot be shown to extend the checkpoint {claim.holder}: entries or tiles are damaged"
        findings.conclude(claim.path, message)


def _evidence(
    directory: Path, claim: _Claim, own_note: Note, checkpoint: Checkpoint, *, root_then: bytes | None, anchor: Anchor
) -> Evidence | None:
    """Return both notes, with a proof that the tree on disk extends another one at the earlier size, if there is one.

    Returns None unless a log that the anchor knows has signed both: otherwise one of them may be a forgery.
    """
    signers = [_signers(signed, anchor) for signed in (claim.note, own_note)]
    if not all(signers):
        return None
    proof: tuple[bytes, ...] = ()
    if root_then is not None:
        old, new = claim.checkpoint.size, checkpoint.size
        try:
            proof = merkle.prove_consistency(old, new, LedgerDirectory(directory).hashes(new))
            merkle.check_consistency(proof, old_size=old, old_root=root_then, new_size=new, new_root=checkpoint.root)
        except LedgerError:
            proof = ()  # the tiles are damaged too, which is among the findings
    return Evidence(
        held=claim.note,
        found=own_note,
        holder=claim.holder,
        held_signers=signers[0],
        found_signers=signers[1],
        root_then=root_then,
        proof=proof,
    )


def _signers(signed: Note, anchor: Anchor) -> tuple[str, ...]:
    """Return the names of the logs that have signed, at any time."""
    try:
        return tuple(line.verifier.name for line in note.verify(signed, [key.verifier for key in anchor.logs]))
    except NoteError:
        return ()


def _uncovered(judgement: Judgement | None, idle: Sequence[str], inventory: Inventory) -> list[str]:
    ignored = judgement.ignored if judgement else ()
    more = f" and {len(ignored) - MAX_NAMED} more" if len(ignored) > MAX_NAMED else ""
    names = ", ".join(printable(name[-MAX_NAME:]) for name in ignored[:MAX_NAMED])
    words = [f"signature lines of unknown keys: {names}{more}"] if ignored else []
    words += idle
    if inventory.beyond:
        words.append(
            f"{inventory.beyond} tiles and bundles beyond the checkpoint: of a writer at work, of one that was killed, "
            "or left over from a ledger that was rolled back"
        )
    if inventory.set_aside:
        words.append("unsigned/: files beyond the checkpoint, which a writer set aside when it opened the ledger")
    if inventory.unfinished:
        words.append(f"{inventory.unfinished} temporary files of unfinished writes")
    return words
