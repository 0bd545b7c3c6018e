from typing import Any

import pandas as pd

from explorer.views.explorer.tabs.composition_charts import step_times


def rows(chart: dict[str, Any]) -> list[dict[str, Any]]:
    return next(iter(chart["datasets"].values()))


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
