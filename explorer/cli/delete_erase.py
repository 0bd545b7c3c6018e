"""`explorer delete erase`: destroy what a run recorded about a class, or what links records to their tags."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.credentials import clock, provide_passphrase
from explorer.cli.delete_certify import Private
from explorer.cli.delete_plan import Class, Records
from explorer.cli.output import print_json, visible
from explorer.cli.settings import Json
from explorer.cli.trace import RunDirectory
from explorer.errors import LedgerError

if TYPE_CHECKING:
    from explorer.deletion.erasing import Erasure


def erase(
    run: RunDirectory,
    class_: Class = None,
    record: Records = None,
    salts: Annotated[
        Path | None, typer.Option("--salts", metavar="FILE", help="The salts of the records. Default: where they were.")
    ] = None,
    trust: Annotated[
        Path | None, typer.Option("--trust", metavar="TRUST", help="Whom to believe. Default: the run's own copy.")
    ] = None,
    governance: Private = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this, only say what would be done.")] = False,
    json: Json = False,
) -> None:
    """Destroy the numbers and the secret of a class, or the salts of records. The ledger still verifies.

    The model is not changed: `explorer delete run` makes one without them. What is destroyed cannot be brought back.
    The trainer's key signs an entry that says so in the project's ledger, before anything is destroyed.
    """
    from explorer import rundir
    from explorer.deletion.erasing import erase as do
    from explorer.deletion.erasing import of_classes, of_records
    from explorer.project import Project, runs_of
    from explorer.provenance.trust import read_trust
    from explorer.runlog.documents import SALTS_FILE, TRAINER_FILE, source_of, trainer_key
    from explorer.runlog.run_ledger import RunLedger
    from explorer.runlog.target import resolve

    ledger = RunLedger(run)
    target = resolve(ledger, class_=class_, records=record or ())
    if target.classes and salts is not None:
        raise LedgerError("--salts: these are of records, and a class is to be erased")
    if target.classes:
        found = of_classes(ledger, target.classes)
    else:
        found = of_records(ledger, target.records, salts=salts or Path(source_of(run).private) / SALTS_FILE)
    entry = None
    if yes:
        provide_passphrase((Path(source_of(run).private) if governance is None else governance) / TRAINER_FILE)
        believed = read_trust(trust or run / rundir.GOVERNANCE / "trust.json")
        name, key = trainer_key(run, trust=believed, now=clock(), private=governance)
        with Project.open(runs_of(run), key=key, name=name) as project:
            entry = do(ledger, found, project=project)
    _print(found, entry=entry, json=json)
    if not yes:
        raise typer.Exit(1)


def _print(found: "Erasure", *, entry: int | None, json: bool) -> None:
    """`entry`: of the project's ledger; None: nothing was erased."""
    from dataclasses import asdict

    done = entry is not None
    if json:
        print_json({"erased": done, **asdict(found), "entry": entry})
        return
    out = sys.stdout if done else sys.stderr
    what = ", ".join(found.classes) or f"{len(found.records)} records"
    lines = [f"{found.run}: {'erased' if done else 'would erase'} {what}"]
    if found.classes:
        named = ", ".join("numbers over several classes" if name == "*" else name for name in found.secrets)
        lines.append(f"  secrets: {named}")
        lines.append(f"  numbers: {len(found.blobs)} blobs, and rows in {len(found.spool)} files of the spool")
    else:
        lines.append(f"  salts: of rows {', '.join(map(str, found.records))} in {found.salts}")
    lines += [f"  on record: entry {entry} of the project's ledger"] if done else []
    lines += ["  not reached, see to it yourself:", *(f"    {each}" for each in found.elsewhere)]
    lines += [] if done else ["nothing was changed: what is erased cannot be brought back; --yes does it"]
    print(visible("\n".join(lines)), file=out)
