"""The charts of a page without a kernel: every choice draws something, and names in them are names."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from explorer.page.document import Picture
from explorer.page.pictures import VEGA_LITE, drawable
from explorer.report.sweep.live_pictures import live_tradeoffs, offline_page
from explorer.report.sweep_report import offline_html, read_sweep
from explorer.store.ingest import ingest
from explorer.views.offline import learning, offline_spec, tradeoffs
from tests.builders import write_sweep
from tests.cli.command import explorer, refused
from tests.sample import write_sample

HOSTILE = ("baseline", "<img src=x onerror=alert(1)>", "'\"]; alert(2); //", "=cmd|calc", "\u202egnp", 150 * "w")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("offline") / "runs"
    write_sample(directory)
    write_sweep(directory, {name: {0.5: (0.9, 0.91), 1.0: (0.95, 0.96)} for name in HOSTILE}, sweep="hostile")
    ingest(directory)
    return directory


@pytest.fixture(scope="module")
def specification(runs: Path) -> dict[str, Any]:
    return drawable(live_tradeoffs(read_sweep(runs, "digits").metrics))


def chosen(specification: dict[str, Any], **values: Any) -> str:
    """Draw a specification with other values of its parameters, as a reader chooses them."""
    parameters = [
        {**one, "value": values[one["name"]]} if one["name"] in values else one for one in specification["params"]
    ]
    assert values.keys() <= {one["name"] for one in parameters}
    return vl_convert.vegalite_to_svg({**specification, "params": parameters, "width": 600}, vl_version=VEGA_LITE)


def marks(svg: str, name: str = "points") -> int:
    found_one = re.search(rf'class="mark-symbol role-mark {name}_marks"(.*?)</g>', svg, re.DOTALL)
    return len(re.findall("<path", found_one[1])) if found_one else 0


def options(specification: dict[str, Any], name: str) -> list[Any]:
    (field,) = [one for one in specification["params"] if one["name"] == name]
    return field["bind"]["options"]


@pytest.mark.slow
def test_every_choice_draws_something(specification: dict[str, Any]) -> None:
    metrics, axes = options(specification, "metric"), options(specification, "x_axis")
    assert len(metrics) >= 2 and {"time", "steps", "examples"} <= set(axes)
    drawn = {(metric, axis): chosen(specification, metric=metric, x_axis=axis) for metric in metrics for axis in axes}
    assert all(marks(svg) > 3 and "NaN" not in svg for svg in drawn.values())
    assert len(set(drawn.values())) == len(drawn)
    for scales in ({"log_x": False}, {"log_y": False}, {"log_x": False, "log_y": True, "metric": metrics[1]}):
        assert "NaN" not in chosen(specification, **scales)


def test_a_recipe_can_be_hidden(specification: dict[str, Any]) -> None:
    every = marks(chosen(specification))
    assert 0 < marks(chosen(specification, show_0=False)) < every


@pytest.mark.slow
def test_the_page_has_its_numbers_and_asks_for_nothing(runs: Path) -> None:
    page = offline_html(runs, "digits").decode()
    ours = re.sub(
        r"<script>.*?</script>", "", page, flags=re.DOTALL
    )  # without the Vega libraries, which have HTML in them
    assert "default-src 'none'" in page and not re.search(r"<(script|link|img)[^>]+(src|href)=", ours)
    assert 500_000 < len(page) < 2_500_000
    for words in ("Learning curves", "Where the numbers come from", "Speedup", "sha256:", "sweep digits"):
        assert words in page, words
    names = [block.name for block in offline_page(read_sweep(runs, "digits")).blocks if isinstance(block, Picture)]
    assert names == ["tradeoff-1", "learning"]


def test_hostile_names_are_names(runs: Path) -> None:
    specification = drawable(live_tradeoffs(read_sweep(runs, "hostile").metrics))
    svg = chosen(specification)
    assert "<img" not in svg and marks(svg) > 3
    # No text from outside is part of an expression that Vega runs.
    expressions = re.findall(r'"(?:expr|calculate|filter|labelExpr|test)": ?"([^"]*)"', json.dumps(specification))
    assert expressions and not any("alert" in expression for expression in expressions)


def test_no_rows_are_no_charts(runs: Path) -> None:
    rows = read_sweep(runs, "digits").results
    assert (
        tradeoffs({"accuracy": rows.assign(**dict.fromkeys(["train_seconds", "cost_usd", "steps", "examples"]))}, {})
        == []
    )
    assert learning({}) == []
    assert offline_spec  # a page without either has neither picture: `offline_page` leaves it out


def test_energy_is_an_axis_where_runs_have_it(runs: Path) -> None:
    rows = read_sweep(runs, "digits").results
    (without,) = tradeoffs({"accuracy": rows}, {})
    assert "energy" not in set(without.rows["axis"])
    (measured,) = tradeoffs({"accuracy": rows.assign(energy_kwh=rows["train_seconds"] / 1000)}, {})
    by_axis = dict(tuple(measured.rows.groupby("axis")))
    assert len(by_axis["energy"]) == len(by_axis["time"])
    assert all(words.endswith("Wh") for words in by_axis["energy"]["taken"])


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["html", "csv", "parquet", "md"])
def test_one_verb_exports_everything(runs: Path, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"digits.{ending}"
    by_ending = explorer("export", "digits", "--out", file, "--json", "--runs", runs)
    assert by_ending.returncode == 0, by_ending.stderr
    assert json.loads(by_ending.stdout)["format"] == ending and file.stat().st_size > 100
    if ending != "html":  # a second page would take seconds
        by_name = explorer("export", "digits", "--to", ending, "--runs", runs, cwd=tmp_path)
        assert by_name.returncode == 0 and f"digits.{ending}" in by_name.stdout


def test_an_export_that_cannot_be_is_refused(runs: Path, tmp_path: Path) -> None:
    assert "expected --to html, csv, parquet, md" in refused(
        "export", "digits", "-o", tmp_path / "x.xlsx", "--runs", runs
    )
    assert "a page is about one sweep" in refused("export", "--runs", runs)
    assert "did you mean 'digits'" in refused("export", "digit", "-o", tmp_path / "x.html", "--runs", runs)
    assert "did you mean 'digits'" in refused("export", "digit", "-o", tmp_path / "x.csv", "--runs", runs)
    assert "--metric and --all are for tables" in refused("export", "digits", "--all", "--runs", runs)
    assert not list(tmp_path.iterdir())
