"""`explorer data`: the list and the cards, for people and for programs."""

import json
from pathlib import Path

import pytest

from explorer.data.sources import DATASETS
from tests.cli.command import explorer, refused
from tests.data.photos import photo
from tests.data.test_imagefolder import put


def test_the_list() -> None:
    listed = json.loads(explorer("data", "--json").stdout)
    assert [each["name"] for each in listed] == sorted(DATASETS)
    shown = explorer("data").stdout
    assert all(name in shown for name in DATASETS) and "simulated_classes=0" in " ".join(shown.split())


def test_a_card_for_people() -> None:
    shown = explorer("data", "digits", "--param", "size=16", "--param", "simulated_classes=3").stdout
    assert shown.startswith("digits: 1,797 handwritten digits")
    for part in ("size=16", "899 train, 898 test, each 1x16x16", "CC BY 4.0", "simulated provenance", "class-02"):
        assert part in shown


def test_a_card_for_programs_and_from_a_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("task: {dataset: {clutter: {size: 16, examples: 8}}, model: x}\n")
    cards = [
        json.loads(explorer("data", *how, "--json").stdout)
        for how in (("clutter", "--param", "size=16", "--param", "examples=8"), (recipe,))
    ]
    assert cards[0] == cards[1]
    assert (cards[0]["train"], cards[0]["counted"], len(cards[0]["digest"])) == (8, "pixels", 64)


def test_what_was_skipped_is_shown_and_steers_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    put(tmp_path, {f"p/{side}/{kind}/1": photo(1) for side in ("train", "test") for kind in ("x\x1b[31m", "y")})
    put(tmp_path, {"p/train/y/bad\x1b[2J": b"no"})
    shown = explorer("data", "imagefolder", "--param", "path=p", "--data", tmp_path).stdout
    assert "not a PNG, JPEG or WebP image" in shown and r"train/y/bad\x1b[2J" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("digitz",), "unknown dataset 'digitz'; did you mean 'digits'?"),
        (("digits", "--param", "size"), "--param: found 'size', expected KEY=VALUE"),
        (("digits", "--param", "size=9"), "dataset.digits: size: found int 9"),
        (("digits", "--param", "sise=8"), "unknown parameter 'sise'; did you mean 'size'?"),
        (("digits", "--param", "size=8", "--param", "size=8"), "--param: 'size' is given twice"),
        (("digits", "--param", "size=*a"), "--param size:1: anchors and aliases"),
        (("--param", "size=8"), "--param is for one dataset: found no name"),
        (("none.yaml",), "cannot read none.yaml"),
        (("x.yaml", "--param", "size=8"), "x.yaml has the parameters of its own"),
        (("cifar10",), "by --data or EXPLORER_DATA"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], message: str) -> None:
    assert message in refused("data", *arguments)


def test_the_card_of_a_table_names_its_features_and_counts_missing_values(tmp_path: Path) -> None:
    rows = "".join(f"{'' if n < 3 else n % 7},{'ab'[n % 2]},{n % 2}\n" for n in range(60))
    (tmp_path / "t.csv").write_text("age,town,y\n" + rows)
    arguments = ("data", "tabular", "--param", "path=t.csv", "--param", "target=y", "--data", ".")
    shown = explorer(*arguments, cwd=tmp_path).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "age age, age is missing 3" in lines and "town town = a, town = b 0" in lines
    columns = json.loads(explorer(*arguments, "--json", cwd=tmp_path).stdout)["columns"]
    assert columns[0] == {"name": "age", "features": ["age", "age is missing"], "missing": 3}


def test_data_that_are_no_dataset_are_begun_with_first(tmp_path: Path) -> None:
    (tmp_path / "my loans.csv").write_text("a,b\n1,2\n")
    card = "`explorer data my-loans.yaml --data .`"
    for more in ((), ("--param", "target=b")):
        said = refused("data", "my loans.csv", *more, cwd=tmp_path)
        assert "found data, expected the name of a dataset, or a recipe or sweep file (YAML)" in said
        assert said.rstrip().endswith(f"run `explorer init 'my loans.csv'`, then {card}")
    (tmp_path / "my-loans.yaml").write_text("")
    assert refused("data", "my loans.csv", cwd=tmp_path).rstrip().endswith(f"(YAML): run {card}")
    (tmp_path / "digits").mkdir()
    assert explorer("data", "digits", cwd=tmp_path).stdout.startswith("digits: 1,797")


def test_the_card_is_exported_as_croissant(tmp_path: Path) -> None:
    out = tmp_path / "digits.json"
    done = explorer("data", "digits", "--param", "size=8", "--croissant", out)
    assert done.returncode == 0 and done.stdout.startswith("digits: ")
    document = json.loads(out.read_text())
    assert (document["@type"], document["name"]) == ("sc:Dataset", "digits")
    assert "--croissant is for one dataset: found no name" in refused("data", "--croissant", out)


@pytest.mark.parametrize("name", ["parquet", "imagefolder", "text"])
def test_a_dataset_that_needs_parameters_says_which(name: str) -> None:
    done = explorer("data", name)
    assert done.returncode == 0 and "path" in done.stdout and "required" in done.stdout
    assert "below --data" in done.stdout and f"explorer data {name} --param path=..." in done.stdout
    found = json.loads(explorer("data", name, "--json").stdout)
    assert all(parameter["meaning"] for parameter in found["parameters"])


def test_a_parameter_of_the_wrong_type_is_explained(tmp_path: Path) -> None:
    done = explorer("data", "parquet", "--param", "path=x", "--param", "test=x/test.parquet", "--data", tmp_path)
    assert done.returncode == 1
    assert "found str 'x/test.parquet': input should be a valid number (share of each class for the test" in done.stderr


def test_an_absolute_path_is_told_of_the_data_directory(tmp_path: Path) -> None:
    done = explorer("data", "text", "--param", "path=/etc/hosts", "--data", tmp_path)
    assert done.returncode == 1 and "is given by --data or EXPLORER_DATA" in done.stderr
