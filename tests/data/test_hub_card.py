"""Cards of the Hugging Face hub: which files are of which side, the names of classes, and what is refused."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from explorer.data.hub_card import matches, read_hub_card
from explorer.data.parquet import Parquet
from explorer.errors import DataError
from tests.data.photos import photo

NAMES = """\
dataset_info:
  features:
  - {name: image, dtype: image}
  - name: label
    dtype:
      class_label:
        names: {'0': cat, '1': dog, '2': owl}
"""
FILES = """\
configs:
- config_name: default
  data_files:
  - split: train
    path: part-0*
  - split: validation
    path: [extra/part-*.parquet]
"""
TWO = """\
configs:
- config_name: en
  data_dir: en
- config_name: fr
  data_files:
  - {split: train, path: fr/a.parquet}
  - {split: test, path: fr/b.parquet}
"""


def write(path: Path, labels: list[int], *, first: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [photo(first + number) for number in range(len(labels))]
    pq.write_table(pa.table({"image": images, "label": labels}), path)


def card(hub: Path, content: str) -> None:
    hub.mkdir(exist_ok=True)
    (hub / "README.md").write_text(f"---\nlicense: mit\n{content}---\n# Animals\n")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files whose names say nothing of their side."""
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "hub/part-00.parquet", [2, 0, 1])
    write(tmp_path / "hub/part-01.parquet", [0, 1, 2], first=3)
    write(tmp_path / "hub/extra/part-02.parquet", [1, 0, 2], first=6)
    return tmp_path


def test_a_card_says_which_files_are_of_which_side_and_names_the_classes(data: Path) -> None:
    card(data / "hub", FILES + NAMES)
    source = Parquet(path="hub", size=8)
    read = source.load(data)
    assert (len(read.train), read.test.labels.tolist(), read.names) == (6, [1, 0, 2], ("cat", "dog", "owl"))
    assert Parquet.of_path(data / "hub") == Parquet(path="hub")
    before = source.digest(data)
    (data / "other").mkdir()
    (data / "hub").rename(data / "other/hub")
    assert Parquet(path="other/hub", size=8).digest(data) == before
    # Controls: the sides and the names that the card gives are part of the digest.
    (data / "other/hub").rename(data / "hub")
    card(data / "hub", FILES + NAMES.replace("owl", "cow"))
    assert source.digest(data) != before
    card(data / "hub", FILES.replace("part-0*", "part-00*") + NAMES)
    assert source.digest(data) != before and len(source.load(data).train) == 3


def test_a_card_that_says_what_the_files_say_leaves_the_digest_as_it_is(data: Path) -> None:
    for name, labels in (("train-0", [0, 1]), ("test-0", [1, 0])):
        write(data / f"plain/data/{name}.parquet", labels)
    source = Parquet(path="plain")
    before = source.digest(data)
    card(data / "plain", FILES.replace("part-0*", "data/train-*").replace("[extra/part-*.parquet]", "data/test-*"))
    assert source.digest(data) == before
    assert read_hub_card(data / "plain") is not None, "the control: the card was read"


def test_one_of_several_configurations_has_to_be_named(data: Path) -> None:
    for name in ("en/train", "en/test", "fr/a", "fr/b"):
        write(data / f"hub/{name}.parquet", [0, 1] if name.startswith("en") else [0, 1, 2])
    card(data / "hub", TWO)
    with pytest.raises(DataError, match=r"README.md: found the configurations 'en', 'fr', .* such as config: en"):
        Parquet(path="hub").load(data)
    assert [len(Parquet(path="hub", config=name).load(data).train) for name in ("en", "fr")] == [2, 3]
    assert Parquet.of_path(data / "hub") == Parquet(path="hub", config="en")
    with pytest.raises(DataError, match="unknown configuration 'eng'; did you mean 'en'"):
        Parquet(path="hub", config="eng").digest(data)
    (data / "hub/README.md").unlink()
    with pytest.raises(DataError, match=r"config: found 'en', but .* names no configurations: leave 'config' out"):
        Parquet(path="hub", config="en").digest(data)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (FILES.replace("part-0*", "part-9*"), r"configuration 'default': train: no Parquet file fits 'part-9\*'"),
        (
            FILES.replace("part-0*", "../part-0*"),
            r"configs\[0\]: found the path '\.\./part-0\*': expected one of files",
        ),
        (FILES.replace("part-0*", "/etc/*"), r"found the path '/etc/\*'"),
        (FILES.replace("part-0*", "hf://a/b"), "found the path 'hf://a/b'"),
        (FILES.replace("  - split: train\n", "  - spit: train\n"), "data_files: found .*expected split and path"),
        ("configs: all\n", "configs: found 'all', expected a list"),
        ("configs: [1]\n", r"configs\[0\]: found 1, expected config_name and data_files"),
        ("configs: &a [*a]\n", r"damaged card: .*README.md:3: "),
        ("configs: !!python/object/apply:os.system [id]\n", r"damaged card: .*README.md:3: "),
        ("configs:\n  - [\n", "damaged card: .*not YAML"),
    ],
)
def test_a_card_that_cannot_be_followed_is_one_error(data: Path, content: str, words: str) -> None:
    card(data / "hub", content)
    with pytest.raises(DataError, match=words):
        Parquet(path="hub").digest(data)


@pytest.mark.parametrize("text", ["", "# Photos\n", "---\n", "---\n**bold**: text\n---\n", "---\nlicense: mit\n---\n"])
def test_a_readme_without_these_keys_is_no_card(data: Path, text: str) -> None:
    (data / "hub/README.md").write_text(text)
    assert read_hub_card(data / "hub") is None


def test_a_card_behind_a_link_is_not_read(data: Path) -> None:
    (data / "card").write_text(f"---\n{FILES}---\n")
    (data / "hub/README.md").symlink_to(data / "card")
    assert read_hub_card(data / "hub") is None


@pytest.mark.parametrize(
    ("pattern", "file", "fits"),
    [
        ("data/train-*", "data/train-0.parquet", True),
        ("data/*", "data/en/0.parquet", False),
        ("data/**", "data/en/0.parquet", True),
        ("**/*.parquet", "0.parquet", True),
        ("*/t?st.parquet", "en/test.parquet", True),
        ("data/Train-*", "data/train-0.parquet", False),
        ("**/" * 18 + "x", "a/" * 100 + "y", False),  # exponential without a memory
    ],
)
def test_patterns(pattern: str, file: str, fits: bool) -> None:
    assert matches(pattern, file) == fits
