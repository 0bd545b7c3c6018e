"""The perceptron for tables: any number of columns, its published size, rows that do not depend on each other."""

import pytest
import torch

from explorer.errors import RecipeError
from explorer.models.mlp import MLPSpec
from explorer.models.residual import Gate
from explorer.models.table import MODELS
from explorer.recipes.choice import choose
from explorer.recipes.recipe import build_recipe


@pytest.mark.parametrize("columns", [1, 4, 300])
def test_any_number_of_columns(columns: int) -> None:
    model = MLPSpec(depth=2, width=16).build(example_shape=(columns,), classes=3)
    assert model(torch.randn(5, columns)).shape == (5, 3)
    assert sum(isinstance(module, Gate) for module in model.modules()) == 2


def test_the_size_in_the_words_is_the_size() -> None:
    count = sum(parameter.numel() for parameter in MLPSpec().build(example_shape=(16,), classes=2).parameters())
    assert f"{count:,} parameters" in str(MLPSpec.__doc__) and MODELS["mlp"] is MLPSpec


def test_a_row_does_not_depend_on_the_others() -> None:
    model = MLPSpec(width=16, dropout=0.0).build(example_shape=(4,), classes=3).train()
    rows = torch.randn(6, 4)
    assert torch.allclose(model(rows)[:2], model(rows[:2]), atol=1e-6)


def test_it_is_for_tables_only() -> None:
    train = {"epochs": 1, "batch_size": 8, "optimizer": {"sgd": {"lr": 0.1}}}
    with pytest.raises(
        RecipeError, match="'mlp' takes tables; dataset 'digits' is images: expected one of airbench, resnet"
    ):
        build_recipe("r", task={"dataset": "digits", "model": "mlp"}, train=train, methods=[], where="test")
    table = {"tabular": {"path": "iris.csv", "target": "target"}}
    with pytest.raises(RecipeError, match="'cutmix' works on images and volumes; dataset 'tabular' is tables"):
        build_recipe("r", task={"dataset": table, "model": "mlp"}, train=train, methods=["cutmix"], where="test")
    assert choose(MODELS, {"mlp": {"depth": 2}}, kind="model", where="test") == MLPSpec(depth=2)
