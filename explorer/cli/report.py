"""`explorer report` and `explorer pack`: reports of sweeps and governed runs, and one file for an auditor."""

import hashlib
import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import rundir
from explorer.cli import options
from explorer.cli.results import tell_upkeep
from explorer.cli.signing import provide_trainer
from explorer.cli.verbs import part
from explorer.disclosure.pack import (
    Pack,
    accesses,
    check_place,
    make_pack,
    papers,
    read_grants,
    verifier_program,
    write_pack,
)
from explorer.errors import ExplorerError, RunError
from explorer.page.terminal import Answer
from explorer.project import Project, runs_of
from explorer.provenance.keys import PASSPHRASE, parse_public
from explorer.provenance.trust import Trust, read_trust
from explorer.report.run_report import FORMATS, page_of, read_run, write_run_report
from explorer.report.sweep_report import write_sweep_report
from explorer.rundir import GOVERNANCE, LEDGER
from explorer.runlog.documents import TRUST_FILE, trainer_key
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import to_json
from explorer.store.upkeep import refuse_gone
from explorer.views.ledger.open_run import find_run, governed_runs


class ReportFormat(StrEnum):
    """The format of a report. Croissant describes the dataset of a run."""

    HTML = "html"
    PDF = "pdf"
    MD = "md"
    JSON = "json"
    CROISSANT = "croissant"


def report(
    name: Annotated[
        str, typer.Argument(metavar="RUN|SWEEP", help="Directory or id of a governed run, or the name of a sweep.")
    ],
    format: Annotated[
        ReportFormat, typer.Option("--format", help="Output format; croissant describes the dataset of a run.")
    ] = ReportFormat.HTML,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write. Default: in the directory of the run or sweep.",
        ),
    ] = None,
    trust: Annotated[
        Path | None,
        typer.Option(
            "--trust",
            metavar="TRUST",
            help="Trust file for the report of a run. Default: none, so that nothing is verified.",
        ),
    ] = None,
    runs: options.Runs = options.RUNS,
) -> Answer:
    """Write the report of a sweep, or the governance report of one run, and print where it is. Both work offline.

    The report of a sweep has the answer, the curves, the recipes at equal quality and at equal budget, controls,
    negative results, and how everything was measured. The report of a run shows which classes trained which layers, who
    vouched for them, policy and decisions, deletability, integrity, the questions of regulators, and the ledger entries
    behind every figure.
    """
    # A name can mean both. A directory with a ledger is a run; any other directory of runs is a sweep.
    run = None if (runs / name).is_dir() and not (runs / name / LEDGER).is_dir() else _governed(runs, name)
    path = _of_sweep(runs, name, format, out, trust) if run is None else _of_run(run, format, out, trust)
    return Answer(
        page=lambda: [str(path)],
        record=lambda: {"file": str(path)},
        remark="" if run is None else options.warn_of_own(trust, run),
        then=lambda: () if run is None else part("governed runs, next")(run, "report", trust=trust),
    )


def _of_run(run: Path, format: ReportFormat, out: Path | None, trust: Path | None) -> Path:
    path = out or page_of(run, format=format.value)
    with _elsewhere(path, named=out is not None):
        write_run_report(run, path, trust=trust, format=format.value)
    return path


def _of_sweep(runs: Path, sweep: str, format: ReportFormat, out: Path | None, trust: Path | None) -> Path:
    if trust is not None:
        raise ExplorerError(f"--trust is for the report of a governed run; found no governed run {sweep!r} in {runs}")
    tell_upkeep(runs)
    refuse_gone(runs, sweep)
    path = out or runs / sweep / f"report.{format}"
    with _elsewhere(path, named=out is not None):
        write_sweep_report(runs, sweep, path, format=format.value)
    return path


@contextmanager
def _elsewhere(path: Path, *, named: bool) -> Iterator[None]:
    """Suggest --out where the default place, the directory of the run or sweep, is read-only."""
    try:
        yield
    except RunError as error:
        if named or not str(error).startswith(f"cannot write {path}"):
            raise
        raise RunError(f"{error}; name another place with --out FILE") from error


def _governed(runs: Path, name: str) -> Path | None:
    """Return the governed run of this name; None if there is none, so that the name can only be a sweep's."""
    if (Path(name) / LEDGER).is_dir():
        return Path(name)
    known = governed_runs(runs) if runs.is_dir() else {}
    return find_run(runs, name) if any(name in (key, path.name) for key, path in known.items()) else None


# --- explorer pack ---

