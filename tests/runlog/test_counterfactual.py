"""The record of the run that never had a target follows from the record of the one that had it."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from explorer.canonical import digest
from explorer.errors import RunError
from explorer.records import LoopRecord, RunRecord, read_plan
from explorer.runlog.counterfactual import counterfactual, left_out
from explorer.runlog.target import Target
from tests.builders import run_record, with_identity


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
