"""`explorer ledger`: verify a ledger, read it, prove an entry to somebody far away, check such a proof, cosign."""

import base64
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.credentials import KeyFile, PassphraseFile, clock, load_key, memory_place
from explorer.cli.output import print_json, visible
from explorer.cli.settings import Json
from explorer.errors import LedgerError

if TYPE_CHECKING:
    from explorer.audit.contents import Contents
    from explorer.audit.named_blobs import Blobs
    from explorer.ledger.trust_anchor import Anchor
    from explorer.ledger.verify import Verification
    from explorer.note import Note, Signer

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a ledger.")]
Trust = Annotated[Path | None, typer.Option("--trust", metavar="TRUST", help="Believe whom this trust file names.")]
Policy = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="Believe whom this policy names (C2SP tlog-policy).")
]
Vkeys = Annotated[
    list[str] | None,
    typer.Option("--vkey", metavar="KEY", help="Believe this verifier key, name+id+base64; may be repeated."),
]
Evidence = Annotated[
    Path | None,
    typer.Option(
        "--evidence", metavar="DIR", help="Where to keep the evidence of a fork, as ledger-evidence-... Default: here."
    ),
]
State = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="What this key has cosigned. Default: KEY.cosigned, beside the key."),
]
First = Annotated[
    bool, typer.Option("--first", help="This key has cosigned nothing yet: there is no memory that could be lost.")
]


def register(app: typer.Typer, *more: Callable[[typer.Typer], None]) -> None:
    group = typer.Typer(help="The tamper-evident log of a run: integrity, entries, proofs.", no_args_is_help=True)
    group.command()(verify)
    group.command()(show)
    group.command()(prove)
    group.command()(check)
    group.command()(cosign)
    for register_more in more:
        register_more(group)
    app.add_typer(group, name="ledger")


def verify(
    directory: Directory,
    trust: Trust = None,
    policy: Policy = None,
    vkey: Vkeys = None,
    held: Annotated[
        Path | None,
        typer.Option("--held", metavar="NOTE", help="A checkpoint of this ledger that you kept; it must extend it."),
    ] = None,
    contents: Annotated[
        bool,
        typer.Option("--contents", help="Also read every entry: is it what its kind says, can it stand in this order?"),
    ] = False,
    evidence: Evidence = None,
    json: Json = False,
) -> None:
    """Check a ledger: files, signatures, quorum.

    The tree is rebuilt from the entries, and every file is compared with it. Every blob that an entry names has to be
    there, unless the project's ledger beside it says that it was erased. The exit status is 0 only if all of it holds
    and those whom you trust have signed.
    """
    from explorer.cli.verification import (
        blobs_json,
        contents_json,
        print_blobs,
        print_contents,
        print_verification,
        verification_json,
    )
    from explorer.ledger import verify as verifier

    anchor = named_anchor(trust, policy, vkey, origin_of=directory)
    kept = None if held is None else _note(held)
    found = verifier.verify(directory, anchor=anchor, held=kept, now=clock())
    read, blobs = _contents(directory, trust, deep=contents) if found.ok else (None, None)
    ok = found.ok and not (read and read.fault) and not (blobs and blobs.missing)
    if json:
        more = {"ok": ok, "contents": contents_json(read), "named_blobs": blobs_json(blobs)}
        print_json({**verification_json(found, directory), **more})
    else:
        print_verification(found, directory, anchored=bool(anchor.logs))
        print_contents(read)
        print_blobs(blobs)
    _conclude(found, evidence)
    if not ok:
        raise typer.Exit(1)


def show(
    directory: Directory,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only entries of this kind.")] = None,
    start: Annotated[int, typer.Option("--from", metavar="INDEX", help="The first entry.")] = 0,
    stop: Annotated[
        int | None, typer.Option("--to", metavar="INDEX", help="The entry before which to stop. Default: the end.")
    ] = None,
    json: Json = False,
) -> None:
    """Print entries, one a line.

    The line is index, kind, version and content; with --json a JSON object. A kind or version that is not known here
    is marked and not left out. Nothing is verified here; `explorer ledger verify` does that.
    """
    from explorer.cli.entries import print_entries
    from explorer.ledger.storage import LedgerDirectory

    print_entries(LedgerDirectory(directory), start, stop, kind=kind, as_json=json)


