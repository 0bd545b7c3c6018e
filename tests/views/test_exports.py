"""Files of exactly what is shown, and what stands beside them: enough to find out what they rest on."""

import hashlib
import io
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from explorer.errors import AnalysisError
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.views.explorer.answer import answer
from explorer.views.explorer.question import Question, from_token
from explorer.views.explorer.sharing import FORMATS, encode, export, ledgers_behind
from explorer.views.explorer.snapshot import Snapshot, read_snapshot
from explorer.views.explorer.tradeoff import tradeoff
from tests.audit.governed_run import write_governed_run
from tests.builders import run_record, write_run

ASKED = Question(sweep="digits", payment="steps")


@pytest.fixture(scope="module")
def snapshot(runs: Path) -> Snapshot:
    return read_snapshot(runs)


@pytest.fixture(scope="module")
def chart(snapshot: Snapshot) -> Any:
    scene = answer(snapshot, ASKED).scene
    assert scene is not None
    return tradeoff(scene, width=400)


@pytest.fixture(scope="module")
def two_governed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two governed runs and one that is not."""
    runs = tmp_path_factory.mktemp("heads") / "runs"
    for steps in (6, 8):
        write_governed_run(runs, steps=steps)
    write_run(runs, run_record())
    ingest(runs)
    return runs


def written(kind: Any, rows: pd.DataFrame, chart: Any, snapshot: Snapshot, directory: Path) -> tuple[Path, dict]:
    asked: Any = {"question": ASKED, "target": 0.97, "snapshot": snapshot, "name": "out"}
    path = export(kind, rows=rows, chart=chart, directory=directory, **asked)
    return path, json.loads(path.with_name(f"{path.name}.json").read_text())


@pytest.mark.slow
def test_every_format_has_its_origin_beside_it(
    snapshot: Snapshot, results: pd.DataFrame, chart: Any, tmp_path: Path
) -> None:
    begins = {"csv": b"sweep,", "parquet": b"PAR1", "svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}
    for kind in FORMATS:
        path, origin = written(kind, results.head(3), chart, snapshot, tmp_path)
        assert path.read_bytes().startswith(begins[kind])
        assert origin["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert origin["database_sha256"] == hashlib.sha256(snapshot.database.read_bytes()).hexdigest()
        assert origin["rows"] == 3
        assert ("texts" in origin) == (kind == "csv")
        assert origin["ledgers"] == []
        assert origin["query"]["target_used"] == 0.97
        assert from_token(origin["view"]) == ASKED
        assert shlex.split(origin["view_note"])[-1] == origin["view"]


def test_what_is_read_back_is_what_was_shown(results: pd.DataFrame, chart: Any, tmp_path: Path) -> None:
    """Numbers come back as they were from either; a text that begins like a formula only from Parquet."""
    hostile = ["=1+1", "-2", "@x", "\t=1", "+1", "plain", 'a,"b"\r\nc']
    rows = results.head(7).assign(recipe=hostile, quality=[-0.1, 1 / 3, 1e-300, -7.0, 0.1 + 0.2, float("nan"), 1e17])
    (tmp_path / "csv").write_bytes(encode("csv", rows=rows, chart=chart))
    (tmp_path / "parquet").write_bytes(encode("parquet", rows=rows, chart=chart))
    table = pd.read_csv(tmp_path / "csv")
    exact = pd.read_parquet(tmp_path / "parquet")
    for name in ("ssr", "seed", "steps", "quality", "train_seconds", "higher_is_better", "run_id"):
        pd.testing.assert_series_equal(table[name], rows[name].reset_index(drop=True), check_dtype=False, rtol=0)
    assert table["recipe"].tolist() == [*(f"'{name}" for name in hostile[:5]), *hostile[5:]]
    assert exact["recipe"].tolist() == hostile


def test_the_windows_of_a_time_are_numbers_in_csv(results: pd.DataFrame, chart: Any) -> None:
    """As a list that JSON reads; a row without them has an empty cell."""
    windows = [np.array([0.1 + 0.2, 1 / 3]), None, np.arange(2000.0)]
    rows = results.head(3).assign(train_seconds_windows=windows)
    table = pd.read_csv(io.BytesIO(encode("csv", rows=rows, chart=chart)))
    read = [None if pd.isna(cell) else json.loads(cell) for cell in table["train_seconds_windows"]]
    assert read == [None if each is None else each.tolist() for each in windows]


def test_the_prices_behind_the_costs_are_named(
    snapshot: Snapshot, results: pd.DataFrame, chart: Any, tmp_path: Path
) -> None:
    _, origin = written("csv", results, chart, snapshot, tmp_path)
    assert [(each["hardware"], each["usd_per_hour"]) for each in origin["prices"]["used"]] == [("AMD EPYC 7B13", None)]
    priced = results.assign(usd_per_hour=2.0, price_source="own box", price_as_of="2026-11-09")
    _, origin = written("csv", priced, chart, snapshot, tmp_path)
    (used,) = origin["prices"]["used"]
    assert (used["usd_per_hour"], used["price_source"], used["price_as_of"]) == (2.0, "own box", "2026-11-09")
    _, other = written("csv", priced, chart, replace(snapshot, prices=snapshot.prices[1:]), tmp_path)
    assert other["prices"]["table_sha256"] != origin["prices"]["table_sha256"]


def test_the_heads_are_those_of_the_runs_that_are_shown_and_of_no_others(two_governed: Path) -> None:
    database = two_governed / "explorer.duckdb"
    rows, heads = frames.results(database), frames.ledger_heads(database)
    assert len(rows) == 3 and len(heads) == 2
    head = heads.iloc[0]
    found = ledgers_behind(
        rows[rows["run_id"].isin([head["run_id"], *rows.loc[rows["policy"].isna(), "run_id"]])], database
    )["ledgers"]
    assert [(each["run"], each["origin"], each["size"], each["root"]) for each in found] == [
        (head["run_id"], head["origin"], head["size"], head["root"])
    ]
    assert len(ledgers_behind(rows, database)["ledgers"]) == 2
    assert ledgers_behind(rows[rows["ledger_root"].isna()], database)["ledgers"] == []
    json.dumps(found, allow_nan=False)


def test_a_ledger_that_is_another_by_now_is_refused(two_governed: Path) -> None:
    database = two_governed / "explorer.duckdb"
    rows = frames.results(database)
    rows["ledger_root"] = rows["ledger_root"].where(rows["ledger_root"].isna(), "0" * 64)
    with pytest.raises(AnalysisError, match="is not the one that is shown"):
        ledgers_behind(rows, database)


def test_of_means_no_ledger_is_named(snapshot: Snapshot, results: pd.DataFrame) -> None:
    found = ledgers_behind(results.drop(columns="run_id"), snapshot.database)
    assert found["ledgers"] is None and "means" in found["ledgers_note"]


def test_a_view_that_no_token_can_hold_is_exported_and_says_so(
    snapshot: Snapshot, results: pd.DataFrame, chart: Any, tmp_path: Path
) -> None:
    wide = Question(recipes=tuple(hashlib.sha256(b"%d" % n).hexdigest() for n in range(500)))
    asked: Any = {"target": None, "snapshot": snapshot, "directory": tmp_path, "name": "wide"}
    path = export("csv", rows=results, chart=chart, question=wide, **asked)
    origin = json.loads(path.with_name(f"{path.name}.json").read_text())
    assert origin["view"] is None and "no token" in origin["view_note"]
