"""`explorer grant` and `explorer read`: grants to read sealed numbers, their keys, and the numbers themselves."""

import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from explorer import rundir
from explorer.audit.history import badge
from explorer.audit.shares import estimates
from explorer.cli import options
from explorer.cli.signing import load_key, load_reader_key, new_passphrase
from explorer.disclosure import wrapped
from explorer.disclosure.access_log import Listed, wrapped_grants
from explorer.disclosure.grants_in_force import Named, check_standing, covered_classes, named
from explorer.disclosure.reading import COLUMNS, KEYS, Query, ask
from explorer.disclosure.reading import Answer as Numbers
from explorer.disclosure.reading import read as open_numbers
from explorer.disclosure.requests import MAX_REQUEST, is_answer, make_request, open_answer, parse_request
from explorer.disclosure.requests import answer as answer_request
from explorer.disclosure.wrapped import believe, naming, open_keys, parse_wrapped, words, wrap_keys
from explorer.disclosure.wrapped import revoke as take_back
from explorer.entries.kinds import Step
from explorer.errors import ProvenanceError, unknown
from explorer.page.document import Block, Paragraph
from explorer.page.terminal import Answer, table
from explorer.project import Project, read_project, runs_of
from explorer.provenance.envelope import MAX_BYTES, key_id, parse_envelope, write_envelope
from explorer.provenance.grants import Grant, claimed_grant, grant_digest, open_grant, sign_grant
from explorer.provenance.keys import (
    READER_PASSPHRASE,
    ReaderKey,
    new_reader_key,
    public_bytes,
    reader_key,
    reader_public_text,
    replace_private,
    write_key,
)
from explorer.provenance.signing import Signed
from explorer.provenance.trust import Trust, read_trust
from explorer.rundir import read_bytes
from explorer.runlog.documents import trainer_key
from explorer.runlog.run_keys import NoKeys
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import to_json
from explorer.store.plain_text import csv_text
from explorer.store.queries import Table

File = Annotated[Path, typer.Argument(metavar="GRANT", help="A signed grant.")]


def key(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File to write the new key to.")],
    unencrypted: options.Unencrypted = False,
    passphrase_file: options.ReaderPassphraseFile = None,
) -> Answer:
    """Make a reader's key and print its public key, which goes into a grant as `public_key`.

    The same key signs the requests of its holder.
    """
    made = new_reader_key()
    passphrase = None if unencrypted else new_passphrase(out, passphrase_file, variable=READER_PASSPHRASE)
    write_key(out, made, passphrase)
    public = reader_public_text(reader_key(made).opens)
    return Answer(
        page=lambda: [f"{out}{' (not encrypted)' if unencrypted else ''}", f"public key  {public}"],
        record=lambda: {"key_file": str(out), "encrypted": not unencrypted, "public_key": public},
    )


def sign(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A grant: a draft (YAML) or a signed file.")],
    key: options.KeyFile,
    trust: options.TrustFile,
    out: options.SignedOut,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """Sign a grant, its owner first, or add a signature to a signed one. Takes a key of data governance."""
    signing = load_key(key, passphrase_file)
    envelope = sign_grant(file, [signing], trust=read_trust(trust), now=options.clock())
    write_envelope(out, envelope)
    signer, signatures = key_id(public_bytes(signing)), len(envelope.signatures)
    return Answer(
        page=lambda: [f"{out}: {claimed_grant(envelope, where=str(out)).words}"],
        record=lambda: {
            "file": str(out),
            "digest": grant_digest(envelope),
            "key": signer,
            "signatures": signatures,
        },
    )


def check(
    grant: File,
    trust: options.TrustFile,
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="RUN", help="Also check that the grant opens this run and was not revoked."),
    ] = None,
) -> Answer:
    """Check that a grant is valid now: signatures, classes, expiry. The exit status is 0 only if it is."""
    signed = _open(grant, trust)
    classes = None
    if run is not None:
        classes = sorted(covered_classes(RunLedger(run).genesis, signed.value))
        check_standing(read_project(runs_of(run)), naming(signed))
    names = [authority.name for authority in signed.authorities]
    lines = [signed.value.words, f"to {signed.value.grantee.name}; signed by {', '.join(names)}"]
    opens = [] if classes is None else [f"opens {', '.join(classes)} of {run}"]
    return Answer(
        page=lambda: [*lines, *opens],
        record=lambda: {**to_json(signed.value), "signed_by": names, "opens": classes},
    )