def prove(
    directory: Directory,
    index: Annotated[int, typer.Argument(metavar="INDEX", help="The number of the entry, from 0.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Such as entry.tlog-proof.")],
    json: Json = False,
) -> None:
    """Write a proof that an entry is there.

    The file (C2SP tlog-proof) holds the entry and the checkpoint too. Whoever has it needs neither this machine nor the
    rest of the ledger: `explorer ledger check` reads it.
    """
    from explorer.ledger.proof import make_proof, write_proof
    from explorer.ledger.storage import LedgerDirectory

    ledger = LedgerDirectory(directory)
    proof = make_proof(ledger, index)
    write_proof(out, proof)
    checkpoint = ledger.checkpoint()
    if json:
        log = {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
        print_json({"file": str(out), "index": index, **log})
    else:
        print(f"{out}: entry {index} of {checkpoint.size} in the ledger of {checkpoint.origin}")


def check(
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="A proof file.")],
    entry: Annotated[
        Path | None, typer.Option("--entry", metavar="FILE", help="The entry. Default: the one in the proof file.")
    ] = None,
    trust: Trust = None,
    policy: Policy = None,
    vkey: Vkeys = None,
    json: Json = False,
) -> None:
    """Check a proof, anywhere.

    It says that the entry is in a ledger that those whom you trust have signed. Only the proof file is needed.
    """
    from explorer.cli.verification import judgement_lines, proof_json
    from explorer.ledger.checkpoint import parse_checkpoint
    from explorer.ledger.proof import MAX_BYTES, check_proof, parse_proof
    from explorer.ledger.tiles import MAX_ENTRY

    found = parse_proof(_content(proof, MAX_BYTES), where=str(proof))
    origin = parse_checkpoint(found.checkpoint.text).origin
    anchor = required(named_anchor(trust, policy, vkey, origin=origin))
    given = None if entry is None else _content(entry, MAX_ENTRY)
    judgement = check_proof(found, given, anchor=anchor, now=clock())
    meant = found.extra if given is None else given
    assert meant is not None
    if json:
        print_json({"ok": True, "index": found.index, **_entry_json(meant), **proof_json(judgement)})
        return
    print(f"{proof}: entry {found.index} is in the ledger")
    for line in judgement_lines(judgement):
        print(visible(line))
    text = meant.decode(errors="backslashreplace")
    print(text if text.isprintable() else ascii(text))


def cosign(
    directory: Directory,
    key: KeyFile,
    trust: Trust = None,
    policy: Policy = None,
    vkey: Vkeys = None,
    state: State = None,
    first: First = False,
    evidence: Evidence = None,
    passphrase_file: PassphraseFile = None,
    json: Json = False,
) -> None:
    """Verify a ledger and cosign it.

    A cosignature says: this is what I saw, at this time, and it extends what I saw before. The command refuses a ledger
    that does not verify, and one that contradicts what this key has cosigned.
    """
    from explorer.cli.verification import print_verification, verification_json
    from explorer.ledger import cosign as cosigning
    from explorer.ledger.trust_anchor import utc

    anchor = required(named_anchor(trust, policy, vkey, origin_of=directory))
    now = clock()
    signer = cosigner(anchor, key, passphrase_file, now)
    memory = memory_place(key, state)
    done = cosigning.cosign(directory, signer=signer, state=memory, anchor=anchor, now=now, first=first)
    if json:
        path = None if done.path is None else str(done.path)
        print_json({**verification_json(done.verification, directory), "note": path, "time": done.time})
    elif done.path is None or done.time is None:
        print_verification(done.verification, directory, anchored=True)
    else:
        checkpoint = done.verification.checkpoint
        what = f"size {checkpoint.size} of {checkpoint.origin} at {utc(done.time)}"
        before = " (the same checkpoint as before)" if done.time < now else ""
        print(f"{done.path}: {signer.name} cosigned {what}{before}")
    _conclude(done.verification, evidence)


