"""The spool: what the numbers say, in columns that others read; the same bytes for the same steps."""

import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from explorer import rundir
from explorer.entries.kinds import Genesis
from explorer.entries.numbers import StepNumbers, share_terms
from explorer.governance import spool
from explorer.governance.spool import ALL, RecordedStep, Spool
from explorer.store import spool_reader as reader
from tests.governance.journals import CLASSES, GENESIS, LAYERS, numbers, profile, rows

assert isinstance(GENESIS, Genesis)


def steps(first: int, last: int) -> list[RecordedStep]:
    return [RecordedStep(step=at, rows=rows(at), examples=(3, 4), numbers=numbers(at)) for at in range(first, last)]


def read(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()


def test_a_row_for_each_step_layer_and_class_with_numbers(tmp_path: Path) -> None:
    Spool(tmp_path, GENESIS).write_contributions(steps(3, 6))
    found = read(tmp_path / rundir.CONTRIBUTIONS / "segment-00000003.parquet")
    assert len(found) == 2 * 2 + 1 * 2 + 2 * 2  # at step 4 only one class has numbers
    for at in (3, 4, 5):
        expected = numbers(at)
        shares, whole = share_terms(expected.gram)
        for place, index in enumerate(expected.classes):
            for layer, name in enumerate(LAYERS):
                (row,) = [r for r in found if (r["step"], r["layer"], r["class"]) == (at, name, CLASSES[index])]
                assert row == {
                    "step": at,
                    "layer": name,
                    "class": CLASSES[index],
                    "examples": (3, 4)[index],
                    "weight": expected.weights[place, layer],
                    "norm": expected.norms[place, layer],
                    "share_num": np.float32(shares[place, layer]),
                    "share_den": np.float32(whole[layer]),
                    "update_num": expected.dots[place, layer],
                    "update_sq": expected.updates[layer],
                    "exact_num": None,
                }


def test_exact_parts_and_what_overflowed_are_kept(tmp_path: Path) -> None:
    usual = numbers(0)
    odd = StepNumbers(
        classes=usual.classes,
        weights=usual.weights,
        norms=usual.norms,
        dots=usual.dots,
        gram=usual.gram,
        updates=usual.updates,
        exact=np.array([[0.5, np.nan], [np.inf, -1]], np.float32),
    )
    Spool(tmp_path, GENESIS).write_contributions([RecordedStep(step=0, rows=rows(0), examples=(3, 4), numbers=odd)])
    found = [row["exact_num"] for row in read(tmp_path / rundir.CONTRIBUTIONS / "segment-00000000.parquet")]
    assert found[0] == 0.5 and np.isnan(found[1]) and found[2:] == [np.inf, -1]


def test_a_profile_has_a_row_for_each_class_and_one_for_all(tmp_path: Path) -> None:
    Spool(tmp_path, GENESIS).write_entropy(profile(4))
    found = read(tmp_path / rundir.ENTROPY / "step-00000004.parquet")
    assert [(row["layer"], row["class"], row["examples"]) for row in found] == [
        (layer, *of) for layer in LAYERS for of in ((CLASSES[0], 4), (CLASSES[1], 6), (ALL, 10))
    ]
    assert found[0]["entropy"] == 4.5 and found[0]["chi"] is None and found[0]["p_value"] is None
    assert found[2]["entropy"] == 0.25 and found[2]["chi"] == 0.25 and found[2]["p_value"] == 0.25


def test_without_numbers_there_is_no_file(tmp_path: Path) -> None:
    Spool(tmp_path, GENESIS).write_contributions([RecordedStep(step=0, rows=rows(0), examples=(3, 4), numbers=None)])
    assert not (tmp_path / rundir.CONTRIBUTIONS).exists()


def test_the_same_steps_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Spool(tmp_path / name, GENESIS).write_contributions(steps(0, 3))
        Spool(tmp_path / name, GENESIS).write_entropy(profile(0))
    a, b = ({p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n).rglob("*.parquet")} for n in "ab")
    assert a == b and len(a) == 2


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Spool(tmp_path, GENESIS)
    made.write_contributions(steps(0, 3))
    (path,) = (tmp_path / rundir.CONTRIBUTIONS).iterdir()
    before = path.read_bytes()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(spool.pq, "write_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.write_contributions(steps(0, 3))
    assert [p.read_bytes() for p in (tmp_path / rundir.CONTRIBUTIONS).iterdir()] == [before]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    Spool(tmp_path, GENESIS).write_contributions(steps(0, 3))
    (path,) = (tmp_path / rundir.CONTRIBUTIONS).iterdir()
    path.with_name(f".{path.name}.12345.tmp").write_bytes(b"PAR1")
    Spool(tmp_path, GENESIS)
    assert list((tmp_path / rundir.CONTRIBUTIONS).iterdir()) == [path]


def test_the_reading_side_knows_these_columns(tmp_path: Path) -> None:
    """Both sides name the columns; this is where they meet."""
    assert list(reader.CONTRIBUTIONS) == spool.CONTRIBUTIONS.names and list(reader.ENTROPY) == spool.ENTROPY.names
    Spool(tmp_path, GENESIS).write_contributions(steps(0, 3))
    Spool(tmp_path, GENESIS).write_entropy(profile(0))
    sums = reader.segment_sums(tmp_path)
    assert len(sums) == 4 and sums[0][:6] == (0, 2, "conv", "open/bsd", 3, 9)
    assert len(reader.entropy_rows(tmp_path)) == 6
    assert re.fullmatch(r"segment-\d{8}\.parquet", next((tmp_path / rundir.CONTRIBUTIONS).iterdir()).name)