def answer(
    run: options.RunDirectory,
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="A request, made with `explorer read --request`.")],
    trust: options.TrustFile,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File to write the answer to.")],
) -> Answer:
    """Answer a reader's request: check it and its grant, record it, and wrap the keys that it asks for.

    This takes the run's secrets and the trainer's key, whose passphrase is in $EXPLORER_PASSPHRASE, and not the
    reader's key. A request is answered once, and only this reader can open the answer.
    """
    where, trusted, ledger = str(request), read_trust(trust), RunLedger(run)
    signed = parse_request(read_bytes(request, max_bytes=MAX_REQUEST, error=ProvenanceError), where=where)
    name, signing = trainer_key(run, trust=trusted, now=options.clock())
    with Project.open(runs_of(run), key=signing, name=name) as project:
        made = answer_request(ledger, signed, trust=trusted, now=options.clock(), project=project, where=where)
    # The entry is in the project's ledger by now: no key leaves without one.
    replace_private(out, made.content)
    grant, query = made.grant.value, made.query
    asked = {"kind": query.kind, "classes": query.classes, "steps": [query.steps.start, query.steps.stop]}
    return Answer(
        page=lambda: [
            f"{out}: for {grant.grantee.name}, by grant {grant.id} of {grant.owner}",
            *_key_lines(made.keys),
            f"entry {made.entry} of the project's ledger, query {query.digest}",
        ],
        record=lambda: {
            "file": str(out),
            "grant": grant.id,
            "query": asked,
            "keys": _key_records(made.keys),
            "entry": made.entry,
        },
    )


def wrap(run: options.RunDirectory, grant: File, trust: options.TrustFile) -> Answer:
    """Hand over all keys of a run that a grant covers, before any request: `RUN/grants/<id>.json`.

    A pack includes such keys. Handing them over is one entry in the project's ledger; reading with them, then or after
    the end of the grant, makes no entry. To have an entry for every request, use `explorer grant answer` instead.

    The keys open what the run has recorded so far; run this again for what it has recorded since. It takes the run's
    secrets and the trainer's key, whose passphrase is in $EXPLORER_PASSPHRASE.
    """
    signed, ledger = _open(grant, trust), RunLedger(run)
    # The project's ledger is open while keys are wrapped: the entry and the file belong together.
    name, signing = trainer_key(run, trust=read_trust(trust), now=options.clock())
    with Project.open(runs_of(run), key=signing, name=name) as project:
        made = wrap_keys(ledger, signed, project=project)
    return Answer(
        page=lambda: [
            f"{made.path}: for {signed.value.grantee.name}, until {signed.value.expires}",
            *_key_lines(made.keys),
            *(f"  {path}: its secret was destroyed; nothing was wrapped" for path in made.erased),
            f"entry {made.entry} of the project's ledger",
        ],
        record=lambda: {
            "file": str(made.path),
            "keys": _key_records(made.keys),
            "erased": made.erased,
            "entry": made.entry,
        },
    )


def revoke(
    run: options.RunDirectory,
    grant: Annotated[str, typer.Argument(metavar="GRANT", help="Id of the grant, or the signed file.")],
    trust: options.TrustFile,
) -> Answer:
    """Revoke a grant in all runs of the project, and remove its wrapped keys.

    Every grantee has wrapped keys of their own, so those of others stay valid. What the grantee has already copied
    cannot be taken back.
    """
    name, signing = trainer_key(run, trust=read_trust(trust), now=options.clock())
    with Project.open(runs_of(run), key=signing, name=name) as project:
        if Path(grant).is_file():
            envelope = parse_envelope(read_bytes(Path(grant), max_bytes=MAX_BYTES, error=ProvenanceError), where=grant)
            claimed = claimed_grant(envelope, where=grant)
            meant = Named(owner=claimed.owner, id=claimed.id, digest=grant_digest(envelope))
        else:
            meant = named(project.entries(), grant)
        entry, removed = take_back(meant, runs=runs_of(run), project=project)
    when = "was revoked earlier" if entry is None else f"revoked: entry {entry} of the project's ledger"
    return Answer(
        page=lambda: [f"grant {meant.id} of {meant.owner}: {when}", *(f"  removed {path}" for path in removed)],
        record=lambda: {
            "owner": meant.owner,
            "id": meant.id,
            "entry": entry,
            "removed": [str(path) for path in removed],
        },
    )


