"""Records: they come back as they were, and everything else is refused by key and fault."""

import json
import re
from dataclasses import FrozenInstanceError, asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from explorer import run_files
from explorer.errors import RunError
from explorer.run_files import (
    METRICS,
    FailureRecord,
    Hardware,
    Metric,
    PhaseProfile,
    ProfileRecord,
    ResultRecord,
    RunRecord,
    Timings,
    Validation,
    Watch,
)

CPU = Hardware(device="cpu", name="a processor", threads=1)
RUN = RunRecord(
    run_id="m-d-r-ssr1-s0-00000000",
    sweep="s",
    recipe="r",
    baseline="b",
    tuning=None,
    identity={"seed": 0, "nested": [1.5, None, "x"]},
    recipe_digest="0" * 64,
    dataset="d",
    model="m",
    methods=("a", "b"),
    ssr=1.0,
    seed=0,
    steps=3,
    batch_size=8,
    precision="fp32",
    hardware=CPU,
    quality="accuracy",
    phases={"all steps": 3},
)
RESULT = ResultRecord(
    run_id=RUN.run_id,
    metrics={"accuracy": 0.5, "nll": 1 / 3},
    steps=3,
    examples=24,
    timings=Timings(forward=0.1, warmup=0.2, evaluation=3.0),
    timed_steps=2,
    contended=False,
    resumed=1,
    state_digest="1" * 64,
    files={"metrics.jsonl": "2" * 64},
    finished_at="2026-11-21T12:00:00Z",
)
FAILURE = FailureRecord(run_id=RUN.run_id, kind="timeout", message="it took too long", attempts=2, failed_at="now")
PROFILE = ProfileRecord(
    recipe_digest="0" * 64,
    recipe="r",
    hardware=CPU,
    torch="2.13.0",
    phases={"all steps": PhaseProfile(seconds=0.2, low=0.1, high=0.3, windows=7, split={"forward": 0.1})},
    inference_seconds=0.001,
    made_at="2026-11-21T12:00:00Z",
)
ROUNDS = PhaseProfile(seconds=0.2, low=0.1, high=0.3, windows=3, rounds=(0.1, 0.2, 0.3), ratios=(1.0, 0.9, 1.0))
WATCHED = replace(
    PROFILE,
    phases={"all steps": ROUNDS},
    inference_rounds=(0.0009, 0.001, 0.0012),
    profile_pass="p1",
    builds=3,
    watch=Watch(cores=2, load=1.5, others=None, stolen=0.1, repeated=4, disturbed=1, reasons=("others",)),
)
ALL = (RUN, RESULT, FAILURE, PROFILE, WATCHED)


def test_a_profile_of_an_older_version_is_read_and_nobody_looked(tmp_path: Path) -> None:
    old = run_files.to_json(PROFILE)
    for key in ("profile_pass", "builds", "watch", "inference_rounds"):
        del old[key]
    for key in ("rounds", "ratios"):
        del old["phases"]["all steps"][key]
    found = run_files.from_json(ProfileRecord, old, where="old.json")
    assert found == PROFILE and found.busy is None


