"""How the verification of a ledger is told: to people, and to programs."""

import base64
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explorer.cli.output import visible
from explorer.entries.envelope import read_head
from explorer.errors import LedgerError
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.trust_anchor import Judgement, utc
from explorer.ledger.verify import Verification
from explorer.note import Verifier

if TYPE_CHECKING:
    from explorer.audit.contents import Contents
    from explorer.audit.named_blobs import Blobs

ROLL_BACK = """\
A ledger that was rolled back to an earlier checkpoint would look like this too: only who holds a later one can tell.
Keep a copy of its file `checkpoint`, and give it with --held the next time."""

NOBODY = """\
Nobody vouches for these files, and a forger's would agree with each other just as well. Say whom to believe, from a
source other than this directory: --trust FILE, --policy FILE or --vkey KEY."""

KEEP = """\
To keep the evidence, copy the whole directory before anything writes to it again (cp -a), and this report with it."""

UNFINISHED = "unfinished: its last entry is not 'end', so there may be more to come"
FOREIGN = "its last entry is not one of Explorer's, so that nothing is known of an end"


def print_verification(found: Verification, directory: Path, *, anchored: bool) -> None:
    """What was found; on standard error where it does not hold. `anchored`: whether the caller believes anybody."""
    if found.ok:
        _print_lines(_sound(found, directory))
        return
    print(f"explorer: {directory}: not verified", file=sys.stderr)
    for finding in found.findings:
        print(visible(f"  {finding.path}: {finding.message}"), file=sys.stderr)
        for name, value in (("expected", finding.expected), ("found", finding.found)):
            if value is not None:
                print(f"    {name:<9} {value}", file=sys.stderr)
    if found.more:
        print(f"  and {found.more} more", file=sys.stderr)
    if not anchored:
        print(NOBODY, file=sys.stderr)
    if anchored or len(found.findings) > 1:
        print(KEEP, file=sys.stderr)
    if found.evidence:
        print(found.evidence.statement, file=sys.stderr)


def verification_json(found: Verification, directory: Path) -> dict[str, Any]:
    """The same for programs."""
    held, checkpoint = found.held, found.checkpoint
    return {
        "ok": found.ok,
        "origin": checkpoint.origin,
        "size": checkpoint.size,
        "root": checkpoint.root.hex(),
        "finished": is_finished(directory, found) if found.ok else None,
        **(_signatures_json(found.judgement) if found.judgement else {"signed_by": [], "cosigned_by": []}),
        "held": {"size": held.size, "root": held.root.hex()} if held else None,
        "earlier_cosignatures": [
            {**_key_json(each.verifier), "time": each.time, "size": seen.checkpoint.size, "path": seen.path}
            for seen in found.older
            for each in seen.cosigners
        ],
        "blobs": found.blobs,
        "findings": [asdict(finding) for finding in found.findings],
        "more_findings": found.more,
        "not_covered": list(found.uncovered),
        "fork": found.evidence.statement if found.evidence else None,
    }


def print_contents(contents: "Contents | None") -> None:
    """What the entries come to, if they were read; on standard error where they cannot stand in their order."""
    if contents is None:
        return
    if contents.fault:
        print(f"explorer: the files are sound, and their entries cannot be: {contents.fault}", file=sys.stderr)
    elif contents.order is None:
        print("entries: not Explorer's; nothing is known of their order")
    else:
        order = contents.order
        steps = "" if order.steps is None else f"{order.steps} step{'s' * (order.steps != 1)}, "
        print(f"entries: {order.entries} in an order that can be, {steps}{order.unknown} of kinds not known here")


def print_blobs(blobs: "Blobs | None") -> None:
    """What became of the blobs that entries name, if they were looked for; on standard error where some are missing."""
    if blobs is None:
        return
    if blobs.missing:
        words = f"{blobs.missing} blobs that entries name are not here, and were not erased on record"
        print(f"explorer: the files are sound, and not all are here: {words}", file=sys.stderr)
        for each in blobs.first:
            print(visible(f"  {each}"), file=sys.stderr)
        if blobs.missing > len(blobs.first):
            print(f"  and {blobs.missing - len(blobs.first)} more", file=sys.stderr)
    if blobs.erased:
        by = ", ".join(map(str, blobs.by))
        print(f"erased: {blobs.erased} blobs, by entry {by} of the project's ledger; what was in them cannot be told")
    if blobs.strange:
        print(f"entries: {blobs.strange} are not Explorer's; whether the blobs that they name are here is not known")


def blobs_json(blobs: "Blobs | None") -> dict[str, Any] | None:
    """The same for programs."""
    return None if blobs is None else asdict(blobs)


def contents_json(contents: "Contents | None") -> dict[str, Any] | None:
    """The same for programs."""
    if contents is None:
        return None
    order = None if contents.order is None else asdict(contents.order)
    return {"order": order, "fault": contents.fault}


def proof_json(judgement: Judgement) -> dict[str, Any]:
    """Who vouches for a proof, for programs."""
    checkpoint = judgement.checkpoint
    log = {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
    return {**log, **_signatures_json(judgement)}


def judgement_lines(judgement: Judgement) -> Iterator[str]:
    """The log, its checkpoint and who has signed it, for people."""
    checkpoint = judgement.checkpoint
    yield f"  log          {checkpoint.origin}"
    yield f"  size         {checkpoint.size} entries"
    yield f"  root         {base64.b64encode(checkpoint.root).decode()}"
    for verifier in judgement.signed_by:
        yield f"  signed by    {_name(verifier)}"
    for each in judgement.cosignatures:
        fault = f", which does not count: {each.fault}" if each.fault else ""
        yield f"  cosigned by  {_name(each.verifier)} at {utc(each.time)}{fault}"


def is_finished(directory: Path, found: Verification) -> bool | None:
    """Whether the last entry of a sound ledger says that it is the last; None where that cannot be known."""
    size = found.checkpoint.size
    if size == 0:
        return False
    try:
        (last,) = LedgerDirectory(directory).entries(size - 1, size)
        return read_head(last).kind == "end"
    except LedgerError:
        return None


def _sound(found: Verification, directory: Path) -> Iterator[str]:
    assert found.judgement is not None
    yield f"{directory}: verified"
    yield from judgement_lines(found.judgement)
    for seen in found.older:
        for each in seen.cosigners:
            when = "" if each.time is None else f" at {utc(each.time)}"
            yield f"  earlier      {_name(each.verifier)} cosigned size {seen.checkpoint.size}{when}"
    if found.held:
        yield f"  you hold     size {found.held.size}, which this ledger extends"
    if found.blobs:
        yield f"  blobs        {found.blobs}, each what its name says"
    finished = is_finished(directory, found)
    if not finished:
        yield f"  end          {FOREIGN if finished is None else UNFINISHED}"
    for words in found.uncovered:
        yield f"  not covered  {words}"
    yield ROLL_BACK


def _signatures_json(judgement: Judgement) -> dict[str, Any]:
    return {
        "signed_by": [_key_json(verifier) for verifier in judgement.signed_by],
        "cosigned_by": [
            {**_key_json(each.verifier), "time": each.time, "counts": each.fault is None, "fault": each.fault}
            for each in judgement.cosignatures
        ],
    }


def _key_json(verifier: Verifier) -> dict[str, str]:
    return {"name": verifier.name, "key_id": verifier.key_id.hex()}


def _name(verifier: Verifier) -> str:
    return f"{verifier.name} ({verifier.key_id.hex()})"


def _print_lines(lines: Iterator[str]) -> None:
    for line in lines:
        print(visible(line))
