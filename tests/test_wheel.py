"""A wheel in an empty directory works like a clone: it runs a sweep, reports, and opens a notebook that it carries."""

import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_sweep_and_its_report_from_a_wheel(tmp_path: Path) -> None:
    source, site, desk = (tmp_path / name for name in ("source", "site", "desk"))
    for name in ("explorer", "notebooks"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path]
    subprocess.run([*build, source], check=True, capture_output=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    desk.mkdir()

    spec = yaml.safe_load((site / "explorer" / "notebooks" / "sweeps" / "digits.yaml").read_text())
    spec |= {"budgets": [0.05], "seeds": [0], "recipes": {"baseline": []}}
    (desk / "tiny.yaml").write_text(yaml.safe_dump(spec))

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=desk,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    location = "import explorer; print(explorer.__file__)"
    assert python("-c", location).startswith(str(site)), "the code is the wheel's, not this checkout's"
    python("-m", "explorer", "sweep", "run", "tiny.yaml")
    assert len(list((desk / "runs").glob("*/*/notebook.ipynb"))) == 1
    python("-m", "explorer", "report", spec["name"])
    assert (desk / "runs" / spec["name"] / "report.html").exists()

    # `open` copies the notebook, executes it and saves a picture in it, while its server waits.
    command = [sys.executable, "-m", "explorer", "open", "--no-browser", "--port", "8990", "--", "--allow-root"]
    environment = {**os.environ, "PYTHONPATH": str(site), "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    with subprocess.Popen(command, cwd=desk, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = [line for line in iter(server.stdout.readline, "Ctrl-C ends the server and its kernels.\n") if line]
        assert said[0] == "Reading 1 run in runs ...\n" and "/lab/tree/explore.ipynb" in said[1]
        deadline = time.monotonic() + 120
        while '"image/png"' not in (desk / "explore.ipynb").read_text() and time.monotonic() < deadline:
            time.sleep(0.5)
        server.send_signal(signal.SIGINT)
    assert '"image/png"' in (desk / "explore.ipynb").read_text()
    shipped = site / "explorer" / "notebooks" / "explore.ipynb"
    assert '"image/png"' not in shipped.read_text(), "the notebook of the package stays as it is"
