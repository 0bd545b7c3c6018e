"""No page, verb or call shows an interval, a band or a verdict of a search; of the same runs of a sweep all do."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from explorer import api
from explorer.report.sweep_report import FORMATS, offline_html, read_sweep
from explorer.store.export import export
from explorer.store.published import database
from explorer.views.explore import explore
from explorer.views.live_chart import LiveChart
from tests.cli.command import explorer
from tests.searched_sample import write_searched
from tests.views.test_explore import texts

# What an interval, or the verdict that rests on one, looks like in words.
SIGNS = re.compile(
    r"\d+x ?(?:-|to) ?\d+\.?\d*x|9\d% (?:t )?interval|(?:faster|slower|cheaper|less|more) than the baseline|"
    r"inconclusive|equivalent|needs (?:less|more)"
)
BOUNDS = re.compile(r"low|high|p_value|p_adjusted")


@pytest.fixture(scope="module", params=[True, False], ids=["searched", "plain"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bool]:
    runs = tmp_path_factory.mktemp("faces") / "runs"
    write_searched(runs, chosen=request.param)
    return runs, request.param


def in_words(text: str) -> list[str]:
    return SIGNS.findall(text)


def bounds(value: Any, path: str = "") -> Iterator[str]:
    """The keys of a JSON value that are ends of an interval, and not null."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("search", "higher_is_better", "specification"):
                yield from bounds(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from bounds(inner, path)
    elif value is not None and BOUNDS.search(path.rpartition(".")[2]):
        yield f"{path}={value}"


def widgets_in(widget: Any) -> Iterator[Any]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from widgets_in(child)


def charts(widget: Any) -> list[Any]:
    """The rows that the charts of a widget draw with an end of an interval, but for the picture of a search."""
    specs = [one.spec for one in widgets_in(widget) if isinstance(one, LiveChart) and one.spec]
    sets = [rows for spec in specs if "Effect on" not in json.dumps(spec) for rows in spec.get("datasets", {}).values()]
    return [row for rows in sets for row in rows if isinstance(row, dict) and row.get("low") is not None]


def section(key: str) -> Callable[[Path], list[Any]]:
    def face(runs: Path) -> list[Any]:
        shown = explore(runs, sweep="digits", section=key)
        return [*in_words(texts(shown)), *charts(shown)]

    return face


def known(frame: pd.DataFrame) -> list[float]:
    values = frame.to_numpy(float).ravel()
    return values[np.isfinite(values)].tolist()


def compared(runs: Path) -> list[Any]:
    comparison = api.load(runs).sweep("digits").compare()
    ends = comparison.frame[["speedup", "low", "high", "p_value", "difference_low", "difference_high"]]
    return [*in_words(repr(comparison)), *known(ends), *comparison.frame.query("claims").index]


def asked(runs: Path) -> list[Any]:
    answer = api.load(runs).sweep("digits").ask(quality=0.9)
    return [*known(answer.frame[["seconds_low", "seconds_high"]]), *([True] if answer.holds else [])]


def drawn(runs: Path) -> list[Any]:
    spec = json.dumps(api.load(runs).sweep("digits").chart().to_dict())
    return re.findall(r'"high": [0-9][^,]*', spec)


def exported(runs: Path) -> list[Any]:
    """Rows of an export, compared without the directory of runs."""
    export(database(runs), runs.parent / "rows.csv")
    return compared(runs.parent / "rows.csv")


def verb(*words: str) -> Callable[[Path], list[Any]]:
    return lambda runs: in_words(explorer(*words, "--runs", runs).stdout)


FACES: dict[str, Callable[[Path], list[Any]]] = {
    "explorer": section(""),
    "two recipes": section("two"),
    "confirm": section("confirm"),
    "report md": lambda runs: in_words(FORMATS["md"](read_sweep(runs, "digits")).decode()),
    "report json": lambda runs: list(bounds(json.loads(FORMATS["json"](read_sweep(runs, "digits"))))),
    "offline page": lambda runs: re.findall(r'"low": ?[0-9]', offline_html(runs, "digits").decode()),
    "api compare": compared,
    "api ask": asked,
    "api chart": drawn,
    "api export": exported,
    "results": verb("results", "digits"),
    "ask": lambda runs: re.findall(
        r"\d(?: m?s)? to \d", explorer("ask", "digits", "--quality", "0.9", "--runs", runs).stdout
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES.values(), ids=FACES)
def test_a_face_shows_no_interval_and_no_verdict_of_a_search(
    sample: tuple[Path, bool], face: Callable[[Path], list[Any]]
) -> None:
    runs, chosen = sample
    signs = face(runs)
    assert bool(signs) is not chosen, signs


@pytest.mark.slow
def test_the_report_of_a_search_has_a_sentence_in_place_of_an_empty_comparison(sample: tuple[Path, bool]) -> None:
    runs, chosen = sample
    text = FORMATS["md"](read_sweep(runs, "digits")).decode()
    _, _, compared = text.partition("at equal quality\n")
    first = compared.strip().splitlines()[0]
    assert first.startswith("A search chose these runs") if chosen else first.startswith("|"), first