def named_anchor(
    trust: Path | None, policy: Path | None, vkeys: list[str] | None, *, origin: str = "", origin_of: Path | None = None
) -> "Anchor":
    """Whom the caller believes; nobody where nothing was said."""
    from explorer.ledger.trust_anchor import Anchor, anchor_of

    if (trust is not None) + (policy is not None) + bool(vkeys) > 1:
        raise LedgerError("say whom to believe in one way: --trust, --policy or --vkey")
    if trust is not None:
        from explorer.ledger.storage import read_checkpoint
        from explorer.provenance.trust import read_trust
        from explorer.runlog.anchor import anchor_of_trust

        named = read_checkpoint(origin_of)[1].origin if origin_of else origin
        return anchor_of_trust(read_trust(trust), origin=named)
    if policy is not None:
        from explorer.ledger.trust_anchor import MAX_POLICY, parse_policy

        return parse_policy(_content(policy, MAX_POLICY), where=str(policy))
    return anchor_of(vkeys) if vkeys else Anchor()


def required(anchor: "Anchor") -> "Anchor":
    if not anchor.logs:
        raise LedgerError("say whom to believe: --trust FILE, --policy FILE or --vkey KEY")
    return anchor


def cosigner(anchor: "Anchor", key: Path, passphrase_file: Path | None, now: int) -> "Signer":
    """The key under the name that the anchor has for it."""
    from explorer.note import Algorithm, Signer

    private = load_key(key, passphrase_file)
    public = private.public_key().public_bytes_raw()
    for witness in anchor.witnesses:
        if witness.key.verifier.public_key == public:
            if fault := witness.key.fault(now):
                raise LedgerError(f"{key}: a cosignature of {witness.name!r} would not count: {fault}")
            return Signer(name=witness.key.verifier.name, algorithm=Algorithm.COSIGNATURE, private_key=private)
    known = ", ".join(witness.name for witness in anchor.witnesses) or "nobody"
    raise LedgerError(f"{key}: not the key of somebody who may cosign; those are: {known}")


def _note(path: Path) -> "Note":
    from explorer import note
    from explorer.errors import NoteError

    try:
        return note.parse(_content(path, note.MAX_BYTES))
    except NoteError as error:
        raise LedgerError(f"{path}: {error}") from error


def _content(path: Path, max_bytes: int) -> bytes:
    from explorer.rundir import read_bytes

    return read_bytes(path, max_bytes=max_bytes, error=LedgerError)


def _entry_json(entry: bytes) -> dict[str, str | None]:
    """An entry as text where it is text, and byte for byte in any case."""
    try:
        text = entry.decode()
    except UnicodeDecodeError:
        text = None
    return {"entry": text, "base64": base64.b64encode(entry).decode()}


def _contents(directory: Path, trust: Path | None, *, deep: bool) -> "tuple[Contents | None, Blobs]":
    """What the entries come to, where that is asked for, and whether the blobs that they name are here. Whom to believe
    about an erasure only a trust file says."""
    from explorer.audit.named_blobs import WITHOUT, Erasures, NoErasures, look_for_blobs
    from explorer.ledger.storage import LedgerDirectory

    ledger = LedgerDirectory(directory)
    erasures: Erasures = NoErasures(without=f"{WITHOUT}: whom to believe about that, --trust FILE says")
    if trust is not None:
        from explorer.audit.withheld import read_withheld
        from explorer.provenance.trust import read_trust

        erasures = read_withheld(ledger, trust=read_trust(trust), now=clock())
    if not deep:
        return None, look_for_blobs(ledger, erasures=erasures)
    from explorer.audit.contents import examine_contents

    found = examine_contents(ledger, erasures=erasures)
    return found, found.blobs


def _conclude(found: "Verification", evidence: Path | None) -> None:
    """Keep the evidence of a fork; exit with status 1 unless the ledger verifies."""
    if found.evidence is not None:
        directory = (evidence or Path()) / found.evidence.name
        found.evidence.keep(directory)
        print(f"  they are kept in {directory}/", file=sys.stderr)
    if not found.ok:
        raise typer.Exit(1)
