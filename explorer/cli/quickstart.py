"""`explorer quickstart`: a sweep on embedded real data, one recipe of which trains under a signed policy."""

import shlex
from pathlib import Path

import typer

from explorer import rundir
from explorer.bundled import notebook_directory
from explorer.cli import options, sweep
from explorer.cli.governed import ledger_web
from explorer.cli.verdicts import verdict_blocks
from explorer.page.terminal import deliver, from_here
from explorer.page.terminal import show as show_blocks
from explorer.report.run_report import write_run_report
from explorer.report.sweep_report import write_sweep_report
from explorer.runlog.documents import TRUST_FILE
from explorer.store.ingest import ingest
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import load_spec
from explorer.training import demonstration
from explorer.training.tagging import dataset_of

DOCUMENTS = "_governance"  # below the runs: the documents of the demonstration
SPEC = "source.yaml"  # below the runs: the specification, for the user to read, copy and change
GOVERNED = "governed"  # the recipe whose first run at the full budget gets a report


def quickstart(
    runs: options.Runs = options.RUNS,
    workers: options.Workers = None,
) -> None:
    """Train four recipes on the source code that is installed here; show which is as good as the baseline for less.

    There are three budgets and four seeds. One recipe trains under a signed policy: a ledger records which licences
    moved which layers, and a report shows it.

    It takes a few minutes and needs neither data nor network. Started again, it runs only what is missing.
    """
    spec, documents = specification(runs)
    planned = make_plan(load_spec(spec), runs=runs)
    _announce(len(planned.runs), len(planned.missing))
    summary = sweep.execute(planned, runs=runs, engine="warm", workers=workers, profile=True, json=False)
    sweep.finish(summary, json=False)
    every, governed = _governed(runs, planned)
    for run in every:
        cosign(run, documents)
    print(f"{len(every)} ledgers cosigned by {' and '.join(demonstration.COSIGNERS)}")
    ingest(runs)
    show(runs, planned.spec.name)
    page = governed / "report.html"
    write_run_report(governed, page, trust=documents / TRUST_FILE)
    print(f"which licences moved which layers: {page.resolve().as_uri()}")
    _what_next(runs, spec, governed)


def specification(runs: Path) -> tuple[Path, Path]:
    """Return the specification below the runs and the directory of its documents; make what is missing.

    A specification that is there is kept, because the user may have changed it.
    """
    template = notebook_directory() / "sweeps" / SPEC
    taxonomy, policy = demonstration.example(notebook_directory() / "policies")
    documents = demonstration.demonstrate(
        runs / DOCUMENTS,
        dataset_of(str(template)),
        data=None,
        taxonomy=taxonomy,
        policies=[policy],
        now=options.clock(),
    )
    spec = runs / SPEC
    if not spec.exists():
        print(f"{documents}: documents of the governed recipe, {demonstration.WARNING}", flush=True)
        # The name of the documents' directory depends on what is installed, so the template cannot contain it.
        place = documents.relative_to(runs).as_posix()
        text = template.read_text(encoding="utf-8").replace("governance: DOCUMENTS", f"governance: {place}")
        rundir.write_bytes(spec, text.encode())
    return spec, documents


def cosign(run: Path, documents: Path) -> None:
    """Have both authorities of the demonstration cosign a run's ledger, without which its trust file rejects it."""
    for name in demonstration.COSIGNERS:
        cosigned = ledger_web.cosign(
            run / "ledger", key=documents / demonstration.KEYS[name], trust=documents / TRUST_FILE
        )
        if not cosigned.holds:
            raise typer.Exit(deliver(cosigned, as_json=False))


def show(runs: Path, name: str) -> None:
    """Show the equal-quality table in the terminal, and write the HTML report."""
    show_blocks(verdict_blocks(runs, name))
    page = runs / name / "report.html"
    write_sweep_report(runs, name, page)
    print(f"tradeoff curves: {page.resolve().as_uri()}")


def _governed(runs: Path, planned: Plan) -> tuple[list[Path], Path]:
    """Return the directories of all governed runs, and the one that gets a report: the first at the full budget."""
    records = [run.record for run in planned.runs if run.record.recipe == GOVERNED]
    directories = {record.run_id: runs / planned.spec.name / record.run_id for record in records}
    full = next(record.run_id for record in records if record.ssr == 1.0)
    return list(directories.values()), directories[full]


def _announce(total: int, missing: int) -> None:
    done = f", {total - missing} of them already done" if missing < total else ""
    print(f"{total} runs of a small GPT on the Python source that is installed here{done}", flush=True)


def _what_next(runs: Path, spec: Path, governed: Path) -> None:
    option = "".join(f" {shlex.quote(word)}" for word in options.of_runs(runs))
    ledger, trust = (shlex.quote(str(governed / name)) for name in ("ledger", "governance/trust.json"))
    print(
        "\nnext commands\n"
        f"  explorer open explore{option}        the curves in a notebook: choose axes, baseline, target, prices\n"
        f"  explorer results source{option}      the verdicts; --format csv, md or parquet exports all runs\n"
        f"  explorer sweep plan {shlex.quote(str(from_here(spec)))}    its specification: copy it, change it, run it\n"
        "  explorer methods                   the methods that a recipe can combine\n"
        f"  explorer open ledger{option}         the governed run: classes, layers, steps, with proofs\n"
        f"  explorer ledger verify {ledger} --trust {trust}\n"
        "                                     check that nothing in its ledger was changed"
    )
