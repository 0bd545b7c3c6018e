"""Ladders of tables with every kind of gap, against a plain loop over their rows."""

import math
import statistics

import numpy as np
import pytest

from explorer.analysis.ladders import SETTING, Machine, ladders
from tests.analysis.tables import rows, table


def gappy(seed):
    """Recipes with budgets, seeds and machines of their own, runs that are there twice, and columns half empty."""
    random = np.random.default_rng(seed)
    parts = [
        rows(
            f"r{k}",
            lambda ssr, seed: float(random.normal()),
            budgets=random.choice([0.25, 0.5, 1.0, 1.5], size=int(random.integers(1, 5)), replace=False),
            seeds=random.choice(9, size=int(random.integers(1, 5)), replace=False),
            hardware=str(random.choice(["AMD EPYC 7B13", "NVIDIA H200"])),
        )
        for k in range(6)
    ]
    frame = table(*parts)
    frame = frame.sample(n=len(frame) + 6, replace=True, random_state=seed).reset_index(drop=True)
    for column in ("train_seconds", "quality", "inference_ratio"):
        frame[column] = frame[column].mask(random.random(len(frame)) < 0.2) * random.lognormal(0, 1, len(frame))
    for column, values in (
        ("time_source", ("measured", "profiled", None)),
        ("control", ("random-subset", "rescaled-baseline", None)),
        ("control_of", ("a", "b+a", None)),
    ):
        frame[column] = [values[k] for k in random.integers(0, 3, len(frame))]
    return frame


def in_groups(frame):
    """The rows of each recipe on each machine, as dictionaries, in the order of the table."""
    groups = {}
    for row in frame.to_dict("records"):
        groups.setdefault(tuple(row[name] for name in (*SETTING, "recipe", "recipe_digest")), []).append(row)
    return list(groups.values())


def is_text(value):
    return isinstance(value, str)


@pytest.mark.parametrize("seed", range(15))
def test_ladders_are_what_a_loop_finds(seed):
    frame = gappy(seed)
    found = ladders(frame, x="train_seconds", empty=True)
    for ladder, group in zip(found, in_groups(frame), strict=True):
        known = [row for row in group if not math.isnan(row["train_seconds"]) and not math.isnan(row["quality"])]
        assert (ladder.recipe, ladder.setting.hardware) == (group[0]["recipe"], group[0]["hardware"])
        assert list(ladder.ssr_B) == sorted({row["ssr"] for row in known})
        assert list(ladder.seeds_S) == sorted({row["seed"] for row in known})
        assert ladder.x_BS.shape == ladder.quality_BS.shape == (ladder.ssr_B.size, ladder.seeds_S.size)
        for b, ssr in enumerate(ladder.ssr_B):
            for s, run in enumerate(ladder.seeds_S):
                here = [row for row in known if (row["ssr"], row["seed"]) == (ssr, run)]
                for grid, column in ((ladder.x_BS, "train_seconds"), (ladder.quality_BS, "quality")):
                    expected = statistics.fmean(row[column] for row in here) if here else math.nan
                    assert grid[b, s] == pytest.approx(expected, nan_ok=True)
        ratios = [row["inference_ratio"] for row in known if not math.isnan(row["inference_ratio"])]
        assert ladder.inference_ratio == (pytest.approx(statistics.median(ratios)) if ratios else None)
        assert ladder.time_source == "+".join(
            sorted({row["time_source"] for row in known if is_text(row["time_source"])})
        )
        chosen = [r["control_of"] for r in group if r["control"] == "random-subset" and is_text(r["control_of"])]
        assert ladder.control_of == tuple(dict.fromkeys(name for names in chosen for name in names.split("+")))
        assert ladder.control == ("random-subset" if chosen else None)
    assert [each.recipe for each in ladders(frame, x="train_seconds")] == [e.recipe for e in found if e.ssr_B.size]


def test_no_rows_no_ladders():
    frame = table(rows("baseline", lambda ssr, seed: ssr))
    assert ladders(frame.iloc[:0], x="steps", empty=True) == []
    (empty,) = ladders(frame.assign(cost_usd=np.nan), x="cost_usd", empty=True)
    assert (empty.x_BS.shape, empty.time_source, empty.inference_ratio) == ((0, 0), "", None)


def test_a_machine_in_words():
    two = Machine(device="cuda", hardware="NVIDIA H200", threads=8, world_size=2)
    assert str(two) == "NVIDIA H200, 8 threads, 2 processes"
    (ladder,) = ladders(table(rows("baseline", lambda ssr, seed: ssr)), x="steps")
    assert str(ladder.setting.machine) == "AMD EPYC 7B13, 1 thread"
    assert ladder.setting.on(two).machine == two
    assert ladder.setting.on(None) == ladder.setting == ladder.setting.on(ladder.setting.machine)
