"""The table of all figures is what the pages of the benchmarks say, and a figure without a source is an error."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from figures import HERE, README, Figure, command_of, figures, first_table, headline_table, pages, readme, with_table  # pyright: ignore[reportMissingImports]
from pages import Measured, measured, measured_here  # pyright: ignore[reportMissingImports]

sys.path.pop(0)

PAGE = """# A page

## One

| plan | 4.2 | at most 5: meets its target by 0.8 |

## Two

| plan | 7.25x (6.0x-8.5x) |
"""


def test_the_table_is_made_of_the_pages() -> None:
    assert (HERE / "README.md").read_text() == readme(figures(), pages())


def test_the_first_table_of_the_readme_is_made_of_the_quickstart() -> None:
    text = README.read_text()
    assert with_table(text, first_table(pages()["quickstart_results"])) == text


def test_the_second_table_of_the_readme_is_made_of_the_headline() -> None:
    text, page = README.read_text(), pages()["headline"]
    assert with_table(text, headline_table(page)) == text
    with pytest.raises(ValueError, match="no table with the head"):
        with_table(text.replace("| data | recipe |", "| data |"), headline_table(page))


def test_a_figure_and_its_verdict() -> None:
    one = Figure(what="a plan", page="page", place="| plan | #", unit=" s", under="One")
    assert one.read(PAGE) == ("4.2 s", "at most 5: meets by 0.8")
    other = Figure(what="a plan", page="page", place="| plan | #x (#x-#x)", unit="x")
    assert other.read(PAGE) == ("7.25x (6.0x to 8.5x)", "")
    assert replace(one, place="| ... | #", unit="").read(PAGE)[0] == "4.2"


@pytest.mark.parametrize(("place", "count"), [("| plans | #", 0), ("| plan | #", 2)])
def test_a_figure_without_one_source(place: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"page.md: found {count} places like"):
        Figure(what="a plan", page="page", place=place).read(PAGE)


def test_pages_and_figures_that_do_not_belong_together() -> None:
    texts = pages()
    for other in (
        {**texts, "spare": f"{PAGE}\n{measured_here()}\n"},
        {name: text for name, text in texts.items() if name != "ranks"},
    ):
        with pytest.raises(ValueError, match=r"do not belong together: (spare|ranks)"):
            readme(figures(), other)
    with pytest.raises(ValueError, match=r"ranks\.md: found 0 lines 'Measured on"):
        readme(figures(), {**texts, "ranks": texts["ranks"].replace("Measured on", "Made on")})
    with pytest.raises(ValueError, match=r"spare\.md: no script of its name"):
        command_of("spare")


def test_a_page_says_when_and_where_it_was_measured() -> None:
    found = measured(measured_here(), where="here")
    assert found.date.startswith("20") and "torch" in found.machine
    line = "Measured on 2026-11-22: a machine, 2 cores."
    assert measured(f"# A page\n\n{line}\n", where="page") == Measured("2026-11-22", "a machine, 2 cores")
    with pytest.raises(ValueError, match="found 2 lines"):
        measured(f"{line}\n{line}\n", where="page")


def test_a_report_without_a_table_of_speedups() -> None:
    with pytest.raises(ValueError, match="no table of speedups"):
        first_table(PAGE)
    with pytest.raises(ValueError, match="no table with the head"):
        with_table(PAGE, "")