def list_(run: options.RunDirectory, trust: options.TrustFile) -> Answer:
    """List the grants whose keys were wrapped for a run: grantee, classes, expiry, state."""
    recorded = tuple(read_project(runs_of(run)))
    grants = wrapped_grants(RunLedger(run), recorded, trust=read_trust(trust), now=options.clock())
    columns = ("grant", "to", "classes", "entries", "until", "state")
    return Answer(
        page=lambda: [table(columns, map(_cells, grants))],
        record=lambda: [
            {**(to_json(grant.grant) if grant.grant else {"id": None}), **_state(grant)} for grant in grants
        ],
    )


def _open(grant: Path, trust: Path) -> Signed[Grant]:
    content = read_bytes(grant, max_bytes=MAX_BYTES, error=ProvenanceError)
    return open_grant(content, trust=read_trust(trust), now=options.clock(), where=str(grant))


def _key_lines(keys: Mapping[tuple[str, str], int]) -> list[str]:
    return [f"  {words(path, kind)}: {count}" for (path, kind), count in keys.items()]


def _key_records(keys: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    return [{"class": path, "kind": kind, "stretches": count} for (path, kind), count in keys.items()]


def _state(listed: Listed) -> dict[str, Any]:
    return {"file": str(listed.path), "holds": listed.fault is None, "fault": listed.fault}


def _cells(listed: Listed) -> tuple[str, ...]:
    grant, state = listed.grant, listed.fault or "holds"
    if grant is None:
        return listed.path.stem, "?", "?", "?", "?", state
    return grant.id, grant.grantee.name, ", ".join(grant.classes), ", ".join(grant.entries), grant.expires, state


# --- explorer read ---

SHOWN = 40  # most rows in a terminal
FORMATS = ("csv", "parquet")
WORDS = ("layer", "class", "action", "rule", "evidence")  # columns that are not numbers


def read(
    run: options.RunDirectory,
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The reader's key file.")],
    grant: Annotated[
        Path | None,
        typer.Option("--grant", metavar="GRANT", help="The signed grant, with --request."),
    ] = None,
    request: Annotated[
        Path | None,
        typer.Option("--request", metavar="FILE", help="Write a request to this file, for the owner to answer."),
    ] = None,
    answer: Annotated[
        Path | None,
        typer.Option("--answer", metavar="FILE", help="Read with this file: the owner's answer, or wrapped keys."),
    ] = None,
    class_: Annotated[
        str | None,
        typer.Option("--class", metavar="C", help="Class to read; * reads the numbers over several classes."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", metavar="KIND", help="Kind of entries: step, profile or decision. Default: the first granted one."
        ),
    ] = None,
    steps: options.Steps = None,
    trust: Annotated[
        Path | None,
        typer.Option(
            "--trust",
            metavar="TRUST",
            help="Trust file, with which the ledger is verified too. Default: the run's own copy, unverified.",
        ),
    ] = None,
    passphrase_file: options.ReaderPassphraseFile = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write the rows to: .csv or .parquet.")
    ] = None,
) -> Answer:
    """Read what a grant opens: numbers by step, layer and class, checked against commitments in the ledger.

    Reading takes two calls. --request FILE writes a signed request. The owner answers it with `explorer grant answer`,
    which makes an entry in the project's ledger before any key is handed over. --answer FILE then shows the numbers.
    RUN is a copy of the run, or an unpacked pack. Both calls take only the reader's key, whose passphrase is in
    $EXPLORER_READER_PASSPHRASE. The exit status is 0 only if everything requested could be read.
    """
    if out is not None and out.suffix.removeprefix(".") not in FORMATS:
        raise ProvenanceError(f"cannot write {out}: {unknown('format', out.suffix.removeprefix('.'), FORMATS)}")
    if (request is None) == (answer is None):
        raise ProvenanceError(
            "expected either --request FILE with --grant GRANT, to write a request, or --answer FILE, to read an answer"
        )
    # Without keys of the run's own: the reader sees only what the grant opens, also on the owner's machine.
    ledger = RunLedger(run, keys=NoKeys())
    reader, trusted = load_reader_key(key, passphrase_file), _trust(ledger, trust)
    # First call: write the request.
    if request is not None:
        if grant is None or out is not None:
            raise ProvenanceError(
                "--request: expected the signed grant, --grant GRANT, and no --out: a request has no rows"
            )
        asked = {"kind": kind, "class_": class_, "steps": ledger.range_of(*options.span_of(steps))}
        return _ask(ledger, grant, reader, trusted, request, asked=asked)
    # Second call: read. Wrapped keys open a choice of numbers, an answer exactly those that were requested.
    assert answer is not None
    verified = None if trust is None else _verified(ledger, trusted)
    named = {
        "kind": kind,
        "class_": class_,
        "steps": None if steps is None else ledger.range_of(*options.span_of(steps)),
    }
    asked = {name: value for name, value in named.items() if value is not None}
    shown = _with_answer(ledger, answer, reader, trusted, asked=asked)
    if out is not None:
        _write(shown.answer, out)
    of_steps = shown.answer.query.kind == Step.KIND
    estimated = estimates(ledger, shown.answer.query.steps) if of_steps else None
    more = {"estimates": estimated} if estimated else {}
    return Answer(
        page=lambda: [*_page(shown, verified=verified, out=out), *more.values()],
        record=lambda: {**_json(shown, rows=out is None), **more, "verified": verified},
        holds=not shown.answer.unread and verified is not False,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shown:
    """Numbers that a grant opened, and where the project's ledger records that."""

    answer: Numbers
    grant: str  # the id of the grant
    access: int | None  # the entry that records the handing over of the keys; None: they were wrapped ahead
    ledger: str | None  # the ledger with that entry, and how many entries the receipt covers


def _ask(
    run: RunLedger,
    grant: Path,
    reader: ReaderKey,
    trust: Trust,
    out: Path,
    *,
    asked: dict[str, Any],
) -> Answer:
    if out.exists():
        raise ProvenanceError(f"{out}: there is a file already; every request needs a new one")
    content = rundir.read_bytes(grant, max_bytes=MAX_BYTES, error=ProvenanceError)
    signed = open_grant(content, trust=trust, now=options.clock(), where=str(grant))
    query = ask(run, signed.value, **asked)
    made = make_request(run, signed, query, reader, now=options.clock())
    expires = parse_request(made, where=str(out)).request.expires
    rundir.write_bytes(out, made)
    return Answer(
        page=lambda: [
            f"{out}: {query.kind} entries of {', '.join(query.classes)}, {_span(query)}",
            f"valid until {expires}; next, for the owner of the grant: explorer grant answer RUN {out}",
        ],
        record=lambda: {
            "file": str(out),
            "grant": signed.value.id,
            "query": _query_json(query),
            "expires": expires,
        },
    )


def _with_answer(run: RunLedger, path: Path, reader: ReaderKey, trust: Trust, *, asked: dict[str, Any]) -> _Shown:
    content, where = rundir.read_bytes(path, max_bytes=wrapped.MAX_BYTES, error=ProvenanceError), str(path)
    if is_answer(content):
        if asked:
            raise ProvenanceError(f"{where}: the answer to one request; to read anything else, make another --request")
        opened = open_answer(content, run, reader, trust=trust, now=options.clock(), where=where)
        ledger = f"{opened.project.origin}, of {opened.project.size} entries"
        answer = open_numbers(run, opened.query, opened.keys)
        return _Shown(answer=answer, grant=opened.grant.id, access=opened.access, ledger=ledger)
    file = parse_wrapped(content, where=where)
    signed = believe(file, run, trust=trust, now=options.clock(), where=where)
    # A revocation shows only as far as the project's ledger is here: a pack has none.
    check_standing(read_project(runs_of(run.run)), naming(signed))
    query = ask(run, signed.value, **asked)
    keys = open_keys(file, signed.value, reader.opens, where=where)
    return _Shown(answer=open_numbers(run, query, keys), grant=signed.value.id, access=None, ledger=None)


def _trust(run: RunLedger, path: Path | None) -> Trust:
    """Read the named trust file, or the run's own copy, which has to be the one that its ledger pins."""
    if path is not None:
        return read_trust(path)
    own = run.run / rundir.GOVERNANCE / "trust.json"
    own_trust = read_trust(own)
    if own_trust.digest != run.genesis.trust:
        raise ProvenanceError(f"{own}: found digest {own_trust.digest}, expected {run.genesis.trust} as in the ledger")
    return own_trust


def _verified(run: RunLedger, trust: Trust) -> bool:
    return badge(run, trust=trust, now=options.clock()).verified


def _columns(answer: Numbers) -> tuple[str, ...]:
    return KEYS + COLUMNS[answer.query.kind]


def _write(answer: Numbers, out: Path) -> None:
    """Write the rows, whole or not at all, readable by the user only: in the ledger these numbers are sealed."""
    columns = _columns(answer)
    if out.suffix == ".csv":
        replace_private(out, csv_text(Table(columns=columns, rows=answer.rows)).encode())
        return

    content, cells = io.BytesIO(), [[row[at] for row in answer.rows] for at in range(len(columns))]
    pq.write_table(pa.table(dict(zip(columns, map(pa.array, cells), strict=True))), content)
    replace_private(out, content.getvalue())


def _json(shown: _Shown, *, rows: bool) -> dict[str, Any]:
    answer = shown.answer
    return {
        "run": answer.query.run,
        "grant": shown.grant,
        "query": _query_json(answer.query),
        "access": shown.access,
        "ledger": shown.ledger,
        "checked": answer.checked,
        "unread": answer.unread,
        "columns": _columns(answer),
        "rows": [[_finite(cell) for cell in row] for row in answer.rows] if rows else None,
    }


def _query_json(query: Query) -> dict[str, Any]:
    asked = {"kind": query.kind, "classes": query.classes, "steps": [query.steps.start, query.steps.stop]}
    return {**asked, "digest": query.digest}


def _span(query: Query) -> str:
    return f"steps {query.steps.start} to {query.steps.stop - 1}"


def _finite(cell: object) -> object:
    """Return a cell that JSON can hold: NaN and the infinities become the strings "nan", "inf" and "-inf"."""
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


def _page(shown: _Shown, *, verified: bool | None, out: Path | None) -> Iterator[Block | str]:
    answer = shown.answer
    yield f"{answer.query.run}: {answer.query.kind} entries, {_span(answer.query)}\n"
    if out is None:
        yield from _rows(answer)
    else:
        yield f"{out}: {len(answer.rows)} rows, mode 0600"
    yield f"checked: {answer.checked} contents agree with their commitments"
    if shown.access is None:
        yield "recorded: that these keys were wrapped ahead; reading with them is not recorded"
    else:
        yield f"recorded: entry {shown.access} of {shown.ledger}; query {answer.query.digest}"
    if verified is None:
        yield "ledger: not verified; --trust FILE verifies it"
    else:
        yield f"ledger: {'verified' if verified else 'NOT verified; `explorer ledger verify` says why'}"
    yield from (Paragraph(f"not read: {reason}", "alert") for reason in answer.unread)


def _rows(answer: Numbers) -> Iterator[Block | str]:
    """Yield the first rows, without columns that are empty in all of them."""
    if not answer.rows:
        yield "no recorded numbers in these steps that the grant opens\n"
        return
    names = _columns(answer)
    filled = [at for at in range(len(names)) if any(row[at] is not None for row in answer.rows)]
    rows = [[_short(row[at]) for at in filled] for row in answer.rows[:SHOWN]]
    yield table([names[at] for at in filled], rows, right=[names[at] for at in filled if names[at] not in WORDS])
    if len(answer.rows) > SHOWN:
        yield f"and {len(answer.rows) - SHOWN} more rows: --json or --out FILE has them\n"


def _short(cell: object) -> str:
    return "-" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)
