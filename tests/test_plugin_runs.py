"""A governed run with a model and a method of another package: trained with it, read without it, loaded on request."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import explorer as package
from explorer import rundir
from explorer.errors import LedgerError, RunError
from explorer.release.attest import check_card
from explorer.runlog.run_ledger import RunLedger
from explorer.training.model_files import load_model
from explorer.training.run import build_loop, execute, write_finished
from explorer.training.run_plan import plan_run
from explorer.views.explore import explore
from tests.cli.command import explorer, refused
from tests.governance import desk
from tests.plugin_for_tests import MARK, clean_imports, forget, write_package
from tests.recipes_for_tests import tiny_recipe
from tests.training.recorded_runs import METHODS, documents_for_digits, planned_run

DENSE = {"import": "damping.nets:Dense", "width": 8}
IMAGES = torch.linspace(-1, 1, 2 * 64).reshape(2, 1, 8, 8)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with the package `damping`."""
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    with clean_imports("damping"):
        yield write_package(tmp_path, "damping").parent


def test_its_model_is_loaded_on_request_and_only_with_the_code_of_the_run(project: Path) -> None:
    documents = desk.read(documents_for_digits(project), "late")
    recipe = tiny_recipe([METHODS[0]], model=DENSE)
    settings = {"sweep": "test", "baseline": "tiny", "tuning": None, "ssr": 1.0, "seed": 0}
    record = plan_run(recipe, threads=1, data=None, documents=documents, **settings)
    loop = build_loop(record, data=None, documents=documents)
    write_finished(project, loop, recipe, record)
    model = project / rundir.MODEL
    assert json.loads((model / "model.json").read_text())["code"] == record.identity["code"]

    forget("damping")
    (project / "damping" / MARK).unlink()
    with pytest.raises(RunError, match=r"code of other packages builds: damping \(source .*, code=True\), which"):
        package.load_model(model)
    assert not (project / "damping" / MARK).exists()
    with torch.no_grad():
        assert torch.equal(package.load_model(model, code=True)(IMAGES), loop.state.model.eval()(IMAGES))

    nets = project / "damping" / "nets.py"
    before = nets.read_text()
    forget("damping")
    (project / "damping" / MARK).unlink()
    nets.write_text(before.replace("nn.ReLU", "nn.GELU"))
    with pytest.raises(RunError, match=r"model\.json: damping: its code has changed: planned with source"):
        load_model(model, code=True)
    assert not (project / "damping" / MARK).exists()
    # A card without the digests imports nothing.
    nets.write_text(before)
    card = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps({**card, "code": {}}))
    with pytest.raises(RunError, match="code of another package, which reading a record does not import"):
        load_model(model, code=True)
    assert not (project / "damping" / MARK).exists()
    (model / "model.json").write_text(json.dumps(card))
    shutil.move(project / "damping", project / "elsewhere")
    with pytest.raises(RunError, match="no module 'damping': it is neither installed nor in the current directory"):
        load_model(model, code=True)


@pytest.mark.slow
def test_everything_that_reads_it_needs_no_package(project: Path) -> None:
    """Audit, reports, tables, the explorer and the attestation's check; what trains says which package is missing."""
    run = planned_run(project / "runs", documents_for_digits(project), model=DENSE)
    execute(run)
    sweep = project / "runs" / "test"
    sweep.mkdir()
    run = run.rename(sweep / run.name)
    forget("damping")
    (project / "damping" / MARK).unlink()

    def read() -> None:
        for words in (["ledger", "verify", run / rundir.LEDGER], ["conform", run], ["trace", run, "--layer", "head"]):
            done = explorer(*words, "--trust", project / "desk" / "trust.json")
            assert done.returncode == 0, (words, done.stdout + done.stderr)
        done = explorer("report", run, "--out", project / "report.html")
        page = (project / "report.html").read_text()
        assert done.returncode == 0 and "dense" in page and "Code of other packages" in page, done.stderr
        done = explorer("results", "test", "--runs", project / "runs")
        assert "tiny" in done.stdout, done.stderr
        assert "dense" in str(package.load(project / "runs").frame["model"].tolist())
        assert explore(project / "runs") is not None
        check_card(RunLedger(run), run / rundir.MODEL / "model.json")

    read()
    assert not (project / "damping" / MARK).exists(), "reading imported the package"
    shutil.move(project / "damping", project / "elsewhere")
    read()
    said = refused("replay", run)
    assert "no module 'damping': it is neither installed nor in the current directory" in said
    # The control of the card: other code than that of the run does not pass for its model.
    card = run / rundir.MODEL / "model.json"
    content = json.loads(card.read_text())
    card.write_text(json.dumps({**content, "code": {"damping": "0" * 64}}))
    with pytest.raises(LedgerError, match="not the code of the run that the ledger names: damping"):
        check_card(RunLedger(run), card)


SPEC = """\
name: swept
task: {dataset: digits, model: {"damping.nets:Dense": {width: 8}}}
train: {epochs: 0.5, batch_size: 64, optimizer: {sgd: {lr: 0.1}}}
baseline: plain
recipes: {plain: ["damping.methods:Damped"]}
budgets: [1.0]
seeds: [0, 1, 2, 3]
"""


@pytest.mark.slow
@pytest.mark.notebook
def test_code_that_changes_while_a_sweep_runs_trains_nothing_more(project: Path) -> None:
    """The first run that ends changes the package; every worker compares it with the plan before it imports it."""
    methods = project / "damping" / "methods.py"
    hook = """
    def after_fit(self, state: State) -> None:
        Path(__file__).with_name("later.py").write_text("# an edit of the package")

    def change_gradients("""
    methods.write_text(methods.read_text().replace("\n    def change_gradients(", hook))
    (project / "swept.yaml").write_text(SPEC)
    environment = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    command = [sys.executable, "-m", "explorer", "sweep", "run", "swept.yaml", "--workers", "2", "--no-profile"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=900)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "damping: its code has changed: planned with source" in said, said
    results = [*(project / "runs" / "swept").glob("*/result.json")]
    assert 1 <= len(results) <= 2, said  # those that had begun
