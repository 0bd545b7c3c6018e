"""`explorer read`: the numbers of a run that a grant opens."""

import io
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from explorer import rundir
from explorer.audit.history import badge
from explorer.cli.options import ReaderPassphraseFile, RunDirectory, Steps, clock, span_of
from explorer.cli.signing import load_reader_key
from explorer.cli.tables import table
from explorer.disclosure import wrapped
from explorer.disclosure.grants_in_force import check_standing
from explorer.disclosure.reading import COLUMNS, KEYS, Answer, Query, ask
from explorer.disclosure.reading import read as open_numbers
from explorer.disclosure.requests import is_answer, make_request, open_answer, parse_request
from explorer.disclosure.wrapped import believe, naming, open_keys, parse_wrapped
from explorer.errors import ProvenanceError, unknown
from explorer.page.document import Block
from explorer.page.terminal import Answer as Result
from explorer.page.terminal import visible
from explorer.project import read_project, runs_of
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.grants import open_grant
from explorer.provenance.keys import ReaderKey, replace_private
from explorer.provenance.trust import Trust, read_trust
from explorer.runlog.run_keys import NoKeys
from explorer.runlog.run_ledger import RunLedger
from explorer.store.export import csv_text
from explorer.store.queries import Table

SHOWN = 40  # rows in a terminal
FORMATS = ("csv", "parquet")
WORDS = ("layer", "class", "action", "rule", "evidence")  # columns that are no numbers


