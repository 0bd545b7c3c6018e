"""Tags, their leaves and their root; tables of them as files, and what is refused of one."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from explorer import merkle
from explorer.errors import ProvenanceError
from explorer.provenance import tags as tags_module
from explorer.provenance.tags import ClassCount, Tags, Voucher, count, leaf, read_authorities, read_tags, tag
from explorer.provenance.tags_file import SCHEMA, Row, TagFile, write_table
from tests.provenance.people import GOVERNANCE
from tests.provenance.tables import ROWS, TAXONOMY, commitment, row, table

CODES = TAXONOMY.codes


def read(path: Path, authorities: tuple[str, ...] | None = None) -> Tags:
    with TagFile(path) as file:
        return read_tags(file, codes=CODES, authorities=read_authorities(file) if authorities is None else authorities)


def expected_root(rows: tuple[Row, ...]) -> bytes:
    """The root, computed row by row from the definition."""
    names = sorted({one.authority for one in rows})
    return merkle.root_of(
        leaf(slot, tag(CODES[one.class_path], names.index(one.authority), one.commitment), one.source)
        for slot, one in enumerate(rows)
    )


def test_the_known_answer() -> None:
    assert tag(0, 0, bytes(32)) == bytes(40)
    assert leaf(5, bytes(40)).hex() == "3babad1e0b76fa115b356314a9e861bb6eb8d9a82b0ca02d8c57120e09d743a3"
    assert tag(1, 2, b"c" * 32) == bytes.fromhex("0000000100020000") + b"c" * 32


def test_a_table_gives_what_was_written(tmp_path: Path) -> None:
    tags = read(table(tmp_path))
    assert tags.root == expected_root(ROWS)
    assert tags.root.hex() == "fa3a1d2c0a14ebd32c608d12fdc3d5d78d0a0c25eee4ef5a27d8e92f99095a7d"
    assert tags.classes.tolist() == [CODES[one.class_path] for one in ROWS]
    assert tags.authorities.tolist() == [0] * len(ROWS)
    assert [bytes(one) for one in tags.commitments] == [one.commitment for one in ROWS]
    assert bytes(tags.leaves[2]) == leaf(2, tag(CODES["open"], 0, commitment(2)))
    assert not any(array.flags.writeable for array in (tags.leaves, tags.classes, tags.authorities, tags.commitments))
    assert count(tags, authorities=(GOVERNANCE,), codes=CODES) == (
        Voucher(
            authority=GOVERNANCE,
            classes={
                "quarantine": ClassCount(records=1, first=4),
                "licensed/news": ClassCount(records=1, first=1),
                "open": ClassCount(records=1, first=2),
                "open/mit": ClassCount(records=2, first=0),
            },
        ),
    )


def test_the_root_is_that_of_rfc_6962_at_every_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags_module, "_SUBTREE", 4)
    rows = tuple(row(number, source=f"s{number % 3}") for number in range(37))
    for size in range(1, len(rows) + 1):
        assert read(table(tmp_path, *rows[:size])).root == expected_root(rows[:size])


@pytest.mark.slow
def test_a_table_of_several_batches(tmp_path: Path) -> None:
    """More rows than are held at a time, with numbers of authorities that differ from batch to batch."""
    rows = tuple(row(n % 997, source=f"s{n % 11}", authority="b" if n < 66_000 else "a") for n in range(70_000))
    path = table(tmp_path, *rows)
    assert read(path).root == expected_root(rows)
    with pytest.raises(ProvenanceError, match="the tag of slot 66000: unknown authority 'a'"):
        read(path, ("b",))


CHANGES: dict[str, Callable[[Row], Row]] = {
    "commitment": lambda one: one._replace(commitment=bytes([one.commitment[0] ^ 1]) + one.commitment[1:]),
    "class": lambda one: one._replace(class_path="licensed"),
    "source": lambda one: one._replace(source=one.source + "x"),
    "authority": lambda one: one._replace(authority=one.authority + "x"),
}


@pytest.mark.parametrize("column", CHANGES)
def test_every_value_of_every_column_is_under_the_root(tmp_path: Path, column: str) -> None:
    authorities = (GOVERNANCE, GOVERNANCE + "x")
    before = read(table(tmp_path), authorities).root
    for slot in range(len(ROWS)):
        changed = [CHANGES[column](one) if at == slot else one for at, one in enumerate(ROWS)]
        assert read(table(tmp_path, *changed), authorities).root != before


def test_order_and_number_are_under_the_root(tmp_path: Path) -> None:
    before = read(table(tmp_path)).root
    for rows in (ROWS[::-1], ROWS[:-1], (*ROWS, ROWS[-1]), (ROWS[1], ROWS[0], *ROWS[2:])):
        assert read(table(tmp_path, *rows)).root != before


def test_no_source_passes_for_another(tmp_path: Path) -> None:
    """Nothing moves across the borders between slot, tag and source."""
    made = {leaf(slot, tag(1, 2, bytes(32)), source) for slot in (0, 1) for source in ("", "\x00", "a", "aa", "\x00a")}
    assert len(made) == 10


def test_what_is_not_known_is_refused_with_its_slot(tmp_path: Path) -> None:
    path = table(tmp_path, row(0), row(1, "open/mti"))
    with pytest.raises(ProvenanceError, match="the tag of slot 1: unknown class 'open/mti'; did you mean 'open/mit'"):
        read(path)
    path = table(tmp_path)
    with pytest.raises(ProvenanceError, match=r"the tag of slot 0: unknown authority 'example.com/data-governance'"):
        read(path, ("example.com/dg",))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "a tag table without rows"),
        ([row(0), row(1)._replace(commitment=b"short")], "slot 1: a commitment of 5 bytes, expected 32"),
        ([row(0, "open\nmit")], "class: expected at most 500 bytes of printable text"),
        ([row(0, source="x" * 501)], "source: expected at most 500 bytes"),
        ([row(0, source="\u202eevil")], "source: expected at most 500 bytes of printable text"),
        ([row(0, source="\ud800")], "not rows of a tag table"),
    ],
)
def test_rows_that_no_table_holds(tmp_path: Path, rows: list[Row], message: str) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(ProvenanceError, match=message):
        write_table(path, rows)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_refuses_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ProvenanceError, match="cannot write"):
        write_table(tmp_path / "file" / "t.parquet", ROWS)


def arrow(**columns: Any) -> pa.Table:
    """The usual table with other columns."""
    usual = {
        name: pa.array(column, field.type)
        for (name, column), field in zip(zip(SCHEMA.names, zip(*ROWS, strict=True), strict=True), SCHEMA, strict=True)
    }
    return pa.table({**usual, **columns})


TEXT = [one.source for one in ROWS]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (arrow().select(["commitment", "class", "source"]), {}, "not a tag table: found columns"),
        (arrow().select(["class", "commitment", "source", "authority"]), {}, "not a tag table: found columns"),
        (arrow(more=pa.array(TEXT)), {}, "not a tag table: found columns"),
        (
            arrow(commitment=pa.array([b"x" * 31] * 5, pa.binary(31))),
            {},
            r"found columns commitment fixed_size_binary\[31\]",
        ),
        (arrow(commitment=pa.array([b"x" * 32] * 5, pa.binary())), {}, "found columns commitment binary,"),
        (arrow(**{"class": pa.array(range(5))}), {}, "class int64,"),
        (arrow(source=pa.array([*TEXT[:4], None])), {}, "source: a row without value"),
        (arrow(commitment=pa.array([None] * 5, pa.binary(32))), {}, "commitment: a row without value"),
        (arrow(source=pa.array(["x" * 501] * 5)), {}, "source: expected at most 500 bytes"),
        (arrow(authority=pa.array(["\x1b[31m"] * 5)), {}, "authority: expected at most 500 bytes of printable text"),
        (arrow(), {"compression": "snappy"}, r"compressed \(codec 1\)"),
        (arrow().slice(0, 0), {}, "0 rows; a tag table has 1 to"),
    ],
)
def test_files_that_are_no_tag_table(tmp_path: Path, content: pa.Table, options: dict[str, Any], message: str) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(content, path, **{"compression": "none", **options})
    with pytest.raises(ProvenanceError, match=message):
        read(path)


def test_a_table_by_another_writer_is_read(tmp_path: Path) -> None:
    """Row groups, statistics, dictionaries, nullability and Arrow's own schema are for the writer to choose."""
    path = tmp_path / "t.parquet"
    pq.write_table(arrow(), path, compression="none", row_group_size=2, use_dictionary=False)
    assert read(path).root == expected_root(ROWS)


