"""`explorer data shard`: from a folder of photographs to a run, and what is refused."""

import json
from pathlib import Path

import pytest

from tests.cli.command import explorer, refused
from tests.data.shards.texts import corpus
from tests.data.shards.written import folder


def test_from_a_folder_to_a_run(tmp_path: Path) -> None:
    folder(tmp_path, damaged=True)
    shown = explorer("data", "shard", tmp_path / "photos", tmp_path / "shards", "--shard-bytes", "3000").stdout
    for part in ("training", "12", "skipped 1: damaged or cut short, such as train/cat/999.jpg", "image_shards:"):
        assert part in shown
    card = json.loads(explorer("data", "image_shards", "--param", "path=shards", "--data", tmp_path, "--json").stdout)
    assert (card["train"], card["test"], card["skipped"][0]["count"]) == (12, 4, 1)
    assert [label["train"] for label in card["classes"]] == [6, 6]
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "task: {dataset: {image_shards: {path: shards, size: 16}}, model: {resnet8: {width: 0.5}}}\n"
        "train: {epochs: 2, batch_size: 4, optimizer: {sgd: {lr: 0.05}}}\n"
    )
    assert "6 steps" in explorer("run", recipe, "--data", tmp_path, "--runs", tmp_path / "runs").stdout


def test_a_dataset_by_its_name(tmp_path: Path) -> None:
    words = ("data", "shard", "digits", tmp_path / "digits", "--param", "simulated_classes=2", "--json")
    made = json.loads(explorer(*words).stdout)
    assert made["dataset"] == {"image_shards": {"path": "digits", "size": 8, "channels": 1}}
    assert {shard["tag"] for shard in made["index"]["train"]["shards"]} == {"simulated/class-00", "simulated/class-01"}
    again = refused(*words)
    assert "there are shards already" in again


def test_from_documents_to_a_run(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs the extra `text`")
    corpus(tmp_path)
    words = ("data", "shard", tmp_path / "corpus", tmp_path / "shards", "--shard-bytes", "2000", "--context", "32")
    shown = explorer(*words, "--vocabulary", "300", "--param", "tag=source").stdout
    for part in (
        "training",
        "mail",
        "text_shards: {path: shards, context: 32}",
        "gpt-tiny: {document_mask: true, separator: 0}",
    ):
        assert part in shown
    again = (
        *words[:3],
        tmp_path / "again",
        *words[4:],
        "--tokeniser",
        tmp_path / "shards" / "tokeniser.json",
        "--json",
    )
    made = json.loads(explorer(*again).stdout)["index"]
    assert (made["classes"], made["tokeniser"]["trained"], made["train"]["shards"][0]["tag"]) == (300, False, None)
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "task: {dataset: {text_shards: {path: shards}}, model: {gpt-tiny: {document_mask: true, separator: 0}}}\n"
        "train: {epochs: 0.2, batch_size: 4, optimizer: {adamw: {lr: 1.0e-3}}}\n"
    )
    assert "bits_per_byte" in explorer("run", recipe, "--data", tmp_path, "--runs", tmp_path / "runs").stdout


def test_what_has_no_documents(tmp_path: Path) -> None:
    folder(tmp_path)
    corpus(tmp_path)
    out = tmp_path / "out"
    assert "--context are for documents: found digits" in refused("data", "shard", "digits", out, "--vocabulary", "300")
    both = ("--tokeniser", tmp_path / "t.json", "--vocabulary", "300")
    assert "expected one of them" in refused("data", "shard", tmp_path / "corpus", out, *both)
    assert "unknown parameter 'txt'; did you mean 'text'" in refused(
        "data", "shard", tmp_path / "corpus", out, "--param", "txt=body"
    )
    assert "--context are for documents" in refused("data", "shard", tmp_path / "photos", out, "--context", "16")
    assert not out.exists()


@pytest.mark.parametrize("options", [["--param", "tag=folders"], ["--context", "64"]])
def test_text_files_are_documents_with_an_option_for_documents(tmp_path: Path, options: list[str]) -> None:
    for name in ("letters", "news"):
        (tmp_path / "words" / name).mkdir(parents=True)
        for number in range(30):
            text = f"Number {number} of the {name} that are fit to print. " * 40
            (tmp_path / "words" / name / f"{number}.txt").write_text(text)
    made = json.loads(explorer("data", "shard", tmp_path / "words", tmp_path / "out", *options, "--json").stdout)
    assert made["index"]["inputs"]["encoding"] == "tokens"
    assert (made["index"]["train"]["shards"][0]["tag"] is not None) == ("tag=folders" in options)
    plain = explorer("data", "shard", tmp_path / "words", tmp_path / "plain", "--json")
    assert json.loads(plain.stdout)["index"]["inputs"]["encoding"] == "array"


@pytest.mark.parametrize("place", [".", "train", "new/shards"])
def test_shards_are_not_written_into_what_is_read(tmp_path: Path, place: str) -> None:
    folder(tmp_path)
    before = sorted(path for path in tmp_path.rglob("*"))
    said = refused("data", "shard", tmp_path / "photos", tmp_path / "photos" / place)
    assert "expected a place outside of it" in said
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_what_cannot_be_sharded(tmp_path: Path) -> None:
    folder(tmp_path)
    assert "--param is for documents and for a dataset by its name" in refused(
        "data", "shard", tmp_path / "photos", tmp_path / "out", "--param", "size=8"
    )
    assert "unknown dataset 'digit'; did you mean 'digits'" in refused("data", "shard", "digit", tmp_path / "out")
    assert not (tmp_path / "out").exists()
