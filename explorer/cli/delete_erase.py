"""`explorer delete erase`: destroy what a run recorded about a class, or what links records to their tags."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this, only say what would be done.")] = False,
    json: Json = False,
) -> None:
    """Destroy the numbers and the secret of a class, or the salts of records. The ledger still verifies.

    The model is not changed: `explorer delete run` makes one without them. What is destroyed cannot be brought back.
    """
    from explorer.deletion.erasing import erase as do
    from explorer.deletion.erasing import of_classes, of_records
    from explorer.recorded.obstacles import SALTS
    from explorer.recorded.run_ledger import RunLedger
    from explorer.recorded.source import source_of
    from explorer.recorded.target import resolve

    ledger = RunLedger(run)
    target = resolve(ledger, class_=class_, records=record or ())
    if target.classes and salts is not None:
        raise LedgerError("--salts: these are of records, and a class is to be erased")
    if target.classes:
        found = of_classes(ledger, target.classes)
    else:
        found = of_records(ledger, target.records, salts=salts or Path(source_of(run).private) / SALTS)
    if yes:
        do(ledger, found)
    _print(found, done=yes, json=json)
    if not yes:
        raise typer.Exit(1)


def _print(found: "Erasure", *, done: bool, json: bool) -> None:
    from dataclasses import asdict

    if json:
        print_json({"erased": done, **asdict(found)})
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
    lines += ["  not reached, see to it yourself:", *(f"    {each}" for each in found.elsewhere)]
    lines += [] if done else ["nothing was changed: what is erased cannot be brought back; --yes does it"]
    print(visible("\n".join(lines)), file=out)