def test_neither_writing_nor_reading_loads_pandas(tmp_path: Path) -> None:
    """pyarrow loads it when it may, which takes longer than all the rest."""
    code = (
        "import sys; from pathlib import Path; from tests.provenance.tables import TRUST, signed, table, verified\n"
        "path = table(Path(sys.argv[1]))\n"
        "verified(path, signed(path), trust=TRUST)\n"
        "assert 'pyarrow' in sys.modules and 'pandas' not in sys.modules"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=root, timeout=600)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "absent", "cannot read .*: No such file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "pipe", "not a regular file"),
    ):
        with pytest.raises(ProvenanceError, match=message):
            TagFile(path)


@pytest.mark.slow
def test_any_changed_byte_gives_a_table_or_one_error(tmp_path: Path) -> None:
    """Parquet has bytes that mean nothing; what matters here is that no other error gets out."""
    path = table(tmp_path)
    whole = path.read_bytes()
    refused = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            read(path)
        except ProvenanceError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > len(whole) / 2


@given(st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_are_one_error(tmp_path: Path, data: st.DataObject) -> None:
    path = table(tmp_path)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    filler = data.draw(st.binary(max_size=64))
    where = data.draw(st.integers(0, len(whole)))
    path.write_bytes(data.draw(st.sampled_from([whole[:cut], whole[:where] + filler + whole[where + len(filler) :]])))
    try:
        read(path)
    except ProvenanceError:
        return


def test_counts_of_several_authorities() -> None:
    tags = Tags(
        root=b"",
        leaves=np.empty((3, 32), np.uint8),
        classes=np.array([1, 3, 1], np.uint32),
        authorities=np.array([1, 0, 1], np.uint16),
        commitments=np.empty((3, 32), np.uint8),
    )
    assert count(tags, authorities=("a", "b"), codes=CODES) == (
        Voucher(authority="a", classes={"open": ClassCount(records=1, first=1)}),
        Voucher(authority="b", classes={"licensed": ClassCount(records=2, first=0)}),
    )


def test_a_codec_that_nobody_knows_is_refused_and_does_not_end_the_process(tmp_path: Path) -> None:
    """pyarrow aborts when it is asked for the name of a codec that it does not know."""
    path = tmp_path / "t.parquet"
    pq.write_table(arrow(), path, compression="snappy")
    content = path.read_bytes()
    codec = bytes([0x15, 0x02])  # a field after the last, i32; 1 in zigzag
    assert content.count(codec) >= 4
    path.write_bytes(content.replace(codec, bytes([0x15, 0x3A])))
    with pytest.raises(ProvenanceError, match=r"compressed \(codec 29\)"):
        read(path)
