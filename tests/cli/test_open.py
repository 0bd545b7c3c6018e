"""`explorer open`: the copy in the project, what is handed to JupyterLab, and what is refused."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from explorer.bundled import notebook_directory
from explorer.cli import notebooks
from explorer.store.ingest import ingest
from explorer.store.place_copy import copy_of, publish_results
from explorer.store.published import database
from tests.builders import run_record, write_failure, write_sweep
from tests.cli.command import explorer

SHIPPED = notebook_directory() / "explore.ipynb"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What JupyterLab would be started with."""
    given: dict[str, Any] = {}

    def serve(notebook: Path, **options: Any) -> None:
        given.update(options, notebook=notebook)

    def part(name: str) -> Any:
        return serve if name == "open" else load(name)

    load = notebooks.part
    monkeypatch.setattr(notebooks, "part", part)
    for name in ("EXPLORER_VIEW", "EXPLORER_RUNS", "EXPLORER_DATA"):
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)
    return given


def test_the_results_of_a_place_are_opened_from_a_copy(
    tmp_path: Path, served: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    write_sweep(tmp_path / "runs", {"baseline": {1.0: (0.9, 0.91)}})
    ingest(tmp_path / "runs")
    publish_results(tmp_path / "runs", "digits", str(tmp_path / "place"))
    opened = explorer("open", "--at", tmp_path / "place", "--view", "digits?target=0.9", cwd=tmp_path)
    assert opened.returncode == 0, opened.stderr
    assert served["notebook"] == tmp_path / "explore.ipynb"
    assert served["reading"] == f"Reading the results at {tmp_path / 'place'} ..."
    assert Path(os.environ["EXPLORER_RUNS"]) == copy_of(str(tmp_path / "place"))


def test_the_notebook_is_copied_and_the_shipped_one_is_left(tmp_path: Path, served: dict[str, Any]) -> None:
    before = SHIPPED.read_bytes()
    done = explorer("open", "explore", "--no-browser", "--port", "8899", "--", "--allow-root", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    copy = tmp_path / "explore.ipynb"
    assert served["notebook"] == copy.resolve() and served["root"] == tmp_path.resolve()
    assert served["arguments"] == ["--ServerApp.port=8899", "--allow-root"]
    assert (served["browser"], served["trusted"]) == (False, True)
    assert json.loads(copy.read_text())["cells"] == json.loads(SHIPPED.read_text())["cells"]
    assert SHIPPED.read_bytes() == before


def test_in_the_directory_of_the_notebooks_the_copy_goes_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(notebooks, "notebook_directory", lambda: tmp_path / "notebooks")
    monkeypatch.chdir(tmp_path / "notebooks")
    assert notebooks._project() == tmp_path.resolve()


def test_an_edited_copy_stays_and_an_old_one_follows_the_package(tmp_path: Path) -> None:
    shipped, project = tmp_path / "shipped" / "explore.ipynb", tmp_path / "project"
    shipped.parent.mkdir()
    project.mkdir()
    shipped.write_bytes(SHIPPED.read_bytes())
    copy, as_shipped = notebooks.copied(shipped, project)
    assert as_shipped

    newer = json.loads(shipped.read_text())
    newer["cells"][1]["source"] = ["print('newer')"]
    shipped.write_text(json.dumps(newer))
    assert notebooks.copied(shipped, project) == (copy, True)
    assert "newer" in copy.read_text(), "never edited: it follows"

    edited = json.loads(copy.read_text())
    edited["cells"][1]["source"] = ["print('mine')"]
    copy.write_text(json.dumps(edited))
    assert notebooks.copied(shipped, project) == (copy, False), "edited: not executed unasked, unless Jupyter trusts it"
    assert "mine" in copy.read_text()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"cells": [1], "metadata": {}}', b'{"cells": []}', b"\xff", b"[" * 9999]
)
def test_what_is_no_notebook_is_refused_and_kept(tmp_path: Path, served: dict[str, Any], content: bytes) -> None:
    (tmp_path / "explore.ipynb").write_bytes(content)
    done = explorer("open", "explore", cwd=tmp_path)
    assert done.returncode == 1 and "is not a notebook: move it away" in done.stderr and not served
    assert (tmp_path / "explore.ipynb").read_bytes() == content


def test_runs_elsewhere_are_below_the_root_too(tmp_path: Path, served: dict[str, Any]) -> None:
    (tmp_path / "desk").mkdir()
    (tmp_path / "runs" / "digits" / "one-run").mkdir(parents=True)
    (tmp_path / "runs" / "_store").mkdir()
    assert explorer("open", "--runs", tmp_path / "runs", cwd=tmp_path / "desk").returncode == 0
    assert served["root"] == tmp_path.resolve()
    assert served["reading"] == f"Reading 1 run in {tmp_path / 'runs'} ..."