COMMANDS = (
    ("python -I verify.py PACK --trust TRUST.json", "verify the pack, and list what it cannot show"),
    ("python -I verify.py PACK --trust TRUST.json --key READER.pem", "and read the numbers granted to you"),
)


def pack(
    run: options.RunDirectory,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File to write, such as run.pack.zip.")],
    grant: Annotated[
        list[str] | None,
        typer.Option("--grant", metavar="ID", help="Id of a grant whose wrapped keys are included; repeatable."),
    ] = None,
    trust: options.OwnTrust = None,
) -> Answer:
    """Pack a run into one file for an auditor: ledger, proofs, documents, grants, report, verifier.

    The pack is signed with the trainer's key. What a grant opens is recorded in the project's ledger before the file is
    written. Without a grant an auditor can verify the integrity of everything and read no sealed number.
    """
    check_place(out)
    ledger, now = RunLedger(run), options.clock()
    trust_file = run / GOVERNANCE / TRUST_FILE if trust is None else trust
    trusted = read_trust(trust_file)
    provide_trainer(run)
    name, key = trainer_key(run, trust=trusted, now=now)
    report, figures = _reports(run, trust_file, now) if ledger.steps > ledger.begins else (None, None)
    # The project's ledger has one writer at a time, so it is open only while it is needed, and only for grants.
    with ExitStack() as stack:
        project = stack.enter_context(Project.open(runs_of(run), key=key, name=name)) if grant else None
        recorded = project.entries() if project else ()
        granted = read_grants(ledger, grant or (), trust=trusted, now=now, project=recorded)
        signing: dict[str, Any] = {"key": key, "passphrase": os.environ.get(PASSPHRASE), "trust": trusted, "now": now}
        made = make_pack(ledger, grants=granted, report=report, figures=figures, **signing)
        for access in accesses(ledger, made, granted):
            assert project is not None
            project.append(access)
    write_pack(out, made)
    return Answer(
        page=lambda: _page(made, out, trusted),
        record=lambda: _record(made, out),
        then=lambda: part("governed runs, next")(run, "pack", trust=trust),
    )


def _reports(run: Path, trust: Path, now: int) -> tuple[bytes, bytes]:
    """Return the report of exactly what is in the pack, as a page and as JSON."""
    # Made from a copy of the files that go into the pack: neither private files nor the project can show in it.
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "runs" / "pack" / run.resolve().name
        for name in (rundir.LEDGER, rundir.GOVERNANCE):
            shutil.copytree(run / name, copy / name, symlinks=True)
        for relative, content in papers(RunLedger(run)):
            rundir.write_bytes(copy / relative, content)
        content = read_run(copy, trust=trust, now=now)
        packed = replace(content, directory=Path(content.run_id), commands=COMMANDS)
        return FORMATS["html"](packed), FORMATS["json"](packed)


def _record(made: Pack, out: Path) -> dict[str, Any]:
    value = to_json(made.manifest)
    program = {"sha256": _digest(), "version": _version()}
    return {
        "file": str(out),
        "size": len(made.content),
        **value,
        "files": len(made.manifest.files),
        "verifier": program,
    }


def _page(made: Pack, out: Path, trust: Trust) -> Iterator[str]:
    manifest = made.manifest
    yield f"{out}: run {manifest.run}, {len(manifest.files)} files, {len(made.content):,} bytes"
    yield f"  ledger       {manifest.ledger.size} entries of {manifest.ledger.origin}"
    yield f"  grants       {', '.join(manifest.grants) or 'none: integrity only'}"
    # A host with keys of several roles could have signed for all of them: an auditor has to know.
    roles: dict[str, None] = {}
    for key in manifest.host.keys:
        owner = None if key.public_key is None else trust.owner(parse_public(key.public_key))
        whose = f" of {owner[0].name} ({owner[0].role})" if owner else ""
        roles |= {owner[0].role: None} if owner else {}
        yield f"  on this host {key.file}: the private key{whose}, {key.state}"
    if len(roles) > 1:
        yield f"  on this host keys of {len(roles)} roles ({', '.join(roles)}), which makes them one party"
    yield f"  verify.py    SHA-256 {_digest()}, explorer/disclosure/verifier.py of explorer {_version()}"
    yield "To verify the pack on any machine: python -I verify.py PACK --trust TRUST.json"
    yield "An auditor takes verify.py from the published package, not from the pack: explorer/disclosure/README.md"


def _digest() -> str:
    """Return the SHA-256 of the program that goes into packs."""
    return hashlib.sha256(verifier_program()).hexdigest()


def _version() -> str:
    return importlib.metadata.version("explorer")
