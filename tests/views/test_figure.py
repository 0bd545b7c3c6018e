from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from explorer.errors import RunError
from explorer.store.ingest import ingest
from explorer.views import live_chart
from explorer.views.explorer.answer import answer
from explorer.views.explorer.figure import Figure
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot
from explorer.views.live_chart import LiveChart, vega_bundle
from tests.builders import run_record, write_failure
from tests.sample import write_sample
from tests.views.in_memory import InMemory


class Heard:
    """What a figure called."""

    def __init__(self) -> None:
        self.brushes: list[Any] = []
        self.picks: list[Any] = []
        self.hovers: list[Any] = []
        self.figure = Figure(on_brush=self.brushes.append, on_pick=self.picks.append, on_hover=self.hovers.append)

    def send(self, event: str, mark: dict[str, str] | None, *, more: bool = False) -> None:
        """What the browser sends."""
        self.figure._chart._handle_custom_msg({"event": event, "mark": mark, "more": more}, [])


@pytest.fixture
def heard(results: pd.DataFrame) -> Heard:
    made = Heard()
    made.figure.show(answer(InMemory(frame=results), Question()))
    return made


def test_a_hover_a_click_and_a_click_with_shift_are_handed_over(heard: Heard) -> None:
    heard.send("hover", {"recipe": "fast"})
    heard.send("hover", None)
    assert heard.hovers == ["fast", None]
    heard.send("click", {"directory": "digits/a"})
    heard.send("click", {"directory": "digits/b"}, more=True)
    heard.send("click", {"directory": "digits/a"}, more=True)
    heard.send("click", None)
    assert heard.picks == [["digits/a"], ["digits/a", "digits/b"], ["digits/b"], []]
    heard.send("drop table", {"recipe": "fast"})  # nothing is listening to that
    assert heard.hovers == ["fast", None]


def test_isolating_picking_and_bands_draw_nothing_again(heard: Heard, results: pd.DataFrame) -> None:
    before = heard.figure._chart.spec
    heard.figure.isolate("fast")
    first = results.loc[results["recipe"] == "heavy", "directory"].iloc[0]
    heard.figure.pick([first])
    heard.figure.bands("all")
    assert heard.figure._chart.told == {"isolated": "fast", "picked": [first], "chosen": ["heavy"], "bands": "all"}
    assert heard.figure._chart.spec is before


def test_the_zoom_is_the_brush_and_reset_is_all(heard: Heard) -> None:
    def domain() -> list[float]:
        drawn = heard.figure._chart.spec
        assert drawn is not None
        layer = next(layer for layer in drawn["layer"] if layer["name"] == "curves")
        return layer["encoding"]["x"]["scale"]["domain"]

    whole = domain()
    assert heard.figure._zoom.layout.display == heard.figure._reset.layout.display == "none"
    store = [{"unit": "runs", "fields": [], "values": []}]
    heard.figure._chart._vl_selections = {
        "brush": {"value": {"x": [1.0, 2.5], "y": [0.02, 0.05]}, "store": store},
    }
    assert heard.brushes[-1][:2] == (1.0, 2.5) and heard.figure._zoom.layout.display == ""
    heard.figure.zoom()
    low, high = domain()
    assert whole[0] < low <= 1.0 and 2.5 <= high < whole[1]
    assert (heard.figure._zoom.layout.display, heard.figure._reset.layout.display) == ("none", "")
    heard.figure.reset()
    assert domain() == whole and heard.figure._reset.layout.display == "none"


def test_diverged_runs_come_from_the_database(tmp_path: Path) -> None:
    write_sample(tmp_path, seeds=1)
    write_failure(tmp_path, run_record(recipe="heavy", seed=9), kind="diverged", message="the loss is nan at step 36")
    write_failure(tmp_path, run_record(recipe="heavy", seed=8), kind="exception")
    ingest(tmp_path)
    scene = answer(read_snapshot(tmp_path), Question(payment="steps")).scene
    assert scene is not None
    assert scene.diverged[["recipe", "x", "message"]].values.tolist() == [["heavy", 80.0, "the loss is nan at step 36"]]


def test_vega_goes_to_the_browser_once(heard: Heard) -> None:
    one, other = LiveChart(), LiveChart()
    assert one.library is other.library is heard.figure._chart.library
    library, module = one.library.get_state()["value"], one.get_state()["_esm"]
    assert len(library) > 500_000 and len(module) < 10_000


def test_the_bundle_is_kept_and_a_home_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path))
    monkeypatch.setattr(live_chart.vl_convert, "javascript_bundle", lambda snippet, **_: f"made of {snippet}")
    assert vega_bundle() == vega_bundle() == "made of export default vegaEmbed;"
    (kept,) = tmp_path.iterdir()
    kept.write_text("as it was kept")
    assert vega_bundle() == "as it was kept"
    kept.unlink()

    def refuse(*_: Any) -> None:
        raise RunError("no")

    monkeypatch.setattr(live_chart.rundir, "write_bytes", refuse)
    assert vega_bundle().startswith("made of") and not list(tmp_path.iterdir())
