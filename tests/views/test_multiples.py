from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from explorer.views.explorer import figure as module
from explorer.views.explorer.answer import Answer, answer
from explorer.views.explorer.figure import multiples
from explorer.views.explorer.question import ALL, Question
from tests.views.in_memory import InMemory


def found(results: pd.DataFrame, **asked: Any) -> Answer:
    return answer(InMemory(frame=results), Question(**asked))


def domains(chart: dict[str, Any], axis: str) -> list[Any]:
    """The domain of an axis in every chart."""
    scales = [
        next(layer["encoding"][axis]["scale"] for layer in part["layer"] if axis in layer.get("encoding", {}))
        for part in chart["concat"]
    ]
    return [scale["domain"] for scale in scales]


def test_a_chart_for_each_seed_draws_that_seed_alone_on_the_axes_of_all(results: pd.DataFrame) -> None:
    chart = multiples(found(results, split="seed"))
    assert [part["title"]["text"] for part in chart["concat"]] == ["seed 0", "seed 1", "seed 2"]
    assert len({tuple(domain) for domain in domains(chart, "x")}) == 1
    assert len({tuple(domain) for domain in domains(chart, "y")}) == 1
    first = chart["concat"][0]
    runs = next(layer for layer in first["layer"] if layer["name"].endswith("runs"))
    rows = chart["datasets"][runs["data"]["name"]]
    assert len(rows) == 15 and {row["seed"] for row in rows} == {0}
    assert not any(layer["name"].endswith("bands") for layer in first["layer"])  # one seed has no band
    assert "3 charts, one for each seed" in chart["description"]


def test_a_chart_for_each_machine_has_its_curves_alone(results: pd.DataFrame) -> None:
    other = results.assign(hardware="NVIDIA T4", device="cuda", train_seconds=results["train_seconds"] / 10)
    chart = multiples(found(pd.concat([results, other]), hardware=ALL, split="hardware"))
    assert [part["title"]["text"] for part in chart["concat"]] == ["AMD EPYC 7B13, 1 thread", "NVIDIA T4, 1 thread"]
    for part, machine in zip(chart["concat"], ("AMD EPYC 7B13", "NVIDIA T4"), strict=True):
        runs = next(layer for layer in part["layer"] if layer["name"].endswith("runs"))
        assert {row["hardware"] for row in chart["datasets"][runs["data"]["name"]]} == {machine}


def test_more_values_than_charts_are_counted(results: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    chart = multiples(found(results, split="seed"))
    assert len(chart["concat"]) == 2 and "2 charts, one for each seed; 1 more" in chart["description"]


def test_colours_are_the_same_in_every_chart(results: pd.DataFrame) -> None:
    only_baseline = results[(results["recipe"] == "baseline") | (results["seed"] > 0)]
    chart = multiples(found(only_baseline, split="seed"))
    scales = [
        layer["encoding"]["color"].get("condition", layer["encoding"]["color"])["scale"]["domain"]
        for part in chart["concat"]
        for layer in part["layer"]
        if "color" in layer.get("encoding", {})
    ]
    assert all(scale == ["baseline", "fast", "heavy"] for scale in scales)


def test_a_split_that_is_not_there_is_one_chart(results: pd.DataFrame) -> None:
    assert found(results, split="policy").question.split == ""
    assert replace(found(results).question, split="model").split == "model"  # a wish; it is settled when it is asked
