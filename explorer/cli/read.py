"""`explorer read`: the numbers of a run that a grant opens."""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.credentials import ReaderPassphraseFile, clock, load_reader_key
from explorer.cli.output import print_json, print_table, visible
from explorer.cli.settings import Json
from explorer.cli.trace import RunDirectory, Steps, steps_of
from explorer.errors import ProvenanceError, unknown

if TYPE_CHECKING:
    from explorer.disclosure.reading import Answer
    from explorer.provenance.trust import Trust
    from explorer.recorded.run_ledger import RunLedger

SHOWN = 40  # rows in a terminal
FORMATS = ("csv", "parquet")
WORDS = ("layer", "class", "action", "rule", "evidence")  # columns that are no numbers


def register(app: typer.Typer) -> None:
    app.command()(read)


def read(
    run: RunDirectory,
    grant: Annotated[
        str, typer.Option("--grant", metavar="GRANT", help="Its id, or a file of keys that were wrapped for it.")
    ],
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The reader's key file.")],
    class_: Annotated[
        str | None, typer.Option("--class", metavar="C", help="Of this class; * is for numbers over several.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="KIND", help="step, profile or decision. Default: the first granted."),
    ] = None,
    steps: Steps = None,
    trust: Annotated[
        Path | None,
        typer.Option(
            "--trust", metavar="TRUST", help="Whom to believe; verifies the ledger too. Default: the run's own."
        ),
    ] = None,
    passphrase_file: ReaderPassphraseFile = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the rows to a file, .csv or .parquet.")
    ] = None,
    json: Json = False,
) -> None:
    """Read what a grant opens: numbers by step, layer and class, each held against its commitment in the ledger.

    That they are read, and with which grant, is an entry in the project's ledger before any of them is shown; it takes
    the trainer's key, whose passphrase is in $EXPLORER_PASSPHRASE. The exit status is 0 only if all that was asked for
    could be read.
    """
    from explorer.disclosure.opening import believe, open_keys
    from explorer.disclosure.reading import ask
    from explorer.disclosure.reading import read as open_numbers
    from explorer.disclosure.wrapping import read_wrapped
    from explorer.project import Project, runs_of
    from explorer.recorded.keys import NoKeys
    from explorer.recorded.run_ledger import RunLedger
    from explorer.recorded.source import trainer_key

    if out is not None and out.suffix.removeprefix(".") not in FORMATS:
        raise ProvenanceError(f"cannot write {out}: {unknown('format', out.suffix.removeprefix('.'), FORMATS)}")
    found, file = RunLedger(run, keys=NoKeys()), _wrapped_file(run, grant)
    believed = _trust(found, trust)
    verified = None if trust is None else _verified(found, believed)
    wrapped = read_wrapped(file)
    signed = believe(wrapped, found, trust=believed, now=clock(), where=str(file))
    query = ask(found, signed.value, kind=kind, class_=class_, steps=steps_of(found, steps))
    keys = open_keys(wrapped, signed.value, load_reader_key(key, passphrase_file).opens, where=str(file))
    name, signing = trainer_key(run, trust=believed, now=clock())
    project = Project.open(runs_of(run), key=signing, name=name)
    answer = open_numbers(found, query, signed, keys, project=project)
    if out is not None:
        _write(answer, out)
    if json:
        print_json({**_json(answer, rows=out is None), "grant": signed.value.id, "verified": verified})
    else:
        _print(answer, verified=verified, out=out)
    if answer.unread or verified is False:
        raise typer.Exit(1)


def _wrapped_file(run: Path, grant: str) -> Path:
    """The file that was named, or the one of this id in the run's directory."""
    from explorer import rundir
    from explorer.disclosure.standing import check_standing, named
    from explorer.disclosure.wrapping import wrapped_path
    from explorer.project import read_project, runs_of

    if grant in {path.stem for path in (run / rundir.GRANTS).glob("*.json")}:
        return wrapped_path(run, grant)
    if not Path(grant).is_file():
        recorded = tuple(read_project(runs_of(run)))
        check_standing(recorded, named(recorded, grant))
        raise ProvenanceError(f"{run}: no keys of this run were wrapped for the grant {grant!r}")
    return Path(grant)


