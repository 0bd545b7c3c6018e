from typing import Any

import numpy as np
import pandas as pd

from explorer.page.theme import PALETTE, TEXT
from explorer.run_files import METRICS
from explorer.views.explorer.tabs.composition_charts import step_times
from explorer.views.sweep.sweep_panel import MAX_POINTS, metric_curves, thinned


def rows(chart: dict[str, Any]) -> list[dict[str, Any]]:
    return next(iter(chart["datasets"].values()))


def curve(recipe: str, steps: int) -> pd.DataFrame:
    step = np.arange(1, steps + 1)
    return pd.DataFrame({"run_id": f"{recipe}-0", "recipe": recipe, "step": step, "value": 2.0 / step})


def test_a_line_for_each_run() -> None:
    frame = pd.concat([curve("baseline", 40), curve("fast", 60)])
    chart = metric_curves(frame, metric=METRICS["train_loss"], baseline="baseline").to_dict()
    assert {row["run_id"] for row in rows(chart)} == {"baseline-0", "fast-0"}
    assert chart["layer"][0]["encoding"]["y"]["title"] == "train_loss (nats)"
    scale = chart["layer"][0]["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {"baseline": TEXT, "fast": PALETTE[0]}
    assert chart["description"] == "train_loss over training steps of 2 runs."


def test_long_curves_are_thinned_and_keep_their_last_point() -> None:
    frame = pd.concat([curve("baseline", 10_000), curve("fast", 7)])
    thin = thinned(frame)
    assert len(thin[thin["recipe"] == "baseline"]) <= MAX_POINTS
    assert thin[thin["recipe"] == "baseline"]["step"].max() == 10_000
    assert thin[thin["recipe"] == "fast"]["step"].tolist() == list(range(1, 8))


def test_many_runs_stay_within_what_altair_draws() -> None:
    frame = pd.concat([curve(f"r{i}", 300) for i in range(100)])
    metric_curves(frame, metric=METRICS["train_loss"]).to_dict()  # altair raises above 5,000 rows


def test_parts_of_a_step_are_stacked_in_order() -> None:
    frame = pd.DataFrame(
        {
            "recipe": ["baseline"] * 4,
            "part": ["optimizer", "forward", "governance", "warmup"],
            "seconds": [0.001, 0.002, 0.0, 9.0],
        }
    )
    chart = step_times(frame).to_dict()
    assert [(row["part"], row["time"]) for row in rows(chart)] == [("optimiser", 1.0), ("forward", 2.0)]
    assert chart["layer"][0]["encoding"]["color"]["scale"]["domain"] == ["forward", "optimiser"]
