"""Erasing rows of shards: they are gone, the index holds, the others are proved, and nothing else can be changed."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from explorer import merkle
from explorer.data.dataset import Dataset, DataSource, Rows
from explorer.data.shards import shard_cache, shard_files, shard_table
from explorer.data.shards.image_shards import ImageShards
from explorer.data.shards.shard_cache import ShardCache
from explorer.data.shards.shard_erasure import erase, rows_of
from explorer.data.shards.shard_index import Index, digest_of
from explorer.data.shards.text_documents import Documents
from explorer.data.shards.text_shards import TextShards
from explorer.errors import DataError
from explorer.objects import DirectoryObjects, open_objects
from tests.cli.command import explorer, refused
from tests.data.shards.texts import corpus, lines, pack, sentences
from tests.data.shards.written import DIGITS, folder, opened, write

DIGIT_SHARDS = ImageShards(path="place", size=8, channels=1)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setattr(shard_files, "PAUSES", (0.0,))
    return write(DIGITS, tmp_path / "place")


def erased(index: Index, place: Path, *examples: int) -> None:
    erase(open_objects(str(place)), index, rows_of(index, examples))


def test_a_root_is_that_of_the_rows_by_the_definition(tmp_path: Path, index: Index) -> None:
    for shard in (index.train.shards[0], index.test.shards[0]):
        rows = pq.read_table(tmp_path / "place" / shard.name).to_pylist()
        leaves = [
            hashlib.sha256(
                b"\0"
                + row["slot"].to_bytes(8, "big")
                + (8).to_bytes(4, "big")
                + row["label"].to_bytes(8, "little")
                + row["input"]
            ).digest()
            for row in rows
        ]
        assert merkle.root_of(leaves).hex() == shard.root


def content_of(dataset: Dataset, number: int) -> bytes:
    assert isinstance(dataset.train.inputs, Rows)
    return dataset.train.inputs.content(number)


def of_digits(root: Path) -> tuple[Index, DataSource]:
    return write(DIGITS, root / "place"), DIGIT_SHARDS


def of_photographs(root: Path) -> tuple[Index, DataSource]:
    index = write(folder(root), root / "place", data=root, shard_bytes=4_000)
    return index, ImageShards(path="place", size=16)


def of_texts(root: Path) -> tuple[Index, DataSource]:
    index = pack(corpus(root), root / "place")
    return index, TextShards(path="place", **TextShards.parameters(index))


@pytest.mark.parametrize("made", [of_digits, of_photographs, of_texts])
def test_an_erased_row_is_gone_and_the_others_are_as_before(
    tmp_path: Path, made: Callable[[Path], tuple[Index, DataSource]]
) -> None:
    index, source = made(tmp_path)
    before, digest = source.load(tmp_path), source.digest(tmp_path)
    count = len(before.train)
    gone = [0, count // 2, count - 1]
    kept = torch.tensor([number for number in range(count) if number not in gone])
    secrets = [content_of(before, number) for number in gone]
    inputs, labels = before.train.inputs[kept], before.train.labels[kept]
    erased(index, tmp_path / "place", *gone)

    after = source.load(tmp_path)
    assert source.digest(tmp_path) == digest
    assert torch.equal(after.train.inputs[kept], inputs) and torch.equal(after.train.labels[kept], labels)
    for number in gone:
        with pytest.raises(DataError, match=f"example {number} was erased"):
            after.train.inputs[torch.tensor([1, number])]
    files = b"".join(path.read_bytes() for path in (tmp_path / "place").rglob("*.parquet"))
    assert not any(secret in files for secret in secrets)
    # The control: a row that was not erased is found in the same way.
    assert content_of(after, int(kept[0])) in files


def test_erasing_again_changes_nothing_and_erases_more(tmp_path: Path, index: Index) -> None:
    place = tmp_path / "place"
    erased(index, place, 3)
    once = (place / index.train.shards[0].name).read_bytes()
    erased(index, place, 3)
    assert (place / index.train.shards[0].name).read_bytes() == once
    erased(index, place, 5)
    assert np.flatnonzero(opened(open_objects(str(place)), index).opened([0])[0].erased).tolist() == [3, 5]


def change(column: str, row: int, value: object) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        rows[row][column] = value
        return pa.Table.from_pylist(rows, schema=table.schema)

    return changed


@pytest.mark.parametrize(
    "attack",
    [
        change("input", 0, bytes(64)),
        change("label", 0, 7),
        change("slot", 0, 1_000),
        change("erased", 0, bytes(32)),
        change("erased", 3, None),
        change("erased", 3, b"short"),
        change("input", 3, bytes(63) + b"\1"),  # erased in name only
        change("label", 3, 7),
        lambda table: table.append_column("copy", table.column("input")),
        lambda table: table.slice(1),
        lambda table: pa.concat_tables([table, table.slice(0, 1)]),
    ],
)
def test_nothing_else_can_be_changed_under_the_name_of_an_erasure(
    tmp_path: Path, index: Index, attack: Callable[[pa.Table], pa.Table]
) -> None:
    erased(index, tmp_path / "place", 3)
    path = tmp_path / "place" / index.train.shards[0].name
    table = pq.read_table(path)
    path.write_bytes(shard_table.encode(table))  # the control: the same rows in a file written anew
    assert opened(open_objects(str(tmp_path / "place")), index).opened([0])[0].erased.sum() == 1
    path.write_bytes(shard_table.encode(attack(table)))
    with pytest.raises(DataError, match="damaged"):
        opened(open_objects(str(tmp_path / "place")), index).opened([0])


def test_a_file_that_grows_when_it_is_read_is_not_read(tmp_path: Path, index: Index) -> None:
    erased(index, tmp_path / "place", 3)
    path = tmp_path / "place" / index.train.shards[0].name
    pq.write_table(pq.read_table(path), path, compression="zstd", store_schema=False)
    with pytest.raises(DataError, match="damaged"):
        opened(open_objects(str(tmp_path / "place")), index).opened([0])


def test_what_was_erased_leaves_the_cache(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    objects, shard = open_objects(str(tmp_path / "place")), index.train.shards[0]
    files = opened(objects, index, cache=ShardCache(shard_cache.USUAL))
    files.opened([0])
    cached = next((tmp_path / "cache").rglob(shard.sha256))
    assert digest_of(cached.read_bytes()) == shard.sha256
    erased(index, tmp_path / "place", 3)
    assert not cached.exists()
    again = opened(objects, index, cache=ShardCache(shard_cache.USUAL))
    assert again.opened([0])[0].erased.sum() == 1
    assert not cached.exists()  # other bytes than its name says are never kept


def test_the_record_is_the_one_of_the_recipe(tmp_path: Path) -> None:
    """A recipe that trains on a part of the shards numbers the examples of that part."""
    texts = [(text, source) for source in ("news", "code") for text in sentences(source, 90)]
    lines(tmp_path / "corpus" / "data.jsonl", texts)
    index = pack(Documents(path=tmp_path / "corpus", tag="source"), tmp_path / "place")
    whole = TextShards(path="place", **TextShards.parameters(index))
    part = dataclasses.replace(whole, examples=index.train.shards[0].rows + 1)  # the first shards of both
    number = index.train.shards[0].rows
    assert index.train.shards[1].tag == "news"
    secret, other = (content_of(source.load(tmp_path), number) for source in (part, whole))
    assert secret != other
    words = ("data", "erase", tmp_path / "place", "--record", str(number), "--yes")
    assert explorer(*words, "--examples", str(part.examples)).returncode == 0
    files = b"".join(path.read_bytes() for path in (tmp_path / "place").rglob("*.parquet"))
    assert secret not in files and other in files
    with pytest.raises(DataError, match=f"example {number} was erased"):
        content_of(part.load(tmp_path), number)


def test_what_a_killed_writer_left_is_erased_too(tmp_path: Path, index: Index) -> None:
    draft = tmp_path / "place" / "train" / ".000001.parquet.0123456789abcdef.tmp"
    draft.write_bytes((tmp_path / "place" / index.train.shards[1].name).read_bytes())
    erased(index, tmp_path / "place", 3)
    assert not draft.exists()


class Forgetful(DirectoryObjects):
    """A place that keeps what it has."""

    def put(self, key: str, content: bytes) -> None:
        pass


def test_an_erasure_that_did_not_happen_is_an_error(tmp_path: Path, index: Index) -> None:
    with pytest.raises(DataError, match=r"train/000000.parquet: its rows are still there"):
        erase(Forgetful(tmp_path / "place"), index, rows_of(index, [3]))


def test_the_verb_shows_first_and_erases_then(tmp_path: Path, index: Index) -> None:
    place = tmp_path / "place"
    before = {path: path.read_bytes() for path in place.rglob("*.parquet")}
    shown = explorer("data", "erase", place, "--record", "3", "--record", "40")
    assert shown.returncode == 1 and "would erase 2 training examples" in shown.stderr
    assert {path: path.read_bytes() for path in before} == before
    done = explorer("data", "erase", place, "--record", "3", "--record", "40", "--yes", "--json")
    record = json.loads(done.stdout)
    assert done.returncode == 0 and record["erased"]
    assert {path.relative_to(place).as_posix() for path in before if path.read_bytes() != before[path]} == set(
        record["shards"]
    )
    verified = explorer("data", "verify", place)
    assert verified.returncode == 0 and "2 rows erased" in verified.stdout
    count = sum(shard.rows for shard in index.train.shards)
    said = refused("data", "erase", place, "--record", str(count), "--yes")
    assert f"record {count}: there are {count} training examples, counted from 0" in said
    assert "expected --record" in refused("data", "erase", place, "--yes")
