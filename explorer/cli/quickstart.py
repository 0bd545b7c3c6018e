"""`explorer quickstart`: a sweep on embedded real data, and one governed run on real provenance."""

import shlex
from pathlib import Path

import typer

from explorer.cli import ledger_web, notebooks, options, sweep
from explorer.cli.run import begin
from explorer.cli.verdicts import verdict_blocks
from explorer.page.progress import step_bar
from explorer.page.terminal import deliver, from_here
from explorer.page.terminal import show as show_blocks
from explorer.report.run_report import write_run_report
from explorer.report.sweep_report import write_sweep_report
from explorer.runlog.documents import TRUST_FILE
from explorer.store.ingest import ingest
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import load_spec
from explorer.training import demonstration
from explorer.training.run import execute
from explorer.training.run_plan import plan_single
from explorer.training.tagging import dataset_of
from explorer.yaml_document import read_document

DOCUMENTS = "_governance"  # below the runs: the documents of the demonstration


def quickstart(
    runs: options.Runs = options.RUNS,
    workers: options.Workers = None,
) -> None:
    """Train five recipes on real handwriting at five budgets and three seeds; show which is as good for less.

    Then it trains a small language model on the source code that is installed here, under a signed policy, and records
    which licences moved which layers.

    It takes a few minutes and needs neither data nor network. Started again, it runs only what is missing.
    """
    spec = notebooks.notebook_directory() / "sweeps" / "digits.yaml"
    planned = make_plan(load_spec(spec), runs=runs)
    _announce(len(planned.runs), len(planned.missing))
    summary = sweep.execute(planned, runs=runs, engine="warm", workers=workers, profile=True, json=False)
    sweep.finish(summary, json=False)
    show(runs, planned.spec.name)
    governed = govern(runs)
    _what_next(runs, spec, governed)


def show(runs: Path, name: str) -> None:
    """Show the equal-quality table in the terminal, and write the HTML report."""
    show_blocks(verdict_blocks(runs, name))
    page = runs / name / "report.html"
    write_sweep_report(runs, name, page)
    print(f"tradeoff curves: {page.resolve().as_uri()}")


def govern(runs: Path) -> Path:
    """Train one run under demonstration documents, recorded and cosigned, and return its directory."""
    here = notebooks.notebook_directory()
    recipe = here / "recipes" / "source.yaml"
    print(
        "\none governed run: a small GPT on the Python source that is installed here, classed by declared licence",
        flush=True,
    )
    # Documents first: keys, taxonomy, tags and policy of a demonstration, whose keys are all on this machine.
    taxonomy, policy = demonstration.example(here / "policies")
    documents = demonstration.demonstrate(
        runs / DOCUMENTS, dataset_of(str(recipe)), data=None, taxonomy=taxonomy, policies=[policy], now=options.clock()
    )
    print(f"{documents}: its documents, {demonstration.WARNING}", flush=True)
    # Then the run, recorded in a ledger.
    planned = plan_single(
        read_document(recipe).value,
        name=recipe.stem,
        where=str(recipe),
        data=None,
        beside=recipe.parent,
        governance=documents,
        now=options.clock(),
    )
    run = runs / planned.record.sweep / planned.record.run_id
    begin(planned, run)
    with step_bar(planned.record.model) as progress:
        result = execute(run, on_progress=progress)
    quality = planned.record.quality
    print(f"{planned.record.run_id}: {result.steps} steps, {result.metrics[quality]:.2f} {quality.replace('_', ' ')}")
    # Last the cosignatures, without which the trust file does not accept the ledger, and the report.
    for name in demonstration.COSIGNERS:
        cosigned = ledger_web.cosign(
            run / "ledger", key=documents / demonstration.KEYS[name], trust=documents / TRUST_FILE
        )
        if deliver(cosigned, as_json=False):
            raise typer.Exit(1)
    ingest(runs)
    page = run / "report.html"
    write_run_report(run, page, trust=documents / TRUST_FILE)
    print(f"which licences moved which layers: {page.resolve().as_uri()}")
    return run


def _announce(total: int, missing: int) -> None:
    done = f", {total - missing} of them already done" if missing < total else ""
    print(f"{total} runs on handwritten digits (scikit-learn){done}", flush=True)


def _what_next(runs: Path, spec: Path, governed: Path) -> None:
    option = "" if runs == options.RUNS else f" --runs {shlex.quote(str(runs))}"
    ledger, trust = (shlex.quote(str(governed / name)) for name in ("ledger", "governance/trust.json"))
    print(
        "\nnext commands\n"
        f"  explorer open explore{option}        the curves in a notebook: choose axes, baseline, target, prices\n"
        f"  explorer results digits{option}      the verdicts; --format csv, md or parquet exports all runs\n"
        f"  explorer sweep plan {from_here(spec)}    its specification: copy it, change it, run it\n"
        "  explorer methods                   the methods that a recipe can combine\n"
        f"  explorer open ledger{option}         the governed run: classes, layers, steps, with proofs\n"
        f"  explorer ledger verify {ledger} --trust {trust}\n"
        "                                     check that nothing in its ledger was changed"
    )