def test_a_view_by_options(tmp_path: Path, served: dict[str, Any]) -> None:
    (tmp_path / "runs" / "digits" / "one-run").mkdir(parents=True)
    options = ("--sweep", "digits", "--target", "97%", "--pay", "cost", "--recipes", "baseline,fast")
    done = explorer("open", "--view", "?metric=accuracy&x=steps", *options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.environ["EXPLORER_VIEW"] == "digits?metric=accuracy&x=cost&target=0.97&recipes=baseline,fast"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--sweep", "digitz"), "unknown sweep 'digitz'; did you mean 'digits'"),
        (("--pay", "cots"), "unknown x 'cots'; did you mean 'cost'"),
        (("--target", "high"), "target: found 'high'; expected a number, such as 0.97 or 97%"),
        (("--view", "digits?metrik=nll"), "unknown field 'metrik'; did you mean 'metric'"),
        (("ledger", "--pay", "cost"), "found with the notebook ledger; expected with explore"),
        (("explorer",), "unknown notebook 'explorer'; did you mean 'explore'"),
    ],
)
def test_a_view_that_cannot_be_is_refused(
    tmp_path: Path, served: dict[str, Any], arguments: tuple[str, ...], reason: str
) -> None:
    (tmp_path / "runs" / "digits").mkdir(parents=True)
    done = explorer("open", *arguments, cwd=tmp_path)
    assert done.returncode == 1 and reason in done.stderr and not served
    assert not (tmp_path / "explore.ipynb").exists()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a finished sweep, and one that has none of its runs yet."""
    directory = tmp_path_factory.mktemp("project")
    curves = {0.5: (0.90, 0.91), 1.0: (0.95, 0.96)}
    write_sweep(directory / "runs", {"baseline": curves, "fast": curves})
    write_failure(directory / "runs", run_record(sweep="begun"), kind="exception", message="no memory")
    ingest(directory / "runs")
    return directory


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--view", "digitz?x=steps"), "unknown sweep 'digitz'; did you mean 'digits'"),
        (("--sweep", "begun"), "sweep 'begun' has no finished run yet"),
        (("--metric", "acuracy"), "unknown metric 'acuracy'; did you mean 'accuracy'"),
        (("--recipes", "baseline,fst"), "unknown recipe 'fst'; did you mean 'fast'"),
        (("--view", "digits?baseline=basline"), "unknown baseline 'basline'; did you mean 'baseline'"),
        (("--view", "*?baseline_sweep=digitz"), "unknown baseline_sweep 'digitz'"),
        (("--view", "digits?seeds=7"), "unknown seed '7'; known: 0, 1"),
        (("--pay", "deletion"), "x: deletion is not known for these runs; known: time, steps, examples"),
        (("--target", "970"), "target: found '970'; expected accuracy from 0.00% to 100.00%"),
        (("--target", "9700%"), "target: found '9700%'; expected accuracy from"),
        (("--target", "-3"), "target: found '-3'; expected accuracy from"),
        (("--view", "digits?target=970"), "target: found '970'; expected accuracy from"),
    ],
)
def test_what_the_results_lack_is_refused_before_jupyter_starts(
    project: Path, served: dict[str, Any], arguments: tuple[str, ...], reason: str
) -> None:
    done = explorer("open", *arguments, cwd=project)
    assert done.returncode == 1 and reason in done.stderr and len(done.stderr.splitlines()) == 1
    assert not served and "EXPLORER_VIEW" not in os.environ
    assert not (project / "explore.ipynb").exists()


@pytest.mark.parametrize("target", ["97", "97%", "0.97"])
def test_what_the_results_have_is_opened(project: Path, served: dict[str, Any], target: str) -> None:
    options = ("--sweep", "digits", "--metric", "accuracy", "--recipes", "fast", "--pay", "steps", "--target", target)
    assert explorer("open", *options, cwd=project).stderr == ""
    assert served and os.environ["EXPLORER_VIEW"].startswith("digits?metric=accuracy&x=steps&target=")
    (project / "explore.ipynb").unlink()


def test_a_database_that_cannot_be_read_is_refused_with_the_remedy(
    project: Path, served: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(project / "runs", tmp_path / "runs")
    database(tmp_path / "runs").write_bytes(b"no database" * 1000)
    done = explorer("open", "--sweep", "digits", cwd=tmp_path)
    assert done.returncode == 1 and "explorer store rebuild" in done.stderr and not served