def test_whether_a_machine_was_busy_follows_from_the_reasons() -> None:
    assert WATCHED.watch is not None and WATCHED.busy is True
    assert replace(WATCHED, watch=replace(WATCHED.watch, reasons=())).busy is False


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"rounds": (0.1, 0.2)}, "found 2 rounds; expected 3"),
        ({"rounds": (0.1, 0.0, 0.2)}, "each above 0 s"),
        ({"ratios": (1.0,)}, "found 1 ratios"),
        ({"ratios": (1.0, -0.1, 1.0)}, "none below 0"),
    ],
)
def test_rounds_that_are_none_are_refused(changed: dict[str, Any], fault: str) -> None:
    profile = replace(WATCHED, phases={"all steps": replace(ROUNDS, **changed)})
    with pytest.raises(RunError, match=fault):
        run_files.check_profile(profile, where="x")


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_they_come_back_as_they_were(record: Any, tmp_path: Path) -> None:
    run_files.write(tmp_path / "r.json", record)
    assert run_files.read(type(record), tmp_path / "r.json") == record
    assert run_files.from_json(type(record), run_files.to_json(record), where="x") == record


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_they_are_frozen(record: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(record, fields(record)[0].name, 2)


def changed(record: Any, path: str, value: Any) -> Any:
    """The record's JSON with one value changed, or taken away."""
    result = json.loads(json.dumps(run_files.to_json(record)))
    *parents, last = path.split(".")
    inner = result
    for parent in parents:
        inner = inner[parent]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return result


REFUSED: dict[str, tuple[Any, str, Any, str]] = {
    "missing": (RUN, "seed", ..., "seed: is missing"),
    "unknown": (RUN, "extra", 1, "extra: unknown key; known: baseline, "),
    "text for a number": (RUN, "steps", "3", "steps: input should be a valid integer"),
    "truth for a number": (RUN, "steps", True, "steps: input should be a valid integer"),
    "number for a text": (RUN, "sweep", 3, "sweep: input should be a valid string"),
    "number for a truth": (RESULT, "contended", 0, "contended: input should be a valid boolean"),
    "another format": (RESULT, "format", 2, "format: input should be 1"),
    "infinite": (RESULT, "metrics.nll", float("inf"), "metrics.nll: input should be a finite number"),
    "not a number": (RESULT, "metrics.nll", float("nan"), "metrics.nll: input should be a finite number"),
    "deep inside": (RUN, "hardware.device", "tpu", "hardware.device: input should be 'cpu' or 'cuda'"),
    "unknown inside": (RESULT, "timings.sleep", 1.0, "timings.sleep: unknown key; known: backward, "),
    "unknown kind": (FAILURE, "kind", "bored", "kind: input should be 'exception'"),
    "phase without time": (PROFILE, "phases.all steps.seconds", ..., "phases.all steps.seconds: is missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_file_key_and_fault(name: str) -> None:
    record, path, value, message = REFUSED[name]
    with pytest.raises(RunError) as caught:
        run_files.from_json(type(record), changed(record, path, value), where="runs/x/run.json")
    assert str(caught.value).startswith(f"runs/x/run.json: damaged {type(record).__name__}: {message}")


@pytest.mark.parametrize("value", [[], 1, None, "text"])
def test_no_object_at_all(value: Any) -> None:
    with pytest.raises(RunError, match="x: damaged RunRecord: the whole: "):
        run_files.from_json(RunRecord, value, where="x")


def test_training_time_leaves_out_what_is_no_training() -> None:
    seconds = Timings(**{name: 2.0**power for power, name in enumerate(asdict(Timings()))})
    apart = seconds.warmup + seconds.compile + seconds.evaluation + seconds.checkpoint
    assert seconds.training() == sum(asdict(seconds).values()) - apart
    assert Timings(warmup=1, compile=1, evaluation=1, checkpoint=1).training() == 0


def test_metrics_have_a_direction_and_a_unit() -> None:
    assert all(name == metric.name and metric.unit for name, metric in METRICS.items())
    assert METRICS["accuracy"].higher_is_better and not METRICS["nll"].higher_is_better


def test_a_profile_is_named_by_recipe_and_hardware() -> None:
    others = [
        replace(PROFILE, recipe_digest="1" * 64),
        replace(PROFILE, hardware=replace(CPU, threads=2)),
    ]
    assert len({record.key for record in (PROFILE, *others)}) == 3
    assert replace(PROFILE, made_at="later", recipe="another name").key == PROFILE.key


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("phases", {}, "the profile has no phase"),
        ("phases.all steps.seconds", -0.2, "phase 'all steps': found -0.2 s a step"),
        ("phases.all steps.low", 0.25, "quartiles 0.25 and 0.3; expected 0 < low <= seconds <= high"),
        ("phases.all steps.high", 0.15, "quartiles 0.1 and 0.15"),
        ("phases.all steps.high", 1e300, "phase 'all steps': found 1e+300 s a step, expected at most 1e+06 s"),
        ("phases.all steps.rounds", [0.2] * 6 + [1e300], "found 1e+300 s a step, expected at most"),
        ("phases.all steps.split.forward", 1e300, "found 1e+300 s a step, expected at most"),
        ("builds", 0, "builds: found 0, expected 1 or more"),
        ("phases.all steps.windows", 0, "expected one window at least"),
        ("phases.all steps.split.forward", -1.0, "no part below 0 s"),
        ("inference_seconds", 0.0, "inference: found 0; expected seconds above 0"),
        ("inference_rounds", [0.001] * 6, "inference: found 6 rounds for 0.001 s; expected 7, each above 0 s"),
        ("inference_rounds", [0.001] * 6 + [0.0], "expected 7, each above 0 s"),
        ("inference_rounds", [0.01] * 7, "with that time between the least and the largest"),
        ("inference_seconds", 1e300, "inference: found 1e+300; expected seconds above 0 and at most 1e+06"),
        ("evaluation_seconds", -1.0, "evaluation: found -1"),
        ("checkpoint_seconds", -1.0, "checkpoint: found -1"),
        ("validation.measured", 0.0, "measured: found 0"),
    ],
)
def test_a_profile_whose_times_are_none_is_refused(path: str, value: Any, message: str, tmp_path: Path) -> None:
    whole = replace(PROFILE, validation=Validation(steps=3, predicted=0.6, measured=0.5))
    file = tmp_path / "p.json"
    run_files.write(file, whole)
    assert run_files.read_profile(file) == whole
    file.write_text(json.dumps(changed(whole, path, value)))
    with pytest.raises(RunError) as caught:
        run_files.read_profile(file)
    assert str(caught.value).startswith(f"{file}: ") and message in str(caught.value)


def test_a_prediction_that_is_too_long_has_a_ratio_above_one() -> None:
    assert Validation(steps=3, predicted=0.75, measured=0.5).ratio == 1.5


def test_a_record_is_read_from_a_file_that_nobody_may_write(tmp_path: Path) -> None:
    run_files.write(tmp_path / "r.json", RUN)
    (tmp_path / "r.json").chmod(0o400)
    assert run_files.read(RunRecord, tmp_path / "r.json") == RUN


def test_a_metric_writes_its_values_and_differences_by_unit_or_format() -> None:
    fraction = METRICS["accuracy"]
    assert (fraction.show(0.98765), fraction.difference(0.012), fraction.title()) == (
        "98.77%",
        "+1.20 points",
        "accuracy",
    )
    nll = METRICS["nll"]
    assert (nll.show(0.12345), nll.difference(-0.5), nll.title("log scale")) == (
        "0.1235 nats",
        "-0.5000 nats",
        "nll (nats, log scale)",
    )
    plain = Metric(name="perplexity", higher_is_better=False)
    assert (plain.show(23.4567), plain.difference(-1.5), plain.title()) == ("23.46", "-1.5000", "perplexity")
    own = Metric(name="f1", unit="fraction", higher_is_better=True, format=".3f")
    assert (own.show(0.9123), own.difference(0.012), own.bounded, own.percent) == ("0.912", "+0.012", True, False)
    assert Metric(name="x", higher_is_better=True, format=".0%").number(0.126, sign="+") == "+13"


def test_a_run_knows_its_own_metrics_and_those_of_all() -> None:
    """What all know cannot be declared otherwise by a forged record; an old record declares nothing."""
    mine = Metric(name="my_f1", higher_is_better=True)
    forged = Metric(name="accuracy", unit="1", higher_is_better=False)
    run = replace(RUN, declared=(mine, forged))
    assert run.metric("my_f1") == mine and run.metric("accuracy") == METRICS["accuracy"] and run.metric("f2") is None
    old = run_files.to_json(RUN)
    del old["declared"], old["functions"]
    assert run_files.from_json(RunRecord, old, where="x") == RUN


def test_no_other_file_compares_a_unit_with_fraction() -> None:
    # `explorer results` shows metrics without pydantic, so `cli/results.py` cannot import `run_files`.
    own = {Path("explorer/run_files.py"), Path("explorer/cli/results.py")}
    files = [path for path in Path("explorer").rglob("*.py") if path not in own]
    pattern = re.compile(r"""(==|!=|\bin) *\(?[^)\n]{0,20}["']fraction["']""")
    assert len(files) > 300
    assert [path.as_posix() for path in files if pattern.search(path.read_text())] == []
    assert pattern.search('title = metric if unit in (None, "1", "fraction") else ""'), "the control"
    assert pattern.search("scale = 100 if unit == 'fraction' else 1"), "the control"
