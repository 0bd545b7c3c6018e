import numpy as np
import pandas as pd
import pytest

from explorer.analysis.pareto import front
from explorer.page.html import fragment
from explorer.views.explorer import survey as module
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.scene import Scene, look_of
from explorer.views.explorer.survey import frontier_table, survey_note, survey_scene, survey_sentence
from explorer.views.explorer.tradeoff import tradeoff_spec


@pytest.fixture(scope="module")
def means() -> pd.DataFrame:
    """What `frames.means` gives: 40 sweeps of 30 recipes at 5 budgets."""
    draws = np.random.default_rng(3)
    n = 40 * 30 * 5
    at = np.arange(n)
    seconds = np.exp(draws.normal(4, 1, n))
    return pd.DataFrame(
        {
            "sweep": [f"sweep-{i // 150}" for i in at],
            "recipe": [f"recipe-{i // 5 % 30}" for i in at],
            "recipe_digest": [f"{i // 5:06d}" for i in at],
            "ssr": [(0.125, 0.25, 0.5, 1.0, 1.5)[i % 5] for i in at],
            "device": "cpu", "hardware": "box", "threads": 1, "world_size": 1, "hardware_label": "box, 1 thread",
            "methods": "ema", "policy": None, "control": None,
            "metric": "accuracy", "unit": "fraction", "higher_is_better": True, "format": "",
            "n": 3, "quality": draws.uniform(0.5, 0.9, n), "train_seconds": seconds, "time_source": "profiled",
        }
    )  # fmt: skip


def scene_of(means: pd.DataFrame, compare: str = "recipe") -> Scene:
    found = survey_scene(means, payment=PAYMENTS["time"], metric="accuracy", log=True, compare=compare, size="")
    assert found is not None
    return found


def test_the_frontier_is_over_all_and_none_of_it_is_thinned_away(means: pd.DataFrame) -> None:
    scene = scene_of(means)
    corners = front(means["train_seconds"].to_numpy(), means["quality"].to_numpy())
    assert sorted(scene.front["x"]) == sorted(means["train_seconds"].to_numpy()[corners])
    assert scene.means["on_front"].sum() == len(corners)


def test_few_enough_points_go_to_the_browser_and_it_is_said(means: pd.DataFrame) -> None:
    scene = scene_of(means)
    assert len(scene.means) < 3200 < len(means)
    assert survey_note(means, scene).startswith(f"{len(scene.means):,} of 6,000 means are drawn")
    few = means.head(1)
    assert survey_note(few, scene_of(few)) == "1 mean of 3 runs; the frontier is over all."


def test_controls_are_never_on_the_frontier(means: pd.DataFrame) -> None:
    best = means["quality"].idxmax()
    marked = means.assign(control=None)
    marked.loc[best, ["control", "train_seconds"]] = ["random-subset", 0.001]
    assert not scene_of(marked).means.set_index("x")["on_front"].loc[0.001]


def test_colours_are_for_those_who_are_on_the_frontier(means: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GROUPS", 2)
    groups = scene_of(means).means
    assert groups["group"].nunique() == 3 and module.REST in set(groups["group"])


def test_it_can_be_drawn_and_read(means: pd.DataFrame) -> None:
    scene = scene_of(means)
    chart = tradeoff_spec(scene, brush=())
    assert "front" in {layer["name"] for layer in chart["layer"]}  # no curve shows it
    html = fragment(frontier_table(scene, look_of(scene)))
    assert html.count("<tr") == 1 + min(30, scene.means["on_front"].sum())
    assert (
        survey_sentence(means)
        == "1,200 recipes of 40 sweeps: choose one sweep to compare its recipes with its baseline"
    )


def test_nothing_that_was_paid_is_no_scene(means: pd.DataFrame) -> None:
    unpaid = means.assign(train_seconds=np.nan)
    assert (
        survey_scene(unpaid, payment=PAYMENTS["time"], metric="accuracy", log=True, compare="recipe", size="") is None
    )
