"""A sweep can be planned on one machine for another: the same runs, which only that other machine executes."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from explorer import run_files, rundir, schema
from explorer.campaign.tune import tuning_plan
from explorer.errors import RunError, SpecError, SweepError
from explorer.recipes.machine import this_machine
from explorer.run_files import RunRecord
from explorer.sweep.confirm import check_same, confirmation, written
from explorer.sweep.execute import Settings, profile_sweep, run_sweep
from explorer.sweep.on_key import HERE
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import load_spec, read_spec
from explorer.training.run import build_loop
from explorer.yaml_document import parse_document
from tests.pretended_machines import CODE, H200, pretend
from tests.sweep.sweeps import SPEC, execute, plan, spec
from tests.sweep.test_commands import SHELL
from tests.sweep.test_commands import SPEC as COMMAND
from tests.sweep.test_plan import profile_of


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    """What `explorer probe --json` printed on a machine with an H200."""
    path = tmp_path / "hosts" / "h200.json"
    with pytest.MonkeyPatch.context() as patch:
        rundir.write_json(path, schema.to_json(pretend(patch, **H200)))
    return path


def planned_on(directory: Path, content: dict[str, Any], **machine: str) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, **machine)
        return plan(directory, content)


def records(planned: Plan) -> list[RunRecord]:
    return [run.record for run in planned.runs]


def test_this_machine_does_not_decide_the_precision_of_another(tmp_path: Path, probe: Path) -> None:
    content = spec(train={**SPEC["train"], "precision": "auto"})
    assert plan(tmp_path, content).notes
    with pytest.raises(SpecError, match=r"train\.precision: auto follows this machine, and `on` has others: name a"):
        plan(tmp_path, {**content, "on": [{"probe": str(probe)}]})


def test_a_plan_for_another_machine_has_the_runs_that_this_machine_would_plan(tmp_path: Path, probe: Path):
    here = plan(tmp_path)
    there = planned_on(tmp_path, SPEC, **H200)
    remote = plan(tmp_path, spec(on=[{"probe": str(probe)}]))
    assert records(remote) == records(there)
    assert {record.run_id for record in records(remote)}.isdisjoint(record.run_id for record in records(here))
    assert remote.to_json()["runs"] == there.to_json()["runs"]
    assert remote.to_json()["machine"] == schema.to_json(there.target.machine)
    assert remote.why_not_here is not None and here.why_not_here is None


def test_the_key_changes_no_run_of_a_sweep_for_this_machine(tmp_path: Path):
    name = this_machine().hardware.name
    named = plan(tmp_path, spec(on=[{"name": name}]))
    assert records(named) == records(plan(tmp_path))
    assert named.target.known == HERE


def test_a_probe_is_found_next_to_the_specification_or_by_its_name(tmp_path: Path, probe: Path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(spec(on=[{"probe": "hosts/h200.json"}])))
    by_file = make_plan(load_spec(path), runs=tmp_path / "runs")
    (tmp_path / "runs" / rundir.PROBES).mkdir(parents=True)
    shutil.copy(probe, tmp_path / "runs" / rundir.PROBES / "a.json")
    by_name = plan(tmp_path / "runs", spec(on=[{"name": "NVIDIA H200"}]))
    assert records(by_name) == records(by_file)
    assert by_name.target.known.endswith("_probes/a.json")


def test_two_probes_of_a_name_that_differ_in_software_are_not_chosen_from(tmp_path: Path, probe: Path):
    place = tmp_path / "runs" / rundir.PROBES
    rundir.write_json(place / "a.json", rundir.read_json(probe))
    rundir.write_json(place / "b.json", rundir.read_json(probe) | {"cores": 7, "devices": 3})
    content = spec(on=[{"name": "NVIDIA H200"}])
    assert plan(tmp_path / "runs", content).runs  # more cores are no other class
    rundir.write_json(place / "b.json", rundir.read_json(probe) | {"training_code": CODE})
    with pytest.raises(SpecError, match=r"spec: on\[0\]\.name: .*a\.json, .*b\.json have 'NVIDIA H200' with different"):
        plan(tmp_path / "runs", content)


def test_an_unknown_machine_is_an_error_that_says_how_to_make_it_known(tmp_path: Path, probe: Path):
    rundir.write_json(tmp_path / "runs" / rundir.PROBES / "a.json", rundir.read_json(probe))
    with pytest.raises(SpecError) as caught:
        plan(tmp_path / "runs", spec(on=[{"name": "NVIDIA H20"}]))
    words = str(caught.value)
    assert words.startswith("spec: on[0].name: unknown hardware 'NVIDIA H20'; did you mean 'NVIDIA H200'? known: ")
    assert this_machine().hardware.name in words and "run `explorer probe --json` there" in words


@pytest.mark.parametrize(
    ("on", "fault"),
    [
        (None, r"on: found None, expected a list of classes"),
        ([], r"on: found \[\], expected a list of classes"),
        ("NVIDIA H200", r"on: found 'NVIDIA H200', expected a list of classes"),
        ([{"name": "A"}] * 21, r"on: found 21 classes, expected at most 20"),
        ([{"name": "A"}, "B"], r"on\[1\]: found 'B', expected \{name: HARDWARE\}"),
        (["NVIDIA H200"], r"on\[0\]: found 'NVIDIA H200', expected \{name: HARDWARE\}"),
        ([{"name": "A", "probe": "b"}], r"on\[0\]: found "),
        ([{"host": "A"}], r"on\[0\]\.host: unknown key 'host'; known: name, probe"),
        ([{"name": 3}], r"on\[0\]\.name: found 3, expected the name of some hardware"),
        ([{"name": "a\x1b[2J"}], r"on\[0\]\.name: found 'a\\x1b\[2J'"),
        ([{"probe": ""}], r"on\[0\]\.probe: found '', expected a file"),
        ([{"probe": "x" * 201}], r"on\[0\]\.probe: found 'x"),
    ],
)
def test_what_is_no_class(on: Any, fault: str):
    with pytest.raises(SpecError, match=rf"spec: {fault}"):
        load_spec(spec(on=on))


def test_a_damaged_probe_names_the_key_and_the_file(tmp_path: Path):
    (tmp_path / "h200.json").write_text("{}")
    with pytest.raises(SpecError, match=r"spec: on\[0\]\.probe: .*h200\.json: no output of `explorer probe --json`"):
        plan(tmp_path, spec(on=[{"probe": str(tmp_path / "h200.json")}]))
    with pytest.raises(SpecError, match=r"spec: on\[0\]\.probe: cannot read .*absent\.json"):
        plan(tmp_path, spec(on=[{"probe": str(tmp_path / "absent.json")}]))


def test_a_sweep_for_other_machines_does_not_begin_here(tmp_path: Path, probe: Path):
    runs = tmp_path / "runs"
    remote = plan(runs, spec(on=[{"probe": str(probe)}]))
    for act in (run_sweep, profile_sweep):
        with pytest.raises(SweepError, match="this machine does not execute the sweep: planned for NVIDIA H200"):
            act(remote, Settings(engine="inline", workers=1, profile=False))
    assert not runs.exists()


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"torch": "2.12.0"}, "planned for torch 2.12.0, and this machine has torch 2"),
        ({"build": "2.13.0, commit 1"}, "planned for another build of torch: 2.13.0, commit 1"),
        ({"code": CODE}, "planned with training code of digest 00000000"),
    ],
)
def test_other_software_on_the_same_hardware_is_another_class(tmp_path: Path, other: dict[str, str], reason: str):
    path = tmp_path / "probe.json"
    with pytest.MonkeyPatch.context() as patch:
        rundir.write_json(path, schema.to_json(pretend(patch, **other)))
    remote = plan(tmp_path, spec(on=[{"probe": str(path)}]))
    assert remote.why_not_here is not None and remote.why_not_here.startswith(reason)
    # Build and code are no part of a run's identity: its name stays.
    same_names = [record.run_id for record in records(remote)] == [run.record.run_id for run in plan(tmp_path).runs]
    assert same_names == ("torch" not in other)


def test_a_worker_of_another_class_does_not_begin_a_run(tmp_path: Path, probe: Path):
    run = plan(tmp_path, spec(on=[{"probe": str(probe)}])).runs[0]
    with pytest.raises(RunError, match=r"planned for NVIDIA H200 .*: plan it again here"):
        build_loop(run.record, data=None)
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, **H200)
        assert build_loop(run.record, data=None).state.step == 0


def test_a_tuning_and_a_confirmation_are_for_the_machine_of_their_sweep(tmp_path: Path, probe: Path):
    """Both write specifications of their own, elsewhere than where the path of the probe begins."""
    path, runs = tmp_path / "tiny.yaml", tmp_path / "runs"
    asked = spec(
        on=[{"probe": "hosts/h200.json"}], tune={"space": {"lr": [0.01, 1]}, "runs": 2, "budget": 1, "seeds": [9]}
    )
    path.write_text(yaml.safe_dump(asked))
    tuning = tuning_plan(load_spec(path), runs=runs, data=None)
    path.write_text(yaml.safe_dump(asked := spec(on=[{"probe": "hosts/h200.json"}])))
    sweep = make_plan(load_spec(path), runs=runs)
    rundir.write_json(sweep.directory / rundir.SWEEP, sweep.to_json())
    content = confirmation(runs, "tiny", "mixed")
    assert content["on"] == [{"probe": "../hosts/h200.json"}]
    confirming = read_spec(parse_document(written(content, recipe="mixed", of="tiny"), where=str(runs / "c.yaml")))
    confirmed = make_plan(confirming, runs=runs)
    check_same(confirmed, sweep.to_json())
    for planned in (tuning, sweep, confirmed):
        assert {record.hardware.name for record in records(planned)} == {"NVIDIA H200"}
        assert planned.target.machine == sweep.target.machine


def test_a_command_is_planned_for_another_machine_with_the_software_of_this_one(tmp_path: Path, probe: Path):
    (tmp_path / "train.sh").write_text(SHELL)
    content = COMMAND | {"on": [{"probe": "hosts/h200.json"}]}
    (tmp_path / "shell.yaml").write_text(yaml.safe_dump(content))
    remote = make_plan(load_spec(tmp_path / "shell.yaml"), runs=tmp_path / "runs")
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, **H200)
        assert records(make_plan(load_spec(tmp_path / "shell.yaml"), runs=tmp_path / "runs")) == records(remote)
    with pytest.raises(SweepError, match="this machine does not execute the sweep: planned for NVIDIA H200"):
        run_sweep(remote)


def test_runs_of_this_machine_are_not_left_out_of_a_plan_for_another(tmp_path: Path, probe: Path):
    own = records(plan(tmp_path))[0]
    run_files.write(tmp_path / "tiny" / own.run_id / rundir.RUN, own)
    assert plan(tmp_path, spec(on=[{"probe": str(probe)}])).left_out == ()
    left = plan(tmp_path, spec(on=[{"probe": str(probe)}], seeds=[7])).left_out  # the control: another specification
    assert [path.name for path in left] == [own.run_id]


def test_imported_profiles_of_the_class_give_a_plan_its_times(tmp_path: Path, probe: Path):
    content = spec(on=[{"probe": str(probe)}])
    remote = plan(tmp_path / "runs", content)
    assert [run.seconds for run in remote.runs] == [None] * 4
    for record, seconds in zip(records(remote)[:2], (0.001, 0.002), strict=True):
        made = replace(profile_of(record, seconds), effective=record.effective_digest)
        run_files.write(tmp_path / "runs" / rundir.PROFILES / f"{made.key}.json", made)
    timed = plan(tmp_path / "runs", content)
    assert [run.seconds for run in timed.runs] == [
        run.record.steps * s for run, s in zip(timed.runs, (0.001, 0.002) * 2, strict=True)
    ]
    assert {run.source for run in timed.runs} == {"profiled"}
    assert [run.seconds for run in plan(tmp_path / "runs").runs] == [None] * 4  # they are no times of this machine


def test_a_class_that_only_a_profile_knows_has_the_software_of_this_machine(tmp_path: Path):
    record = planned_on(tmp_path / "runs", SPEC, name="AMD EPYC 9999").runs[0].record
    made = profile_of(record, 0.001)
    path = tmp_path / "runs" / rundir.PROFILES / f"{made.key}.json"
    content = spec(on=[{"name": "AMD EPYC 9999"}])
    run_files.write(path, made)
    with pytest.raises(SpecError, match="only profiles by another torch than this one have 'AMD EPYC 9999'"):
        plan(tmp_path / "runs", content)
    run_files.write(path, replace(made, torch=str(this_machine().torch_build).partition(",")[0]))
    known = plan(tmp_path / "runs", content)
    assert known.runs[0].record == record
    assert known.target.known.endswith("; versions but torch's as on this machine")


@pytest.mark.slow
def test_a_class_is_known_by_the_newest_run_that_it_finished(tmp_path: Path):
    with pytest.MonkeyPatch.context() as patch:
        there = pretend(patch, name="AMD EPYC 9999", code=CODE)
        assert execute(tmp_path, spec(name="first", budgets=[0.5])).complete
    named = plan(tmp_path, spec(on=[{"name": "AMD EPYC 9999"}]))
    assert named.target.machine == replace(there, torch_build=None, cores=None, devices=None)
    assert records(named) == records(planned_on(tmp_path, SPEC, name="AMD EPYC 9999"))
    assert named.why_not_here is not None


@pytest.mark.slow
def test_what_is_planned_elsewhere_gives_the_bits_of_a_plan_made_there(tmp_path: Path):
    """The laptop plans by a probe; the machine that made the probe executes that plan, and one of its own."""
    there = {"name": "AMD EPYC 9999"}
    path = tmp_path / "there.json"
    with pytest.MonkeyPatch.context() as patch:
        rundir.write_json(path, schema.to_json(pretend(patch, **there)))
    remote = plan(tmp_path / "laptop", spec(on=[{"probe": str(path)}]))
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, **there)
        settings = Settings(engine="inline", workers=1, profile=False)
        assert run_sweep(remote, settings).complete
        assert execute(tmp_path / "there").complete
    digests = [
        {p.parent.name: rundir.read_json(p)["state_digest"] for p in (tmp_path / place / "tiny").glob("*/result.json")}
        for place in ("laptop", "there")
    ]
    assert digests[0] == digests[1] and len(digests[0]) == 4
