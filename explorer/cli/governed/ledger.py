"""`explorer ledger verify|prove|check`: verify a ledger, prove an entry, check such a proof."""

import base64
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import note
from explorer.audit.named_blobs import WITHOUT, Blobs, Erasures, NoErasures, look_for_blobs
from explorer.cli import options
from explorer.cli.verbs import part
from explorer.entries.heads import read_head
from explorer.errors import LedgerError, NoteError
from explorer.ledger.proof import MAX_BYTES, check_proof, make_proof, parse_proof, write_proof
from explorer.ledger.signed_checkpoint import parse_checkpoint
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.tiles import MAX_ENTRY
from explorer.ledger.trust_anchor import MAX_POLICY, Anchor, Judgement, anchor_of, parse_policy, utc
from explorer.ledger.verify import Evidence, Verification
from explorer.ledger.verify import verify as verify_ledger
from explorer.note import Note, Verifier
from explorer.page.document import Block, Paragraph
from explorer.page.terminal import Answer
from explorer.rundir import read_bytes


def verify(
    directory: options.Directory,
    trust: options.AnchorTrust = None,
    policy: options.Policy = None,
    vkey: options.Vkeys = None,
    held: Annotated[
        Path | None,
        typer.Option("--held", metavar="NOTE", help="A checkpoint that you kept. The ledger has to extend it."),
    ] = None,
    contents: Annotated[
        bool,
        typer.Option("--contents", help="Also check the fields of every entry and the order of the entries."),
    ] = False,
    evidence: options.Evidence = None,
) -> Answer:
    """Check a ledger: files, signatures, quorum.

    The tree is rebuilt from the entries, and every file is compared with it. Every blob that an entry names has to be
    there, unless the project's ledger records its erasure. The exit status is 0 only if all of this holds and the
    trusted keys have signed.
    """
    anchor = named_anchor(trust, policy, vkey, origin_of=directory)
    kept = None if held is None else _note(held)
    verification = verify_ledger(directory, anchor=anchor, held=kept, now=options.clock())
    # What entries say counts only once the files are known to be the signed ones.
    read, blobs = _contents(directory, trust, deep=contents) if verification.ok else (None, None)
    ok = verification.ok and not (read and read.fault) and not (blobs and blobs.missing)
    return Answer(
        page=lambda: [
            *verification_blocks(verification, directory, anchored=bool(anchor.logs)),
            *_contents_blocks(read),
            *_blobs_blocks(blobs),
        ],
        record=lambda: {
            **verification_json(verification, directory),
            "ok": ok,
            "contents": _contents_json(read),
            "named_blobs": None if blobs is None else asdict(blobs),
        },
        holds=ok,
        remark="\n".join(
            filter(None, (options.warn_of_own(trust, directory), keep_evidence(verification.evidence, evidence)))
        ),
    )


def prove(
    directory: options.Directory,
    index: Annotated[int, typer.Argument(metavar="INDEX", help="Number of the entry, counted from 0.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File to write, such as entry.tlog-proof.")],
) -> Answer:
    """Write a proof that an entry is in the ledger.

    The file (C2SP tlog-proof) also holds the entry and the checkpoint. `explorer ledger check` checks it on any
    machine, without the rest of the ledger.
    """
    ledger = LedgerDirectory(directory)
    proof = make_proof(ledger, index)
    write_proof(out, proof)
    checkpoint = ledger.checkpoint()
    log = {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
    return Answer(
        page=lambda: [f"{out}: entry {index} of {checkpoint.size} in the ledger of {checkpoint.origin}"],
        record=lambda: {"file": str(out), "index": index, **log},
    )


def check(
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="A proof file.")],
    entry: Annotated[
        Path | None, typer.Option("--entry", metavar="FILE", help="The entry. Default: the one in the proof file.")
    ] = None,
    trust: options.AnchorTrust = None,
    policy: options.Policy = None,
    vkey: options.Vkeys = None,
) -> Answer:
    """Check a proof that an entry is in a ledger that trusted keys have signed.

    Only the proof file is needed.
    """
    parsed = parse_proof(_content(proof, MAX_BYTES), where=str(proof))
    origin = parse_checkpoint(parsed.checkpoint.text).origin
    anchor = required(named_anchor(trust, policy, vkey, origin=origin))
    own = None if entry is None else _content(entry, MAX_ENTRY)
    judgement = check_proof(parsed, own, anchor=anchor, now=options.clock())
    proved = parsed.extra if own is None else own
    assert proved is not None
    text = proved.decode(errors="backslashreplace")
    shown = text if text.isprintable() else ascii(text)
    return Answer(
        page=lambda: [f"{proof}: entry {parsed.index} is in the ledger", *judgement_lines(judgement), shown],
        record=lambda: {"ok": True, "index": parsed.index, **_entry_json(proved), **proof_json(judgement)},
    )


