"""What a dataset says about its examples becomes the records of a tag table."""

from pathlib import Path

import pytest

from explorer.data.digits import Digits
from explorer.data.sources import load
from explorer.errors import DataError, RecipeError, SpecError
from explorer.training.tagging import dataset_of, records_of

DIVIDED = Digits(simulated_classes=4)


def test_a_record_for_every_training_example() -> None:
    records = list(records_of(DIVIDED, data=None, authority="example.com/dg"))
    dataset = load(DIVIDED, None)
    assert len(records) == len(dataset.train) == 899
    assert [one.content for one in records] == [dataset.train.content(slot) for slot in range(899)]
    assert {one.class_path for one in records} == {f"simulated/class-0{number}" for number in range(4)}
    assert records[3].source == "digits, example 3" and records[3].authority == "example.com/dg"
    assert dataset.provenance is not None
    classes = [dataset.provenance.classes[code] for code in dataset.provenance.codes]
    assert [one.class_path for one in records] == classes


def test_a_dataset_that_knows_nothing_about_its_examples() -> None:
    with pytest.raises(DataError, match="'digits' does not know where its examples come from"):
        records_of(Digits(), data=None, authority="example.com/dg")


def test_a_dataset_by_name_or_from_a_file(tmp_path: Path) -> None:
    assert dataset_of("digits") == Digits()
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("task: {dataset: {digits: {simulated_classes: 4}}, model: resnet8}\n")
    assert dataset_of(str(recipe)) == DIVIDED


def test_what_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="dataset: unknown dataset 'digit'; did you mean 'digits'"):
        dataset_of("digit")
    with pytest.raises(SpecError, match=r"cannot read .*none.yaml"):
        dataset_of(str(tmp_path / "none.yaml"))
    recipe = tmp_path / "recipe.yaml"
    for content in ("task: {model: resnet8}", "[]", "task: digits", ""):
        recipe.write_text(content)
        with pytest.raises(RecipeError, match=r"recipe.yaml: task.dataset: missing"):
            dataset_of(str(recipe))
    recipe.write_text("task: {dataset: {digits: {size: 7}}}")
    with pytest.raises(RecipeError, match=r"recipe.yaml: task.dataset.digits.size: found int 7"):
        dataset_of(str(recipe))
