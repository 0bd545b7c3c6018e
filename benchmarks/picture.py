"""The picture and the table of the README, from a finished quickstart.

python benchmarks/picture.py [RUNS]        writes benchmarks/quickstart.png and benchmarks/quickstart_results.md
"""

from pathlib import Path

from options import options
from pages import write_page

from explorer.report.sweep_report import read_sweep, write_sweep_report
from explorer.views.explorer.sharing import encode
from explorer.views.explorer.tradeoff import tradeoff

HERE = Path(__file__).parent


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("runs", nargs="?", type=Path, default=Path("runs"))
    runs = parser.parse_args().runs
    answer = read_sweep(runs, "source").metrics[0].answer
    assert answer.scene is not None
    chart = tradeoff(answer.scene, width=760, height=400)
    (HERE / "quickstart.png").write_bytes(encode("png", rows=answer.rows, chart=chart))
    page = HERE / "quickstart_results.md"
    write_sweep_report(runs, "source", page, format="md")
    write_page(page, page.read_text())


if __name__ == "__main__":
    main()