def named_anchor(
    trust: Path | None, policy: Path | None, vkeys: list[str] | None, *, origin: str = "", origin_of: Path | None = None
) -> Anchor:
    """Return the trust anchor that --trust, --policy or --vkey names; an empty one where none is given.

    In a trust file a trainer's key signs under the name of each ledger, so that one needs the name: `origin`, or the
    directory of the ledger, `origin_of`.
    """
    if (trust is not None) + (policy is not None) + bool(vkeys) > 1:
        raise LedgerError("name trusted keys in one way: expected only one of --trust, --policy and --vkey")
    if trust is not None:
        read = part("ledger --trust")(trust)
        if origin_of is not None:
            return part("ledger DIR --trust, signers")(LedgerDirectory(origin_of), read)
        return part("ledger --trust, signers")(read, origin=origin)
    if policy is not None:
        return parse_policy(_content(policy, MAX_POLICY), where=str(policy))
    return anchor_of(vkeys) if vkeys else Anchor()


def required(anchor: Anchor) -> Anchor:
    """Return the anchor. Raises `LedgerError` for an empty one."""
    if not anchor.logs:
        raise LedgerError("name trusted keys: --trust FILE, --policy FILE or --vkey KEY")
    return anchor


def _note(path: Path) -> Note:
    try:
        return note.parse(_content(path, note.MAX_BYTES))
    except NoteError as error:
        raise LedgerError(f"{path}: {error}") from error


def _content(path: Path, max_bytes: int) -> bytes:
    return read_bytes(path, max_bytes=max_bytes, error=LedgerError)


def _entry_json(entry: bytes) -> dict[str, str | None]:
    """Return an entry as text, where it is text, and in base64."""
    try:
        text = entry.decode()
    except UnicodeDecodeError:
        text = None
    return {"entry": text, "base64": base64.b64encode(entry).decode()}


def _contents(directory: Path, trust: Path | None, *, deep: bool) -> tuple[Any, Blobs]:
    """Check that the blobs named by entries are here, and where `deep` also the entries.

    A recorded erasure excuses a missing blob only with a trust file, which says whose records count.
    """
    ledger = LedgerDirectory(directory)
    erasures: Erasures = NoErasures(without=f"{WITHOUT}: --trust FILE names whose erasures count")
    if trust is not None:
        erasures = part("ledger verify --trust")(ledger, trust=part("ledger --trust")(trust), now=options.clock())
    if not deep:
        return None, look_for_blobs(ledger, erasures=erasures)

    checked = part("ledger verify --contents")(ledger, erasures=erasures)
    return checked, checked.blobs


def keep_evidence(fork: Evidence | None, to: Path | None) -> str:
    """Write the evidence of a fork to a directory of its own, and return where; empty without a fork."""
    if fork is None:
        return ""
    directory = (to or Path()) / fork.name
    fork.keep(directory)
    return f"  they are kept in {directory}/"


ROLL_BACK = """\
A ledger that was rolled back to an earlier checkpoint would look the same: only the holder of a later one can tell.
Keep a copy of its file `checkpoint`, and give it with --held the next time."""

NO_ANCHOR = """\
Not verified: no trust anchor given. The files are consistent with each other, which a forger could arrange too.
Name trusted keys from a source other than this directory: --trust FILE, --policy FILE or --vkey KEY."""

KEEP = """\
To keep the evidence, copy the whole directory, and this report with it, before anything writes to it again (cp -a)."""

UNFINISHED = "unfinished: its last entry is not 'end', so more entries may follow"
FOREIGN = "unknown: its last entry is not one of Explorer's"


def verification_blocks(verification: Verification, directory: Path, *, anchored: bool) -> Iterator[Block | str]:
    """Yield a verification; one that fails is an alert. `anchored`: whether the caller named a trust anchor."""
    if verification.ok:
        yield from _sound(verification, directory)
    else:
        yield Paragraph("\n".join(_unsound(verification, directory, anchored=anchored)), "alert")


def _unsound(verification: Verification, directory: Path, *, anchored: bool) -> Iterator[str]:
    yield f"explorer: {directory}: not verified"
    for finding in verification.findings:
        yield f"  {finding.path}: {finding.message}"
        for name, value in (("expected", finding.expected), ("found", finding.found)):
            if value is not None:
                yield f"    {name:<9} {value}"
    if verification.more:
        yield f"  and {verification.more} more"
    if not anchored:
        yield NO_ANCHOR
    if anchored or len(verification.findings) > 1:
        yield KEEP
    if verification.evidence:
        yield verification.evidence.statement


def verification_json(verification: Verification, directory: Path) -> dict[str, Any]:
    """Return the record of a verification."""
    held, checkpoint = verification.held, verification.checkpoint
    return {
        "ok": verification.ok,
        "origin": checkpoint.origin,
        "size": checkpoint.size,
        "root": checkpoint.root.hex(),
        "finished": is_finished(directory, verification) if verification.ok else None,
        **(
            _signatures_json(verification.judgement) if verification.judgement else {"signed_by": [], "cosigned_by": []}
        ),
        "held": {"size": held.size, "root": held.root.hex()} if held else None,
        "earlier_cosignatures": [
            {**_key_json(cosigner.verifier), "time": cosigner.time, "size": seen.checkpoint.size, "path": seen.path}
            for seen in verification.older
            for cosigner in seen.cosigners
        ],
        "blobs": verification.blobs,
        "findings": [asdict(finding) for finding in verification.findings],
        "more_findings": verification.more,
        "not_covered": list(verification.uncovered),
        "fork": verification.evidence.statement if verification.evidence else None,
    }


