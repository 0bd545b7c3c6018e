"""A sweep run to its end, as a page and a picture.

    python benchmarks/sweep_page.py notebooks/sweeps/source.yaml [RUNS]

runs what is missing of the sweep below RUNS (a new directory if none is named), with EXPLORER_DATA where its data needs
that, and writes benchmarks/<sweep>.md and .png.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from options import options
from pages import write_page

from explorer.report.sweep_report import read_sweep, write_sweep_report
from explorer.sweep.spec import load_spec
from explorer.views.explorer.sharing import encode
from explorer.views.explorer.tradeoff import tradeoff

HERE = Path(__file__).parent


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("spec", type=Path, help="the specification of the sweep")
    parser.add_argument("runs", nargs="?", type=Path, help="a directory that keeps the runs")
    given = parser.parse_args()
    spec, runs = given.spec, given.runs or Path(tempfile.mkdtemp(prefix="explorer-"))
    name = load_spec(spec).name
    begun, before = (runs / name).exists(), time.monotonic()
    command = [sys.executable, "-m", "explorer", "sweep", "run", str(spec), "--runs", str(runs)]
    subprocess.run(command, check=True)
    seconds = time.monotonic() - before
    answer = read_sweep(runs, name).metrics[0].answer
    assert answer.scene is not None
    chart = tradeoff(answer.scene, width=760, height=400)
    (HERE / f"{name}.png").write_bytes(encode("png", rows=answer.rows, chart=chart))
    page = HERE / f"{name}.md"
    write_sweep_report(runs, name, page, format="md")
    took = "" if begun else f"; this call, runs, profile and controls, took {seconds:.0f} s"
    write_page(page, f"{page.read_text()}\nMade by `benchmarks/sweep_page.py {spec}`{took}.")


if __name__ == "__main__":
    main()
