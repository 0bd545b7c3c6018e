"""What is to be deleted, and where a run comes from."""

from pathlib import Path

import pytest

from explorer.entries.fields import LedgerState
from explorer.errors import LedgerError, RunError
from explorer.runlog.origin import Origin, read_origin, write_origin
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target, resolve
from tests.governed_sample import write_governed_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunLedger:
    return RunLedger(write_governed_run(tmp_path_factory.mktemp("runs")))


def test_a_class_or_all_below_a_branch(run: RunLedger) -> None:
    first = run.genesis.classes[0]
    assert resolve(run, class_=first) == Target(classes=(first,))
    branch = first.split("/")[0]
    below = tuple(path for path in run.genesis.classes if path.startswith(f"{branch}/"))
    assert resolve(run, class_=branch).classes == below and len(below) > 1


def test_records_and_an_authority(run: RunLedger) -> None:
    assert resolve(run, records=[5, 3, 5]) == Target(records=(3, 5))
    assert resolve(run, authority="example.com/x") == Target(authorities=("example.com/x",))
    assert Target(records=(3, 5)).words == "2 records" and Target(records=(3,)).words == "record 3"
    assert Target(authorities=("example.com/x",)).words == "what example.com/x vouches for"


def test_what_is_no_target(run: RunLedger) -> None:
    with pytest.raises(LedgerError, match=r"class 'open/mitt'.*open/mit"):
        resolve(run, class_="open/mitt")
    for nothing in ({}, {"class_": "open/mit", "records": [1]}):
        with pytest.raises(LedgerError, match="expected one of: a class, an authority, records"):
            resolve(run, **nothing)


def test_an_origin_there_and_back(tmp_path: Path) -> None:
    ledger = LedgerState(origin="example.com/trainer/run", size=9, root="a" * 64)
    origin = Origin(level="G2", run="run", ledger=ledger, target=Target(classes=("open/mit",)), begins=4, state=None)
    assert read_origin(tmp_path) is None
    write_origin(tmp_path, origin)
    assert read_origin(tmp_path) == origin
    path = tmp_path / "origin.json"
    path.write_text(path.read_text().replace('"G2"', '"G1"'))
    with pytest.raises(RunError, match=r"origin.json: level"):
        read_origin(tmp_path)
