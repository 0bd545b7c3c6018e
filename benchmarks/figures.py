"""The figures of the project in one table: what was measured, where, when, and the command that measures it again.

    python benchmarks/figures.py        writes benchmarks/README.md and both tables of speedups in the project's README

`figures.yaml` names them, and every figure is looked up on the page that its benchmark wrote: none is typed in by hand.
A figure that its page does not have, and a page that no figure is from, end the script with an error, and nothing is
written.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from options import options
from pages import measured

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
COMMANDS = {  # for pages that no script of their name writes
    "quickstart_results": "explorer quickstart && python benchmarks/picture.py",
    "cifar10-16px": "python benchmarks/sweep_page.py notebooks/sweeps/cifar10-16px.yaml",
    "cifar10-16px-fresh": "explorer confirm cifar10-16px fast",
    "images-fresh": "python benchmarks/sweep_page.py benchmarks/headline/images-fresh.yaml",
    "text-fresh": "python benchmarks/sweep_page.py benchmarks/headline/text-fresh.yaml",
    "source": "python benchmarks/sweep_page.py notebooks/sweeps/source.yaml",
    "composition": "explorer sweep run notebooks/sweeps/composition.yaml",
}
_FIGURE, _ANYTHING = r"([+-]?\d[\d.,]*%?)", r"[^|\n]*?"
_VERDICT = re.compile(r"((?:at most|at least|below|above) [\d.,]*\d): (meets|misses) its target by ([\d.,]*\d)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A figure, and its place on a page, as in `figures.yaml`."""

    what: str
    page: str  # without .md
    place: str
    unit: str = ""
    under: str = ""

    def read(self, text: str) -> tuple[str, str]:
        """Return the figure, with its interval where the place has one, and the verdict behind it in its line. Raises
        `ValueError` unless there is one such place."""
        section = text.partition(f"## {self.under}\n")[2].partition("\n## ")[0] if self.under else text
        words = (re.escape(word).replace(r"\#", _FIGURE).replace(r"\.\.\.", _ANYTHING) for word in self.place.split())
        places = list(re.finditer(r"\s+".join(words), section))
        if len(places) != 1:
            raise ValueError(f"{self.page}.md: found {len(places)} places like {self.place!r}, expected one")
        verdict = _VERDICT.search(section[places[0].end(1) :].partition("\n")[0])
        said = "{}: {} by {}".format(*verdict.groups()) if verdict else ""
        found, *ends = (figure.rstrip(".,") + self.unit for figure in places[0].groups())
        return f"{found} ({' to '.join(ends)})" if ends else found, said


def figures() -> dict[str, list[Figure]]:
    """Return the figures by section."""
    content = yaml.safe_load((HERE / "figures.yaml").read_text(encoding="utf-8"))
    return {section: [Figure(**one) for one in ones] for section, ones in content.items()}


def pages() -> dict[str, str]:
    """Return the pages that benchmarks wrote, by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.md")) if path.stem != "README"}


def command_of(page: str) -> str:
    """Return the command that writes a page. Raises `ValueError` for a page that no command is known for."""
    if page not in COMMANDS and not (HERE / f"{page}.py").exists():
        raise ValueError(f"{page}.md: no script of its name; expected one, or its command in COMMANDS")
    return COMMANDS.get(page, f"python benchmarks/{page}.py")


def table(sections: Mapping[str, list[Figure]], texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the table. Raises `ValueError` for a figure without a source, and a page without a figure."""
    used = {figure.page for group in sections.values() for figure in group}
    if unlike := sorted(used ^ texts.keys()):
        raise ValueError(f"pages and figures do not belong together: {', '.join(unlike)}")
    for section, group in sections.items():
        yield from (
            "",
            f"## {section}",
            "",
            "| what | figure | target | command | measured |",
            "|---|---:|---|---|---|",
        )
        for figure in group:
            found, said = figure.read(texts[figure.page])
            date = measured(texts[figure.page], where=f"{figure.page}.md").date
            command = f"[`{command_of(figure.page)}`]({figure.page}.md)"
            yield f"| {figure.what} | {found} | {said} | {command} | {date} |"


def readme(sections: Mapping[str, list[Figure]], texts: Mapping[str, str]) -> str:
    """Return the content of benchmarks/README.md."""
    machines = {measured(text, where=f"{name}.md").machine for name, text in texts.items() if name != "house"}
    lines = (
        "# Figures",
        "",
        "Figures of the project, each with the command that measures it and the page that the command writes. Made by",
        "`python benchmarks/figures.py`, which fails where a figure is not on its page. Targets and verdicts are the",
        "benchmarks' own.",
        "",
        f"Measured on: {'; '.join(sorted(machines))}.",
        "No figure is of a GPU: none was at hand, and `python benchmarks/gpu.py` is ready to measure on one.",
        *table(sections, texts),
    )
    return "\n".join(lines) + "\n"


# --- the tables of speedups in the project's README ---

HEAD = (
    "| recipe | methods | bits per byte at full budget | time to the baseline's quality | speedup"
    " | 95% interval, adjusted | verdict |"
)
GOVERNANCE = ("routing", "contributions", "recorder")  # methods that come with a signed policy


def first_table(report: str) -> str:
    """Return the table of speedups, from the report of the quickstart's sweep. Raises `ValueError` for a report of
    another form."""
    of_metric = report.partition("\n## bits")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in of_metric if line.startswith("|")]
    quality = {row[0]: row for row in rows if len(row) == 7}
    lines = [HEAD, "|---|---|---|---|---|---|---|"]
    for label, time, speedup, *_ in (row for row in rows if len(row) == 6 and row[0].endswith(")")):
        recipe, _, said = label.partition(" (")
        methods = quality[recipe][1].split(" + ")
        words = ", ".join(method for method in methods if method not in GOVERNANCE)
        words += ", under a signed policy, with a ledger" if set(GOVERNANCE) <= set(methods) else ""
        words += " (tuned)" if "baseline, tuned" in said else ""
        factor, _, interval = speedup.rstrip(")").partition(" (")
        verdict = "" if "baseline, tuned" in said else re.split(" |,", said)[0]
        cells = (quality[recipe][4].split()[0], time.partition(" (")[0], factor, interval.replace("-", " to "), verdict)
        lines.append("| " + " | ".join((recipe, words, *cells)) + " |")
    if len(lines) < 4:
        raise ValueError("quickstart_results.md: no table of speedups")
    return "\n".join(lines)


def headline_table(page: str) -> str:
    """Return the first table of the headline's page, which is that of the project's README too."""
    return page[page.index("\n| ") + 1 :].partition("\n\n")[0]


def with_table(text: str, lines: str) -> str:
    """Return the project's README with these lines in place of its table with the same head. Raises `ValueError` for
    one without."""
    wanted = lines.partition("\n")[0]
    if not wanted or wanted not in text:
        raise ValueError(f"README.md: no table with the head {wanted!r}")
    before, _, after = text.partition(wanted)
    return before + lines + after[after.index("\n\n") :]


def main() -> int:
    options(__doc__).parse_args()
    texts = pages()
    try:
        content = readme(figures(), texts)
        whole = with_table(README.read_text(encoding="utf-8"), first_table(texts["quickstart_results"]))
        whole = with_table(whole, headline_table(texts["headline"]))
    except ValueError as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 1
    (HERE / "README.md").write_text(content, encoding="utf-8")
    README.write_text(whole, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
