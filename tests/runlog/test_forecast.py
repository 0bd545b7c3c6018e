"""The forecast of a deletion: level, starting state, steps, seconds with their interval, and obstacles."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.costing import Duration
from explorer.entries.fields import LedgerState, write_float
from explorer.entries.kinds import Genesis, Parent
from explorer.errors import RunError
from explorer.provenance.commitments import destroy_salt, new_salts, write_salts
from explorer.provenance.policy import Rule
from explorer.provenance.regions import SealedRegion
from explorer.run_files import PhaseProfile, RunRecord, Timings
from explorer.runlog.forecast import DRIFT, MEAN, START, UNMEASURED, Forecast, forecast, kept, replay_time, replayed
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target, resolve
from tests.audit.governed_run import MIT, NEWS, OPEN, ROWS, policy, sign_again, write_governed_run
from tests.builders import change_result, with_identity, write_profile
from tests.deletion.deleted_runs import SEALED, write_old
from tests.governed_sample import CLASSES, STEPS
from tests.governed_sample import write_governed_run as write_sample

PHASE = {
    name: PhaseProfile(seconds=each, low=0.9 * each, high=1.2 * each, windows=7)
    for name, each in (("a", 1.0), ("b", 3.0))
}


def of_class(run: Path, path: str, *, step: Duration | None = None) -> Forecast:
    ledger = RunLedger(run)
    return forecast(ledger, resolve(ledger, class_=path), step=step)


def keep(run: Path, step: int, *, whole: bool = True) -> None:
    """A checkpoint that stays, as far as its names go."""
    (run / rundir.KEPT).mkdir(exist_ok=True)
    (run / rundir.KEPT / f"step-{step:08d}.json").write_text("{}")
    if whole:
        (run / rundir.KEPT / f"step-{step:08d}.safetensors").touch()


def test_levels_and_starts_under_every_kind_of_policy(tmp_path: Path) -> None:
    run = write_sample(tmp_path)
    keep(run, 16)
    open_, late, _, sealed, nowhere = (of_class(run, path).route for path in CLASSES)
    assert (open_.level, open_.start, open_.steps) == ("G3", 0, STEPS)
    assert (late.level, late.start, late.steps) == ("G3", 16, STEPS - 16)
    assert (sealed.level, sealed.start, sealed.steps, sealed.dropped) == ("G2", STEPS, 0, ("customer",))
    assert (nowhere.level, nowhere.steps, nowhere.dropped) == ("G2", 0, ())
    assert open_.share == pytest.approx(9 / 31, rel=0.05)  # of the slots that anybody to be believed vouches for


def test_a_checkpoint_after_the_first_influence_is_no_start(tmp_path: Path) -> None:
    run = write_sample(tmp_path)
    keep(run, 17)
    assert of_class(run, CLASSES[1]).route.start == 0
    keep(run, 12)
    assert of_class(run, CLASSES[1]).route.start == 12
    keep(run, 16, whole=False)
    (run / rundir.KEPT / "step-x.json").touch()
    assert kept(run) == (12, 17)
    assert of_class(run, CLASSES[1]).route.start == 12


def test_a_class_that_shares_its_region_is_not_dropped(tmp_path: Path) -> None:
    region = SealedRegion(name="all", branch="open", module="head")
    run = write_governed_run(tmp_path, policy=replace(policy(Rule(classes=(NEWS,), weight=1.0)), sealed=(region,)))
    assert of_class(run, MIT).route.level == "G3"
    assert (of_class(run, OPEN).route.level, of_class(run, OPEN).route.dropped) == ("G2", ("all",))


def test_a_measured_run_has_seconds_and_no_interval(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    change_result(run, contended=False)
    found = of_class(run, MIT)
    assert (found.time.source, found.time.low, found.time.high, found.time.words) == ("measured", None, None, MEAN)
    assert found.time.seconds is not None and START.seconds < found.time.seconds < START.seconds + 12 * 0.01 + 1


def test_a_run_among_others_that_was_never_profiled_has_neither(tmp_path: Path) -> None:
    found = of_class(write_governed_run(tmp_path), MIT)  # its timings are those of a busy machine
    assert (found.time.seconds, found.time.low, found.time.source, found.time.words) == (None, None, None, UNMEASURED)


def test_a_profile_gives_an_interval_that_holds_the_run_itself(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    record = run_files.read(RunRecord, run / rundir.RUN)
    write_profile(tmp_path, record, seconds=10.0)
    quiet = of_class(run, MIT).time
    share = of_class(run, MIT).route.share
    assert quiet.seconds is not None and quiet.low is not None and quiet.high is not None
    assert quiet.seconds == pytest.approx(START.seconds + 12 * 10 * (1 - share), rel=0.01)
    assert quiet.low == pytest.approx(START.low + 12 * 9 * (1 - share) / DRIFT)
    assert quiet.high >= START.high + 12 * 12 * DRIFT
    change_result(run, contended=False, timings=Timings(forward=12 * 30.0), timed_steps=12)
    own = of_class(run, MIT).time
    assert own.high is not None and own.high >= START.high + 12 * 30 * DRIFT and own.low == quiet.low


def test_the_profile_of_another_recipe_or_machine_is_none(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    record = run_files.read(RunRecord, run / rundir.RUN)
    write_profile(tmp_path, replace(record, recipe_digest="0" * 64))
    write_profile(tmp_path, replace(record, hardware=replace(record.hardware, threads=7)))
    assert of_class(run, MIT).time.source is None


def test_steps_measured_now_hold_instead(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    write_profile(tmp_path, run_files.read(RunRecord, run / rundir.RUN), seconds=10.0)
    time = of_class(run, MIT, step=Duration(seconds=2.0, low=1.0, high=3.0)).time
    assert time.seconds is not None and time.seconds == pytest.approx(START.seconds + 24, abs=1)
    assert time.low == START.low + 12 / DRIFT and time.words.startswith("by steps measured now")


@pytest.mark.parametrize(
    ("phases", "steps", "expected"),
    [
        ({"a": 10, "b": 10}, 20, (40.0, 36.0, 48.0)),
        ({"a": 10, "b": 10}, 5, (10.0, 4.5, 18.0)),  # all of them cheap, and all of them dear
        ({"a": 10, "b": 2}, 4, (4 * 16 / 12, 3.6, 2 * 3.6 + 2 * 1.2)),
        ({"a": 10, "b": 0}, 10, (10.0, 9.0, 12.0)),
        ({"a": 10}, 0, (0.0, 0.0, 0.0)),
    ],
)
def test_phases_left_to_replay_are_bounded(phases: Mapping[str, int], steps: int, expected: tuple[float, ...]) -> None:
    found = replayed(phases, PHASE, steps)
    assert (found.seconds, found.low, found.high) == pytest.approx(expected)


def test_dropping_takes_a_start_and_no_more(tmp_path: Path) -> None:
    time = of_class(write_sample(tmp_path), CLASSES[3]).time
    assert (time.seconds, time.low, time.high, time.source) == (START.seconds, START.low, START.high, "structure")


def test_a_custom_loop_has_no_time(tmp_path: Path) -> None:
    assert replay_time(tmp_path, steps=3, share=0.0).words == UNMEASURED


def test_damaged_records_are_told(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    (run / rundir.RESULT).write_text("{}")
    with pytest.raises(RunError, match=r"result\.json"):
        of_class(run, MIT)


def test_what_is_in_the_way(tmp_path: Path) -> None:
    unfinished = write_governed_run(tmp_path / "a", finished=False)
    assert of_class(unfinished, MIT).obstacles[0] == "the ledger has no end: the run is unfinished"
    assert of_class(unfinished, MIT).level is None
    run = write_governed_run(tmp_path / "b")
    record = run_files.read(RunRecord, run / rundir.RUN)
    run_files.write(run / rundir.RUN, replace(record, methods=("label_smoothing",)))
    with pytest.raises(RunError, match=r"methods is \['label_smoothing'\], its identity says \['routing'"):
        of_class(run, MIT)
    run_files.write(run / rundir.RUN, replace(record, identity={**record.identity, "seed": 7}))
    assert any("names another recipe" in each for each in of_class(run, MIT).obstacles)
    (run / rundir.RUN).unlink()
    assert any("there is neither run.json" in each for each in of_class(run, MIT).obstacles)


def test_without_its_model_or_its_signer_nothing_is_dropped(tmp_path: Path) -> None:
    run = write_old(tmp_path, SEALED)
    key = run.parent / "trainer.pem"
    (said,) = of_class(run, NEWS).obstacles
    assert said == f"{key}: missing: the new ledger cannot be signed"
    key.touch()
    assert (of_class(run, NEWS).obstacles, of_class(run, NEWS).level) == ((), "G2")
    (run / rundir.MODEL / "model.safetensors").unlink()
    (said,) = of_class(run, NEWS).obstacles
    assert said.endswith("missing: there is no model to drop a region from")


def test_what_the_model_before_it_learned_is_deleted_there_first(tmp_path: Path) -> None:
    run = write_old(tmp_path, SEALED)
    (run.parent / "trainer.pem").touch()
    state = LedgerState(origin="example.com/base", size=1, root="0" * 64)

    def child(weight: float) -> None:
        admitted = {"licensed": write_float(weight)}
        parent = Parent(kind="model", ledger=state, model="1" * 64, attestation="2" * 64, admitted=admitted)
        sign_again(run, lambda _, e: replace(e, parents=(parent,)) if isinstance(e, Genesis) else e)

    child(0.5)
    assert of_class(run, NEWS).obstacles == (
        "the model that the run began with was trained on licensed: delete it there first",
    )
    child(0.0)
    assert of_class(run, NEWS).obstacles == ()


def test_records_of_a_sealed_class_take_a_replay(tmp_path: Path) -> None:
    ledger = RunLedger(write_sample(tmp_path))
    assert forecast(ledger, Target(records=(3,))).route.level == "G3"  # others live in the region


def test_records_erased_since_are_an_obstacle_unless_left_out(tmp_path: Path) -> None:
    def said(*without: int) -> list[str]:
        run = tmp_path / str(len(without))
        made = write_governed_run(run)
        record = run_files.read(RunRecord, made / rundir.RUN)
        methods = [{"routing": {"policy": "half-depth", "without_records": [*without]}}]
        identity = {**record.identity, "recipe": {"methods": methods}}
        run_files.write(made / rundir.RUN, with_identity(record, identity))
        sign_again(made, lambda _, e: replace(e, recipe=digest(identity)) if isinstance(e, Genesis) else e)
        private = made.parent
        (private / "trainer.pem").touch()
        write_salts(private / "salts", new_salts(ROWS))
        for row in (3, 19):  # 19 is in quarantine: it never trained
            destroy_salt(private / "salts", row)
        ledger = RunLedger(made)
        return [*forecast(ledger, Target(records=(6,))).obstacles]

    assert said() == ["1 records were erased since the run, first record 3: delete them first, or as well"]
    assert said(3) == []
