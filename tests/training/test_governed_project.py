"""Governed projects: classes from the data, documents that are believed, a valid recipe, nothing overwritten."""

import time
from pathlib import Path
from typing import Any

import pytest

from explorer.data.sources import load
from explorer.errors import ExplorerError, RecipeError
from explorer.governance.credentials import check
from explorer.provenance.routing_weights import bind
from explorer.recipes.recipe import Recipe
from explorer.runlog.documents import read_documents
from explorer.training.governed_project import GovernedProject, begin_governed, classed
from explorer.yaml_document import read_document
from tests.data.photos import photo
from tests.data.test_parquet import write

TRAIN = {"epochs": 2, "batch_size": 4, "optimizer": {"sgd": {"lr": 0.1}}}
IMAGES = {"dataset": {"imagefolder": {"path": "photos", "size": 8, "test": 0.2}}, "model": "resnet8"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of cats and one of more dogs."""
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    for name, count in (("Cats", 6), ("some dogs", 9)):
        (tmp_path / "data" / "photos" / name).mkdir(parents=True)
        for number in range(count):
            (tmp_path / "data" / "photos" / name / f"{number}.png").write_bytes(photo(number + 100 * count))
    return tmp_path / "data"


def begun(project: Path, data: Path | None, task: dict[str, Any]) -> GovernedProject:
    project.mkdir()
    return begin_governed(project, task, TRAIN, data=data, now=int(time.time()))


def test_the_documents_are_believed_and_the_policy_admits_the_smallest_class_late(tmp_path: Path, data: Path) -> None:
    made = begun(tmp_path / "project", data, IMAGES)
    assert (made.late, made.simulated) == ("folders/cats", False) and sum(made.classes.values()) == 12
    content = read_document(made.recipe).value
    recipe = Recipe.from_mapping("r", {key: content[key] for key in ("task", "train", "methods")}, where="r")
    documents = read_documents(made.recipe.parent / content["governance"], policy="first", now=int(time.time()))
    credentials = check(documents, load(recipe.dataset, data).train)
    assert credentials.classes == ("folders/cats", "folders/some-dogs") and credentials.routing is not None
    bound = bind(credentials.routing.policy, credentials.routing.taxonomy, where="policy")
    assert [rule.progress for rule in bound.policy.rules] == [(0, 0.5), None]
    assert "three keys of one party" in "\n".join(made.lines)
    assert (made.directory / ".gitignore").read_text().split() == ["*.pem", "*.pem.cosigned/", "salts"]


def test_nothing_is_overwritten(tmp_path: Path, data: Path) -> None:
    made = begun(tmp_path / "project", data, IMAGES)
    before = {path: path.read_bytes() for path in made.recipe.parent.rglob("*") if path.is_file()}
    for gone in ((), (made.recipe,)):
        for path in gone:
            path.unlink()
        with pytest.raises(RecipeError, match="exists already, and nothing is overwritten"):
            begin_governed(made.recipe.parent, IMAGES, TRAIN, data=data, now=int(time.time()))
    assert {path: path.read_bytes() for path in made.directory.rglob("*") if path.is_file()}.items() <= before.items()


def test_simulated_classes_are_called_so(tmp_path: Path) -> None:
    made = begun(tmp_path / "project", None, {"dataset": "digits", "model": "resnet8"})
    assert made.simulated and len(made.classes) == 4
    assert "simulated provenance" in "\n".join(made.lines)


def test_the_column_with_classes_is_taken(data: Path) -> None:
    for name, classes in (("train", ["agency/a", "own"] * 4), ("test", ["own"] * 8)):
        columns = {"label": [0, 1] * 4, "note": [f"Seen on day {day}" for day in range(8)], "kind": classes}
        write(data / "table" / f"{name}.parquet", image=[photo(n) for n in range(8)], **columns)
    assert classed({"parquet": {"path": "table"}}, data)["parquet"]["tag"] == "kind"
    write(data / "plain" / "train.parquet", image=[photo(n) for n in range(8)], label=[0, 1] * 4)
    assert classed({"parquet": {"path": "plain", "test": 0.5}}, data)["parquet"]["tag"] == "label"
    assert classed({"parquet": {"path": "plain", "tag": "mine"}}, data)["parquet"]["tag"] == "mine"


def test_hostile_data_is_refused_and_nothing_is_left(tmp_path: Path, data: Path) -> None:
    (data / "bad").mkdir()
    (data / "bad" / "train.parquet").write_bytes(b"PAR1 no")
    many = data / "many"
    for number in range(40):
        (many / f"c{number}").mkdir(parents=True)
        for copy in range(2):
            (many / f"c{number}" / f"{copy}.png").write_bytes(photo(number * 2 + copy))
    for place, (dataset, words) in enumerate(
        (
            ({"parquet": {"path": "bad", "test": 0.5}}, "expected a Parquet file"),
            ({"parquet": {"path": "../outside"}}, "leaves the data directory"),
            ({"imagefolder": {"path": "many", "size": 8, "test": 0.5}}, "found 40 classes, expected 32 or fewer"),
        )
    ):
        with pytest.raises(ExplorerError, match=words):
            begun(tmp_path / f"p{place}", data, {"dataset": dataset, "model": "resnet8"})
        assert [*(tmp_path / f"p{place}").iterdir()] == []