def _trust(run: "RunLedger", path: Path | None) -> "Trust":
    """The trust file that was named, or the run's own copy, which has to be the one that its ledger pins."""
    from explorer import rundir
    from explorer.provenance.trust import read_trust

    if path is not None:
        return read_trust(path)
    own = run.run / rundir.GOVERNANCE / "trust.json"
    found = read_trust(own)
    if found.digest != run.genesis.trust:
        raise ProvenanceError(f"{own}: has digest {found.digest}; the run's ledger pins {run.genesis.trust}")
    return found


def _verified(run: "RunLedger", trust: "Trust") -> bool:
    from explorer.audit.history import badge

    return badge(run, trust=trust, now=clock()).verified


def _columns(answer: "Answer") -> tuple[str, ...]:
    from explorer.disclosure.reading import COLUMNS, KEYS

    return KEYS + COLUMNS[answer.query.kind]


def _write(answer: "Answer", out: Path) -> None:
    """Whole or not at all, and for whoever reads alone: these numbers are sealed where they came from."""
    import io

    from explorer.provenance.private import replace_private

    columns = _columns(answer)
    if out.suffix == ".csv":
        from explorer.store.queries import Table
        from explorer.store.text import csv_text

        replace_private(out, csv_text(Table(columns=columns, rows=answer.rows)).encode())
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    content, cells = io.BytesIO(), [[row[at] for row in answer.rows] for at in range(len(columns))]
    pq.write_table(pa.table(dict(zip(columns, map(pa.array, cells), strict=True))), content)
    replace_private(out, content.getvalue())


def _json(answer: "Answer", *, rows: bool) -> dict[str, Any]:
    query = answer.query
    asked = {"kind": query.kind, "classes": query.classes, "steps": [query.steps.start, query.steps.stop]}
    shown = [[_finite(cell) for cell in row] for row in answer.rows] if rows else None
    return {
        "run": query.run,
        "query": {**asked, "digest": query.digest},
        "access": answer.access,
        "checked": answer.checked,
        "unread": answer.unread,
        "columns": _columns(answer),
        "rows": shown,
    }


def _finite(cell: object) -> object:
    """JSON has no word for these numbers: "nan", "inf", "-inf"."""
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


def _print(answer: "Answer", *, verified: bool | None, out: Path | None) -> None:
    query = answer.query
    span = f"steps {query.steps.start} to {query.steps.stop - 1}"
    print(visible(f"{query.run}: {query.kind} entries, {span}\n"))
    if out is None:
        _print_rows(answer)
    else:
        print(f"{out}: {len(answer.rows)} rows")
    print(f"checked: {answer.checked} contents agree with their commitments")
    print(f"recorded: entry {answer.access} of the project's ledger, query {query.digest}")
    if verified is None:
        print("ledger: not verified; --trust FILE does that")
    else:
        print(f"ledger: {'verified' if verified else 'NOT verified; `explorer ledger verify` says why'}")
    for each in answer.unread:
        print(visible(f"not read: {each}"), file=sys.stderr)


def _print_rows(answer: "Answer") -> None:
    """The first of them, without columns that none of them fills."""
    if not answer.rows:
        print("no numbers on record in these steps that the grant opens\n")
        return
    names = _columns(answer)
    filled = [at for at in range(len(names)) if any(row[at] is not None for row in answer.rows)]
    rows = [[visible(_short(row[at])) for at in filled] for row in answer.rows[:SHOWN]]
    print_table([names[at] for at in filled], rows, right=[names[at] for at in filled if names[at] not in WORDS])
    if len(answer.rows) > SHOWN:
        print(f"and {len(answer.rows) - SHOWN} rows more: --json, or --out FILE\n")


def _short(cell: object) -> str:
    return "-" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)
