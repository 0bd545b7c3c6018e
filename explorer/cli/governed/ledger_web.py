"""`explorer ledger cosign|submit|witness|export|serve|monitor`: cosign ledgers, publish them, and watch them."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

import typer

from explorer.audit.monitor import Look, look, read_memory, write_memory
from explorer.cli import options
from explorer.cli.governed.ledger import keep_evidence, named_anchor, required, verification_blocks, verification_json
from explorer.cli.signing import load_key
from explorer.cli.verbs import part
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger import cosign as cosigning
from explorer.ledger.cosign import Cosigning, Memory, begin_memory, memory_of
from explorer.ledger.signed_checkpoint import Checkpoint
from explorer.ledger.static_files import RemoteLedger
from explorer.ledger.static_files import export as write_export
from explorer.ledger.static_files import serve as start_server
from explorer.ledger.storage import LedgerDirectory, read_checkpoint
from explorer.ledger.trust_anchor import Anchor, utc
from explorer.ledger.web import Client
from explorer.ledger.witness import ADD, Witness
from explorer.ledger.witness import start as start_witness
from explorer.ledger.witness import submit as send
from explorer.note import Algorithm, Signer, is_name
from explorer.page.document import Block, Paragraph
from explorer.page.terminal import Answer, print_json, visible
from explorer.provenance.keys import is_in_agent

FORKED, SILENT, UNKNOWN = 4, 5, 6  # exit statuses of `monitor`, in addition to 0 and 1

Plain = Annotated[bool, typer.Option("--http", help="Allow http for other machines. Default: https only.")]
Port = Annotated[
    int,
    typer.Option(
        "--port", metavar="N", min=0, max=65_535, help="Port on 127.0.0.1. Default: a free port, which is printed."
    ),
]


def cosign(
    directory: options.Directory,
    key: options.KeyFile,
    trust: options.AnchorTrust = None,
    policy: options.Policy = None,
    vkey: options.Vkeys = None,
    state: options.State = None,
    first: options.First = False,
    evidence: options.Evidence = None,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """Verify a ledger and cosign it.

    A cosignature states that its signer saw this checkpoint at this time, and that it extends every earlier one that
    the signer saw. A ledger that does not verify, or that contradicts what this key has cosigned, is refused.
    """
    anchor = required(named_anchor(trust, policy, vkey, origin_of=directory))
    now = options.clock()
    signer = cosigner(anchor, key, passphrase_file, now)
    memory = memory_place(key, state)
    done = cosigning.cosign(directory, signer=signer, state=memory, anchor=anchor, now=now, first=first)
    path = None if done.path is None else str(done.path)
    return Answer(
        page=lambda: _cosigning_blocks(done, directory, signer=signer.name, now=now),
        record=lambda: {**verification_json(done.verification, directory), "note": path, "time": done.time},
        holds=done.verification.ok,
        remark=keep_evidence(done.verification.evidence, evidence),
        then=lambda: part("governed runs, next")(directory.parent, "cosign", trust=trust),
    )


def _cosigning_blocks(done: Cosigning, directory: Path, *, signer: str, now: int) -> Iterator[Block | str]:
    if done.path is None or done.time is None:
        yield from verification_blocks(done.verification, directory, anchored=True)
        return
    before = " (the same checkpoint as before)" if done.time < now else ""
    yield f"{_cosigned_words(done.path, signer, done.verification.checkpoint, done.time)}{before}"


def submit(
    directory: options.Directory,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Submission prefix of a witness.")],
    trust: options.AnchorTrust = None,
    policy: options.Policy = None,
    vkey: options.Vkeys = None,
    plain: Plain = False,
) -> Answer:
    """Have a ledger cosigned by a witness, over HTTP.

    The protocol is c2sp.org/tlog-witness. The cosignature is checked against the named witnesses and put next to the
    ledger, where `verify` and `prove` look for it. A witness that does not answer is tried again for half a minute.
    """
    anchor = required(named_anchor(trust, policy, vkey, origin_of=directory))
    with closing(Client(url, plain=plain)) as client:
        done = send(directory, client, anchor=anchor)
    cosigned = [
        {"name": submitted.verified.verifier.name, "time": submitted.verified.time, "note": str(submitted.path)}
        for submitted in done
    ]
    log = {"origin": done[0].checkpoint.origin, "size": done[0].checkpoint.size}
    return Answer(
        page=lambda: [
            _cosigned_words(
                submitted.path, submitted.verified.verifier.name, submitted.checkpoint, submitted.verified.time or 0
            )
            for submitted in done
        ],
        record=lambda: {**log, "cosigned_by": cosigned},
    )


def _cosigned_words(path: Path, name: str, checkpoint: Checkpoint, time: int) -> str:
    return f"{path}: {name} cosigned size {checkpoint.size} of {checkpoint.origin} at {utc(time)}"


def witness(
    key: options.KeyFile,
    trust: options.AnchorTrust = None,
    policy: options.Policy = None,
    vkey: options.Vkeys = None,
    port: Port = 0,
    state: options.State = None,
    first: options.First = False,
    passphrase_file: options.PassphraseFile = None,
    json: options.Json = False,
) -> None:
    """Cosign the checkpoints of known logs, over HTTP.

    A small server for this machine, behind a proxy that does TLS (c2sp.org/tlog-witness). It shares its memory of
    cosigned checkpoints with `explorer ledger cosign`. The trust file or policy names the logs, and the name under
    which the key cosigns.
    """
    now = options.clock()
    signer = cosigner(named_anchor(trust, policy, vkey, origin="any"), key, passphrase_file, now)
    place = memory_place(key, state)
    memory = Memory(place, signer)
    if first:
        begin_memory(place)
    memory.check_begun()

    def known(origin: str) -> Anchor:
        # With a trust file, ledgers bear names of keys: any other origin is of a log that no key in it can sign.
        if trust is not None and not is_name(origin):
            return Anchor()
        return named_anchor(trust, policy, vkey, origin=origin)

    server = start_witness(Witness(memory, known, options.clock), port)
    _run(server, {"witness": signer.verifier.vkey}, ADD, json)


def export(
    directory: options.Directory,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="New directory, or an earlier export.")],
) -> Answer:
    """Write a ledger as static files for others to fetch.

    The files are those of c2sp.org/tlog-tiles: checkpoint with cosignatures, tiles, entries. Any web server can serve
    them. Blobs and secrets are left out. A second export adds what is new.
    """
    written = write_export(directory, out)
    checkpoint = read_checkpoint(out)[1]
    return Answer(
        page=lambda: [f"{out}: {checkpoint.size} entries of {checkpoint.origin}, {written} new files"],
        record=lambda: {
            "directory": str(out),
            "origin": checkpoint.origin,
            "size": checkpoint.size,
            "written": written,
        },
    )


def serve(directory: options.Directory, port: Port = 0, json: options.Json = False) -> None:
    """Serve a ledger to others, as it grows.

    A small server for this machine, behind a proxy that does TLS (c2sp.org/tlog-tiles).
    """
    _run(start_server(directory, port), {"serving": str(directory)}, "checkpoint", json)


def monitor(
    log: Annotated[str, typer.Argument(metavar="DIR|URL", help="Directory or URL of a ledger.")],
    memory: Annotated[
        Path,
        typer.Option("--memory", metavar="FILE", help="File that records the last check; created by the first one."),
    ],
    trust: options.AnchorTrust = None,
    policy: options.Policy = None,
    vkey: options.Vkeys = None,
    silent: Annotated[
        float | None,
        typer.Option(
            "--silent-after",
            metavar="HOURS",
            min=0,
            help="Report a log that has had no new checkpoint for longer than this.",
        ),
    ] = None,
    plain: Plain = False,
    evidence: options.Evidence = None,
) -> Answer:
    """Check a log for new entries, and that it was not rewritten.

    Each check starts from the recorded checkpoint, reads the new entries, and has to arrive at the new checkpoint.
    Exit status 0: nothing is wrong. 1: the log cannot be read, or no trusted key has signed it. 4: it was forked or
    rolled back, and both checkpoints are kept as evidence. 5: it is silent. 6: it has new entries of unknown kinds.
    After status 1 or 4 nothing is recorded: the next check starts from the last good checkpoint.
    """
    with _log(log, plain) as ledger:
        anchor = required(named_anchor(trust, policy, vkey, origin=ledger.checkpoint().origin))
        held = read_memory(memory, anchor=anchor)
        patience = None if silent is None else round(silent * 3600)
        report = look(ledger, held, anchor=anchor, now=options.clock(), patience=patience)
    # The memory of a fork would make the forged log the one to compare with.
    if report.evidence is None and (held is None or report.memory != held):
        write_memory(memory, report.memory)
    kept = keep_evidence(report.evidence, evidence)
    status = _status(report)
    return Answer(
        page=lambda: _look_blocks(report),
        record=lambda: _look_json(report, status),
        holds=status == 0,
        status=status,
        remark=f"explorer: {report.evidence.statement}\n{kept}" if report.evidence else "",
    )


def cosigner(anchor: Anchor, key: Path, passphrase_file: Path | None, now: int) -> Signer:
    """Return the key as a cosigner, under its name in the anchor."""
    private = load_key(key, passphrase_file)
    public = private.public_key().public_bytes_raw()
    for witness in anchor.witnesses:
        if witness.key.verifier.public_key == public:
            if fault := witness.key.fault(now):
                raise LedgerError(f"{key}: a cosignature of {witness.name!r} would not count: {fault}")
            return Signer(name=witness.key.verifier.name, algorithm=Algorithm.COSIGNATURE, private_key=private)
    known = ", ".join(witness.name for witness in anchor.witnesses) or "none"
    raise LedgerError(f"{key}: not the key of a cosigner; known cosigners: {known}")


def memory_place(key: Path, state: Path | None) -> Path:
    """Return the directory that records the cosignatures of a key.

    Raises `ProvenanceError` for a key in an SSH agent, which has no place next to it, unless --state names one.
    """
    if state is None and is_in_agent(key):
        raise ProvenanceError(f"{key}: a key in an SSH agent needs --state DIR for its record of cosignatures")
    return state or memory_of(key)


def _status(report: Look) -> int:
    if report.evidence is not None:
        return FORKED
    if report.silent is not None:
        return SILENT
    return UNKNOWN if report.unknown else 0


def _look_blocks(report: Look) -> Iterator[Block | str]:
    checkpoint = report.judgement.checkpoint
    before = "first check" if report.before is None else f"{report.before.size} at the last check"
    yield f"{checkpoint.origin}: {checkpoint.size} entries, {before}"
    for kind, count in sorted(report.new.items()):
        yield f"  new  {kind:<14} {count}{'  of unknown kind' if kind in report.unknown else ''}"
    if report.silent is not None:
        silence = f"no new checkpoint for {report.silent / 3600:.1f} hours, since {utc(report.memory.seen)}"
        yield Paragraph(f"explorer: silent: {silence}", "alert")


def _look_json(report: Look, status: int) -> dict[str, object]:
    checkpoint = report.judgement.checkpoint
    return {
        "status": status,
        "origin": checkpoint.origin,
        "size": checkpoint.size,
        "root": checkpoint.root.hex(),
        "before": None if report.before is None else report.before.size,
        "new": dict(sorted(report.new.items())),
        "unknown": dict(sorted(report.unknown.items())),
        "kinds": dict(sorted(report.memory.kinds.items())),
        "seen": report.memory.seen,
        "silent_seconds": report.silent,
        "fork": None if report.evidence is None else report.evidence.statement,
    }


@contextmanager
def _log(log: str, plain: bool) -> Iterator[LedgerDirectory]:
    if "://" not in log:
        yield LedgerDirectory(Path(log))
        return
    with closing(Client(log, plain=plain)) as client:
        yield RemoteLedger(client)


def _run(server: ThreadingHTTPServer, what: dict[str, str], path: str, json: bool) -> None:
    """Print the address of the server, and serve until Ctrl-C."""
    host, port = server.server_address[:2]
    url = f"http://{host!s}:{port}"
    if json:
        print_json({**what, "url": url})
    else:
        words = " ".join(word for pair in what.items() for word in pair)
        print(visible(f"{words}\n  {url}/{path}  (this machine only; Ctrl-C ends it)"))
    sys.stdout.flush()
    try:
        server.serve_forever()
    finally:
        server.server_close()