def read(
    run: RunDirectory,
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The reader's key file.")],
    grant: Annotated[
        Path | None,
        typer.Option("--grant", metavar="GRANT", help="With --request: the signed grant."),
    ] = None,
    request: Annotated[
        Path | None, typer.Option("--request", metavar="FILE", help="Request to write, for the owner to answer.")
    ] = None,
    answer: Annotated[
        Path | None,
        typer.Option("--answer", metavar="FILE", help="Answer of the owner, or wrapped keys."),
    ] = None,
    class_: Annotated[
        str | None, typer.Option("--class", metavar="C", help="Read this class; * reads numbers over several classes.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", metavar="KIND", help="Kind of entries: step, profile or decision. Default: the first one granted."
        ),
    ] = None,
    steps: Steps = None,
    trust: Annotated[
        Path | None,
        typer.Option(
            "--trust",
            metavar="TRUST",
            help="Trust file; the ledger is verified too. Default: the run's own, unverified.",
        ),
    ] = None,
    passphrase_file: ReaderPassphraseFile = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the rows to a file, .csv or .parquet.")
    ] = None,
) -> Result:
    """Read what a grant opens: numbers by step, layer and class, checked against commitments in the ledger.

    Twice: --request writes what is asked for, signed. The owner answers it with `explorer grant answer`, which is an
    entry in the project's ledger before any key is handed over. --answer then shows the numbers. RUN is a copy of the
    run, or an unpacked pack; both times the reader's key is enough, whose passphrase is in $EXPLORER_READER_PASSPHRASE.
    The exit status is 0 only if all that was asked for could be read.
    """
    if out is not None and out.suffix.removeprefix(".") not in FORMATS:
        raise ProvenanceError(f"cannot write {out}: {unknown('format', out.suffix.removeprefix('.'), FORMATS)}")
    if (request is None) == (answer is None):
        raise ProvenanceError(
            "say --request FILE to ask, with --grant GRANT, or --answer FILE to read what the owner has answered"
        )
    ledger = RunLedger(run, keys=NoKeys())
    reader, believed = load_reader_key(key, passphrase_file), _trust(ledger, trust)
    if request is not None:
        if grant is None or out is not None:
            raise ProvenanceError("a request takes the signed grant, --grant GRANT, and gives no rows: no --out")
        asked = {"kind": kind, "class_": class_, "steps": ledger.range_of(*span_of(steps))}
        return _ask(ledger, grant, reader, believed, request, asked=asked)
    assert answer is not None
    verified = None if trust is None else _verified(ledger, believed)
    named = {"kind": kind, "class_": class_, "steps": None if steps is None else ledger.range_of(*span_of(steps))}
    asked = {name: value for name, value in named.items() if value is not None}
    shown = _with_answer(ledger, answer, reader, believed, asked=asked)
    if out is not None:
        _write(shown.answer, out)
    return Result(
        page=lambda: _page(shown, verified=verified, out=out),
        record=lambda: {**_json(shown, rows=out is None), "verified": verified},
        holds=not shown.answer.unread and verified is not False,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shown:
    answer: Answer
    grant: str  # its id
    access: int | None  # the entry that says that the keys were handed over for this; None: they were wrapped ahead
    ledger: str | None  # that has the entry, and how far the receipt covers it


def _ask(
    run: RunLedger,
    grant: Path,
    reader: ReaderKey,
    trust: Trust,
    out: Path,
    *,
    asked: dict[str, Any],
) -> Result:
    if out.exists():
        raise ProvenanceError(f"{out}: there is a file already; every request is a new one")
    content = rundir.read_bytes(grant, max_bytes=MAX_BYTES, error=ProvenanceError)
    signed = open_grant(content, trust=trust, now=clock(), where=str(grant))
    query = ask(run, signed.value, **asked)
    made = make_request(run, signed, query, reader, now=clock())
    expires = parse_request(made, where=str(out)).request.expires
    rundir.write_bytes(out, made)
    return Result(
        page=lambda: [
            f"{out}: {query.kind} entries of {', '.join(query.classes)}, {_span(query)}",
            f"until {expires}; next, its owner: explorer grant answer RUN {out}",
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
            raise ProvenanceError(f"{where}: an answer is to what was asked; ask for something else with --request")
        opened = open_answer(content, run, reader, trust=trust, now=clock(), where=where)
        ledger = f"{opened.project.origin}, of {opened.project.size} entries"
        answer = open_numbers(run, opened.query, opened.keys)
        return _Shown(answer=answer, grant=opened.grant.id, access=opened.access, ledger=ledger)
    file = parse_wrapped(content, where=where)
    signed = believe(file, run, trust=trust, now=clock(), where=where)
    check_standing(read_project(runs_of(run.run)), naming(signed))  # as far as the project's ledger is here
    query = ask(run, signed.value, **asked)
    keys = open_keys(file, signed.value, reader.opens, where=where)
    return _Shown(answer=open_numbers(run, query, keys), grant=signed.value.id, access=None, ledger=None)


def _trust(run: RunLedger, path: Path | None) -> Trust:
    """Read the trust file that was named, or the run's own copy, which has to be the one that its ledger pins."""
    if path is not None:
        return read_trust(path)
    own = run.run / rundir.GOVERNANCE / "trust.json"
    own_trust = read_trust(own)
    if own_trust.digest != run.genesis.trust:
        raise ProvenanceError(f"{own}: has digest {own_trust.digest}; the run's ledger pins {run.genesis.trust}")
    return own_trust


def _verified(run: RunLedger, trust: Trust) -> bool:
    return badge(run, trust=trust, now=clock()).verified


def _columns(answer: Answer) -> tuple[str, ...]:
    return KEYS + COLUMNS[answer.query.kind]


def _write(answer: Answer, out: Path) -> None:
    """Write the rows, whole or not at all, readable by the user only: these numbers are sealed where they came from."""
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
    """JSON has no word for these numbers: "nan", "inf", "-inf"."""
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
        yield "recorded: that these keys were wrapped ahead; what is read with them is on no record"
    else:
        yield f"recorded: entry {shown.access} of {shown.ledger}; query {answer.query.digest}"
    if verified is None:
        yield "ledger: not verified; --trust FILE does that"
    else:
        yield f"ledger: {'verified' if verified else 'NOT verified; `explorer ledger verify` says why'}"
    for each in answer.unread:
        print(visible(f"not read: {each}"), file=sys.stderr)


def _rows(answer: Answer) -> Iterator[Block | str]:
    """Yield the first rows, without columns that are empty in all of them."""
    if not answer.rows:
        yield "no numbers on record in these steps that the grant opens\n"
        return
    names = _columns(answer)
    filled = [at for at in range(len(names)) if any(row[at] is not None for row in answer.rows)]
    rows = [[_short(row[at]) for at in filled] for row in answer.rows[:SHOWN]]
    yield table([names[at] for at in filled], rows, right=[names[at] for at in filled if names[at] not in WORDS])
    if len(answer.rows) > SHOWN:
        yield f"and {len(answer.rows) - SHOWN} rows more: --json, or --out FILE\n"


def _short(cell: object) -> str:
    return "-" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)
