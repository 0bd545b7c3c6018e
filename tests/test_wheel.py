"""A wheel in an empty directory works like a clone: it runs the quickstart and sweeps, reports, and opens notebooks."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
import venv
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import yaml

from explorer.store import frames
from explorer.store.published import database

ROOT = Path(__file__).parents[1]
PATIENCE = 900.0  # seconds for one command on a busy machine


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment: the wheel is installed, and its requirements are those of this one."""
    place = tmp_path_factory.mktemp("wheel")
    source, wheels, environment = (place / name for name in ("source", "wheels", "environment"))
    for name in ("explorer", "notebooks"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, source]
    subprocess.run(build, check=True, cwd=place)
    (wheel,) = wheels.glob("*.whl")
    venv.create(environment, symlinks=True)
    programs = environment / "bin"
    subprocess.run([*pip, "--python", programs / "python", "install", "--no-deps", "--no-index", wheel], check=True)
    # Plain paths: the file that makes this checkout importable is in these directories, and is not read from here.
    shared = [path for path in sys.path if Path(path).name == "site-packages"]
    (site,) = environment.glob("lib/*/site-packages")
    (site / "requirements.pth").write_text("\n".join(shared))
    (environment / "share").mkdir()
    jupyter = next(share for path in shared if (share := Path(path).parents[2] / "share" / "jupyter").is_dir())
    (environment / "share" / "jupyter").symlink_to(jupyter)
    shutil.rmtree(source)
    return programs


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """An empty directory, far from any clone."""
    place = tmp_path / "desk"
    place.mkdir()
    return place


def environment(desk: Path) -> dict[str, str]:
    """Return the variables of a user who knows nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EXPLORER", "JUPYTER"))}
    return kept | {"HOME": str(desk.parent), "OMP_NUM_THREADS": "1"}


def run(program: Path, *arguments: str | Path, desk: Path) -> str:
    command = [program, *arguments]
    done = subprocess.run(
        command, cwd=desk, env=environment(desk), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr}\n{done.stdout}"
    return done.stdout


@pytest.mark.slow
def test_a_sweep_its_report_and_its_notebook(installed: Path, desk: Path) -> None:
    explorer = installed / "explorer"
    location = run(installed / "python", "-c", "import explorer; print(explorer.__file__)", desk=desk)
    package = Path(location.strip()).parent
    assert package.is_relative_to(installed.parent), "the code is the wheel's, not this checkout's"
    shipped = {file: file.read_bytes() for file in (package / "notebooks").rglob("*.ipynb")}
    assert {"explore.ipynb", "sweep.ipynb", "run.ipynb", "governance.ipynb"} <= {file.name for file in shipped}

    spec = yaml.safe_load((package / "notebooks" / "sweeps" / "digits.yaml").read_text())
    recipes = {"baseline": [], "smooth": ["label_smoothing"]}
    spec |= {"budgets": [0.05, 0.1], "seeds": [0], "recipes": recipes, "baseline": "baseline"}
    (desk / "tiny.yaml").write_text(yaml.safe_dump(spec))
    assert "4 runs" in run(explorer, "sweep", "plan", "tiny.yaml", desk=desk)
    run(explorer, "sweep", "run", "tiny.yaml", desk=desk)
    assert len(list((desk / "runs").glob("*/*/notebook.ipynb"))) == 4
    assert "smooth" in run(explorer, "results", spec["name"], desk=desk)
    run(explorer, "report", spec["name"], desk=desk)
    report = (desk / "runs" / spec["name"] / "report.html").read_text()
    assert "smooth" in report and "<svg" in report

    open_and_look(explorer, desk)
    assert {file: file.read_bytes() for file in shipped} == shipped, "the notebooks of the package stay as they are"
    assert {path.name for path in desk.iterdir()} - {".ipynb_checkpoints"} == {"tiny.yaml", "runs", "explore.ipynb"}


def open_and_look(explorer: Path, desk: Path) -> None:
    """Open the explorer: its server answers at the printed address, and the file has a picture and a table."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [explorer, "open", "explore", "--no-browser", "--port", str(port), "--", "--allow-root"]
    with subprocess.Popen(command, cwd=desk, env=environment(desk), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        watch = threading.Timer(PATIENCE, server.kill)
        watch.start()
        try:
            said = list[str]()
            for line in server.stdout:
                said.append(line.strip())
                if line.startswith("Ctrl-C"):
                    break
            assert said[0] == "Reading 4 runs in runs ..." and "ssh -L" in said[2]
            address = urlsplit(said[1])
            assert address.path == "/lab/tree/explore.ipynb" and address.port == port
            with urllib.request.urlopen(said[1], timeout=PATIENCE) as page:
                assert page.status == 200 and b"jupyter-config-data" in page.read()
            # The server answers once the stills are in the file; it hands out the live widgets.
            contents = urlunsplit(address._replace(path="/api/contents/explore.ipynb"))
            with urllib.request.urlopen(contents, timeout=PATIENCE) as answer:
                live = json.dumps(json.load(answer)["content"])
            assert "application/vnd.jupyter.widget-view+json" in live
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=PATIENCE)
            watch.cancel()
    cells = json.loads((desk / "explore.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output["output_type"] == "error"]
    kinds = {kind for output in outputs for kind in output.get("data", ())}
    assert {"image/png", "text/html"} <= kinds and "application/vnd.jupyter.widget-view+json" not in kinds
    assert "<table" in json.dumps(outputs)


@pytest.mark.slow
def test_the_quickstart(installed: Path, desk: Path) -> None:
    explorer = installed / "explorer"
    location = run(installed / "python", "-c", "import explorer; print(explorer.__file__)", desk=desk)
    spec = Path(location.strip()).parent / "notebooks" / "sweeps" / "source.yaml"
    whole = spec.read_text()
    text = whole
    for full, small in (
        ("bytes_per_class: 20000", "bytes_per_class: 4000"),
        ("budgets: [0.25, 0.5, 1.0]", "budgets: [1.0]"),
        ("seeds: [0, 1, 2, 3]", "seeds: [0]"),
    ):
        assert full in text
        text = text.replace(full, small)
    spec.write_text(text)  # only of this environment: the same quickstart with less data and fewer runs
    try:
        said = run(explorer, "quickstart", desk=desk)
        (checkpoint,) = (desk / "runs").glob("source/*/ledger/checkpoint")
        before = checkpoint.read_bytes()
        again = run(explorer, "quickstart", desk=desk)
    finally:
        spec.write_text(whole)
    assert "4 runs of a small GPT" in said and "next commands" in said
    assert "for demonstration: three keys of one party, unencrypted, in one directory" in said
    runs = desk / "runs"
    pages = list(runs.glob("*/report.html")) + list(runs.glob("*/*/report.html"))
    assert len(pages) == 2 and all(page.as_uri() in said for page in pages)
    rows = frames.results(database(runs), sweep="source")
    assert set(rows["recipe"]) == {"baseline", "alibi", "fast", "governed"} and len(rows) == 4
    assert list(rows[rows["ledger_root"].notna()]["recipe"]) == ["governed"]
    # The commands that it names work as they are written, after a second quickstart too, which trains nothing.
    assert "4 of them already done" in again and checkpoint.read_bytes() == before
    verify = next(line.split() for line in said.splitlines() if "explorer ledger verify" in line)
    verified = run(explorer, *verify[1:], desk=desk)
    assert "verified" in verified and "cosigned by  example.com/model-risk" in verified
    assert "governed" in run(explorer, "results", "source", desk=desk)
