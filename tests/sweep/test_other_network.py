"""A recipe with another network: planned, trained and compared with the baseline of its sweep, and said to be one."""

import json

import pytest
from typer.testing import CliRunner

from explorer.analysis.equal_quality import equal_quality
from explorer.cli.app import app
from explorer.errors import SpecError
from explorer.store import frames, queries
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.sweep.confirm import confirmation
from explorer.sweep.spec import load_spec
from tests.sweep.sweeps import execute, plan, spec
from tests.views.test_run_cards import cards, facts

TASK = {"dataset": {"digits": {"size": 16}}, "model": {"resnet8": {"width": 0.5}}}
AIRBENCH = {"airbench": {"width": 0.125}}
RECIPES = {
    "baseline": [],
    "same": ["label_smoothing"],
    "other": {"model": AIRBENCH, "methods": ["label_smoothing"]},
    "bare": {"model": AIRBENCH},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    assert execute(runs, spec(task=TASK, recipes=RECIPES, seeds=[0, 1])).complete
    ingest(runs)
    return runs


@pytest.mark.slow
def test_every_recipe_trains_its_own_network(runs):
    models = {
        run.record.recipe: run.record.model for run in plan(runs, spec(task=TASK, recipes=RECIPES, seeds=[0, 1])).runs
    }
    assert models == {"baseline": "resnet8", "same": "resnet8", "other": "airbench", "bare": "airbench"}


@pytest.mark.slow
def test_recipes_are_compared_whatever_their_networks(runs):
    rows = frames.results(database(runs))
    first = rows.drop_duplicates("recipe").set_index("recipe")
    assert set(rows["model"]) == {"resnet8"}
    assert first["network"].dropna().to_dict() == {"other": "airbench", "bare": "airbench"}
    assert first["methods"].to_dict() == {
        "baseline": "",
        "same": "label_smoothing",
        "other": "airbench+label_smoothing",
        "bare": "airbench",
    }
    compared = {found.recipe: found for found in equal_quality(rows, x="steps")}
    assert compared.keys() == {"same", "other", "bare"}
    assert len({found.setting for found in compared.values()}) == 1
    assert set(frames.means(database(runs))["model"]) == {"resnet8"}
    card = cards(rows[(rows["recipe"] == "other") & (rows["ssr"] == 1.0) & (rows["seed"] == 0)], runs)
    assert facts(card)["Methods"] == "airbench, label_smoothing" and "airbench</" in card and "resnet8</" not in card


def test_a_sweep_of_one_network_has_the_columns_of_before(tmp_path):
    assert execute(tmp_path, spec(recipes={"baseline": [], "same": ["label_smoothing"]}, budgets=[0.5])).complete
    ingest(tmp_path)
    assert "network" not in queries.results(database(tmp_path)).columns


@pytest.mark.slow
def test_the_answer_names_the_network(runs):
    found = CliRunner().invoke(app, ["results", "tiny", "--runs", str(runs), "--json"])
    assert found.exit_code == 0, found.output
    assert "airbench" in json.dumps(json.loads(found.stdout))


@pytest.mark.slow
def test_a_confirmation_keeps_the_network(runs):
    content = confirmation(runs, "tiny", "other")
    assert content["recipes"]["other"] == RECIPES["other"]
    (recipe,) = (recipe for recipe in load_spec(content).recipes if recipe.name == "other")
    assert recipe.model.name == "airbench"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("airbenhc", r"unknown model 'airbenhc'; did you mean 'airbench'"),
        ("gpt-tiny", "gpt-tiny"),
        ({"airbench": {"wide": 1}}, "unknown parameter 'wide'; did you mean 'width'"),
    ],
)
def test_a_network_that_does_not_fit(model, words):
    with pytest.raises(SpecError, match=words):
        load_spec(spec(task=TASK, recipes={"baseline": [], "other": {"model": model}}))
