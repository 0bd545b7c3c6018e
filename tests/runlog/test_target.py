"""A target, the record of the run that never had it, and the origin of a run that a deletion made."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from explorer.canonical import digest
from explorer.entries.fields import LedgerState
from explorer.errors import LedgerError, RunError
from explorer.run_files import LoopRecord, RunRecord, read_plan
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Origin, Target, counterfactual, left_out, read_origin, resolve, write_origin
from tests.builders import run_record, with_identity
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


# --- the run that never had the target ---


def record(*methods: Any) -> RunRecord:
    identity = {"recipe": {"methods": list(methods)}, "data": "a", "ssr": 0.5, "seed": 3}
    made = run_record()
    return replace(with_identity(made, identity), run_id=f"{made.run_id[:-8]}{digest(identity)[:8]}")


def routing(**without: Any) -> dict[str, Any]:
    return {"routing": {"policy": "usual", **without}}


NEWS, MIT = Target(classes=("licensed/news",)), Target(classes=("open/mit", "open"))


def test_only_what_is_left_out_differs() -> None:
    old = record({"mixup": {}}, routing(without=[]), {"recorder": {}})
    new = counterfactual(old, NEWS)
    assert new.identity["recipe"]["methods"] == [
        {"mixup": {}},
        routing(without=["licensed/news"], without_authorities=[], without_records=[]),
        {"recorder": {}},
    ]
    assert new.run_id == f"{old.run_id[:-8]}{digest(new.identity)[:8]}" != old.run_id
    common = {name: value for name, value in new.identity.items() if name not in ("ssr", "seed")}
    assert (new.recipe_digest, new.sweep) == (digest(common), "deletions")
    names = [field.name for field in fields(RunRecord)]
    unlike = {"run_id", "identity", "recipe_digest", "sweep"}
    assert all(getattr(new, name) == getattr(old, name) for name in names if name not in unlike)


def test_one_after_the_other_in_either_order_is_one_run() -> None:
    old, records = record(routing()), Target(records=(9, 2))
    one = counterfactual(counterfactual(counterfactual(old, NEWS), MIT), records)
    other = counterfactual(counterfactual(counterfactual(old, records), MIT), NEWS)
    assert one == other
    found = left_out(one)
    assert (found.classes, found.records) == (("licensed/news", "open", "open/mit"), (2, 9))


def test_what_is_left_out_already_cannot_be_deleted() -> None:
    new = counterfactual(record(routing()), NEWS)
    with pytest.raises(RunError, match="leaves out licensed/news already: there is nothing to delete"):
        counterfactual(new, NEWS)


def test_what_routes_nothing_can_leave_nothing_out() -> None:
    with pytest.raises(RunError, match="its recipe has no 'routing'"):
        counterfactual(record({"mixup": {}}), NEWS)


@pytest.mark.parametrize("methods", [[["routing"]], ["routing"], [{"routing": 3}], [{"routing": {}, "mixup": {}}]])
def test_a_damaged_identity_is_named(methods: Any) -> None:
    with pytest.raises(RunError, match="damaged"):
        counterfactual(record(*methods), NEWS)


@pytest.mark.parametrize(
    "given", [{"without": [3]}, {"without": "all"}, {"without_records": ["x"]}, {"without_records": [-1]}, 3, None]
)
def test_a_damaged_routing_is_refused_with_its_run(given: object) -> None:
    """Whoever wrote the record of a run, it ends in one error."""
    identity = {"recipe": {"methods": [{"routing": given}]}}
    for record in (LoopRecord(run_id="mine", identity=identity), replace(run_record(), identity=identity)):
        with pytest.raises(RunError, match="damaged"):
            counterfactual(record, Target(classes=("open",)))


def test_a_loops_name_is_that_of_a_directory(tmp_path: Path) -> None:
    for name in ("../elsewhere", "", ".hidden", "a/b", "x" * 200, "a\n"):
        value = {"format": "explorer/loop/v1", "run_id": name, "identity": {}}
        (tmp_path / "loop.json").write_text(json.dumps(value))
        with pytest.raises(RunError, match="run_id"):
            read_plan(tmp_path)


def test_the_name_of_a_loop_without_a_target_follows_from_its_own() -> None:
    """Of a deletion of a deletion too: only the digest behind the name is another one."""
    identity = {"recipe": {"methods": [{"routing": {"policy": "p"}}]}, "steps": 3, "seed": 0}
    first = counterfactual(LoopRecord(run_id="mine-12345678", identity=identity), Target(classes=("open",)))
    second = counterfactual(first, Target(classes=("open/mit",)))
    assert first.run_id == f"mine-12345678-{digest(first.identity)[:8]}"
    assert second.run_id == f"mine-12345678-{digest(second.identity)[:8]}" != first.run_id