def _contents_blocks(contents: Any) -> Iterator[Block | str]:
    """Yield the check of the entries, if they were read; a fault is an alert."""
    if contents is None:
        return
    if contents.fault:
        yield Paragraph(f"explorer: the files are sound, but not their entries: {contents.fault}", "alert")
    elif contents.order is None:
        yield "entries: not Explorer's, so their order was not checked"
    else:
        order = contents.order
        steps = "" if order.steps is None else f"{order.steps} step{'s' * (order.steps != 1)}, "
        yield f"entries: {order.entries} in a valid order, {steps}{order.unknown} of unknown kinds"


def _blobs_blocks(blobs: Blobs | None) -> Iterator[Block | str]:
    """Yield the check of the blobs that entries name, if it was made; missing ones are an alert."""
    if blobs is None:
        return
    if blobs.missing:
        words = f"{blobs.missing} blobs that entries name are missing, with no record of their erasure"
        lines = [f"explorer: the files are sound, but incomplete: {words}", *(f"  {blob}" for blob in blobs.first)]
        lines += [f"  and {blobs.missing - len(blobs.first)} more"] if blobs.missing > len(blobs.first) else []
        yield Paragraph("\n".join(lines), "alert")
    if blobs.erased:
        by = ", ".join(map(str, blobs.by))
        yield f"erased: {blobs.erased} blobs, by entry {by} of the project's ledger; their content is unknown"
    if blobs.strange:
        yield f"entries: {blobs.strange} are not Explorer's; their blobs were not looked for"


def _contents_json(contents: Any) -> dict[str, Any] | None:
    """Return the record of the entries."""
    if contents is None:
        return None
    order = None if contents.order is None else asdict(contents.order)
    return {"order": order, "fault": contents.fault}


def proof_json(judgement: Judgement) -> dict[str, Any]:
    """Return the record of the signatures under a proof."""
    checkpoint = judgement.checkpoint
    log = {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
    return {**log, **_signatures_json(judgement)}


def judgement_lines(judgement: Judgement) -> Iterator[str]:
    """Yield lines on the log, its checkpoint and its signatures."""
    checkpoint = judgement.checkpoint
    yield f"  log          {checkpoint.origin}"
    yield f"  size         {checkpoint.size} entries"
    yield f"  root         {base64.b64encode(checkpoint.root).decode()}"
    for verifier, words in zip(judgement.signed_by, judgement.signers, strict=True):
        yield f"  signed by    {_name(verifier)}{words.removeprefix(verifier.name)}"
    for cosignature in judgement.cosignatures:
        fault = f", which does not count: {cosignature.fault}" if cosignature.fault else ""
        yield f"  cosigned by  {_name(cosignature.verifier)} at {utc(cosignature.time)}{fault}"


def is_finished(directory: Path, verification: Verification) -> bool | None:
    """Return whether the last entry of a sound ledger is its end; None for an entry of unknown kind."""
    size = verification.checkpoint.size
    if size == 0:
        return False
    try:
        (last,) = LedgerDirectory(directory).entries(size - 1, size)
        return read_head(last).kind == "end"
    except LedgerError:
        return None


def _sound(verification: Verification, directory: Path) -> Iterator[str]:
    assert verification.judgement is not None
    yield f"{directory}: verified"
    yield from judgement_lines(verification.judgement)
    for seen in verification.older:
        for cosigner in seen.cosigners:
            when = "" if cosigner.time is None else f" at {utc(cosigner.time)}"
            yield f"  earlier      {_name(cosigner.verifier)} cosigned size {seen.checkpoint.size}{when}"
    if verification.held:
        yield f"  you hold     size {verification.held.size}, which this ledger extends"
    if verification.blobs:
        yield f"  blobs        {verification.blobs}, each with the digest in its name"
    finished = is_finished(directory, verification)
    if not finished:
        yield f"  end          {FOREIGN if finished is None else UNFINISHED}"
    for words in verification.uncovered:
        yield f"  not covered  {words}"
    yield ROLL_BACK


def _signatures_json(judgement: Judgement) -> dict[str, Any]:
    return {
        "signed_by": [
            {**_key_json(verifier), **({} if words == verifier.name else {"words": words})}
            for verifier, words in zip(judgement.signed_by, judgement.signers, strict=True)
        ],
        "cosigned_by": [
            {
                **_key_json(cosignature.verifier),
                "time": cosignature.time,
                "counts": cosignature.fault is None,
                "fault": cosignature.fault,
            }
            for cosignature in judgement.cosignatures
        ],
    }


def _key_json(verifier: Verifier) -> dict[str, str]:
    return {"name": verifier.name, "key_id": verifier.key_id.hex()}


def _name(verifier: Verifier) -> str:
    return f"{verifier.name} ({verifier.key_id.hex()})"
