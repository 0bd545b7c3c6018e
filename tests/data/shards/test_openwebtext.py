"""The sweep on OpenWebText, from documents of its layout to a report, with a small model in place of the large one."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from explorer.recipes.recipe import Recipe
from explorer.sweep.spec import load_spec
from tests.cli.command import explorer
from tests.data.shards.texts import WORDS, lines, sentences

pytest.importorskip("tokenizers", reason="needs the extra `text`")

SPEC = Path(__file__).parents[3] / "notebooks" / "sweeps" / "openwebtext.yaml"


def small(path: Path, **train: Any) -> None:
    """Write the sweep with a small model, short sequences and one run a recipe."""
    spec = yaml.safe_load(SPEC.read_text())
    (options,) = spec["task"]["model"].values()
    spec["task"]["dataset"]["text_shards"]["context"] = 32
    kept = {key: options[key] for key in ("document_mask", "separator")}
    recipes = yaml.safe_load(json.dumps(spec["recipes"]).replace("128", "8"))
    spec |= {"task": spec["task"] | {"model": {"gpt-tiny": kept}}, "recipes": recipes, "budgets": [1.0], "seeds": [0]}
    spec["train"] |= {"batch_size": 16, "microbatch_size": 8, "precision": "fp32"} | train
    path.write_text(yaml.safe_dump(spec))


def test_it_names_a_network_of_the_size_of_gpt2() -> None:
    recipe = load_spec(SPEC).trained[0]
    assert isinstance(recipe, Recipe)
    model = recipe.model.build(example_shape=(1024,), classes=50_257)
    assert sum(parameter.numel() for parameter in model.parameters()) == 124_439_808


@pytest.mark.slow
def test_from_lines_of_json_to_results(tmp_path: Path) -> None:
    texts = [text for row in zip(*(sentences(source, 60) for source in WORDS), strict=True) for text in row]
    lines(tmp_path / "raw" / "openwebtext.jsonl", [(text, "web") for text in texts])
    shards = tmp_path / "data" / "openwebtext"
    words = ("--vocabulary", "320", "--context", "32", "--shard-bytes", "2000")
    assert (
        "text_shards: {path: openwebtext, context: 32}"
        in explorer("data", "shard", tmp_path / "raw", shards, *words).stdout
    )
    small(tmp_path / "sweep.yaml", epochs=0.1)
    runs = ("--runs", tmp_path / "runs")
    where = ("--data", tmp_path / "data", *runs)
    assert "4 runs" in explorer("sweep", "plan", tmp_path / "sweep.yaml", *where).stdout
    quick = ("--workers", "1", "--engine", "inline", "--no-profile")
    done = explorer("sweep", "run", tmp_path / "sweep.yaml", *where, *quick)
    assert done.returncode == 0, done.stderr
    rows = json.loads(explorer("results", "openwebtext", "--rows", *runs, "--json").stdout)
    assert sorted(row["recipe"] for row in rows) == ["alibi", "baseline", "fast", "muon"]
    assert all(1 < row["quality"] < 8 for row in rows), "bits per byte of a model that has learnt something"
