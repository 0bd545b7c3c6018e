"""The sweep that confirms a recipe: the same recipe to the last setting, on fresh seeds."""

from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.errors import SweepError
from explorer.sweep.confirm import check_same, confirmation, started, timed, written
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import MAX_NAME, SweepSpec, load_spec, read_spec
from explorer.yaml_document import parse_document
from tests.builders import run_record, write_profile, write_run
from tests.sweep.sweeps import SPEC, spec

RICH: dict[str, Any] = spec(
    recipes={
        "baseline": [],
        "fast": {"train": {"batch_size": 32}, "methods": [{"label_smoothing": {"smoothing": 0.2}}]},
        "choosy": [{"selective_backprop": {"start": 0.2, "end": 0.8}}],
    },
    compose={"each_of": ["ema"]},
    controls="twin",
    tuning="by hand: yes",
    seeds=[0, 1, 4],
)


def test_a_sweep_that_a_program_made_is_confirmed_by_that_program(tmp_path: Path) -> None:
    write_run(tmp_path, run_record(sweep="mine"))
    with pytest.raises(SweepError, match=r"mine: a program made its runs, by .* run it with fresh seeds"):
        started(tmp_path, "mine")
    with pytest.raises(SweepError, match="unknown sweep"):
        started(tmp_path, "other")


def start(runs: Path, content: dict[str, Any] = RICH, *, seeds: tuple[int, ...] | None = None) -> Path:
    """Leave what a started sweep leaves, without running it; the digests are made up from recipe and name only."""
    known = load_spec(content)
    entries = [
        {"run_id": f"{recipe.name}-s{seed}-{0:08x}", "recipe": recipe.name, "ssr": 1.0, "seed": seed}
        | {"recipe_digest": recipe.digest, "control": None}
        for recipe in known.recipes
        for seed in seeds or known.seeds
    ]
    plan = {"name": known.name, "source": known.source, "spec": content, "runs": entries}
    directory = runs / known.name
    rundir.write_json(directory / rundir.SWEEP, plan)
    return directory


def read(content: dict[str, Any], path: Path) -> SweepSpec:
    return read_spec(parse_document(written(content, recipe="fast", of="tiny"), where=str(path)))


@pytest.mark.parametrize("name", ["fast", "ema", "choosy"])
def test_it_is_the_same_recipe_with_the_same_baseline(tmp_path: Path, name: str) -> None:
    start(tmp_path)
    found = read(confirmation(tmp_path, "tiny", name), tmp_path / "x.yaml")
    before = load_spec(RICH)
    digests = {recipe.name: recipe.digest for recipe in before.recipes}
    assert {recipe.name: recipe.digest for recipe in found.recipes} == {
        each: digests[each] for each in ("baseline", name)
    }
    assert (found.name, found.baseline, found.controls) == (f"tiny-confirm-{name}", "baseline", None)
    assert (found.budgets, found.threads, found.tuning) == (before.budgets, before.threads, before.tuning)


def test_its_seeds_are_fresh(tmp_path: Path) -> None:
    directory = start(tmp_path)
    assert confirmation(tmp_path, "tiny", "fast")["seeds"] == [2, 3, 5]
    stranger = directory / "resnet8-digits-fast-ssr1-s3-0123abcd"  # of an earlier specification
    rundir.write_json(stranger / rundir.RUN, {})
    assert confirmation(tmp_path, "tiny", "fast")["seeds"] == [2, 5, 6]
    start(tmp_path, RICH | {"name": "by-hand", "seeds": [5, 6]})  # the same recipes in another sweep
    start(tmp_path, spec(name="another", seeds=[2], train=SPEC["train"] | {"epochs": 0.25}))
    assert confirmation(tmp_path, "tiny", "fast", seeds=2)["seeds"] == [2, 7]


def test_it_continues_with_the_seeds_that_it_began_with(tmp_path: Path) -> None:
    start(tmp_path)
    content = confirmation(tmp_path, "tiny", "fast", seeds=2)
    start(tmp_path, content)
    assert confirmation(tmp_path, "tiny", "fast", seeds=2) == content
    assert confirmation(tmp_path, "tiny", "fast", seeds=1) == content  # what was run is reported
    assert confirmation(tmp_path, "tiny", "fast", seeds=4)["seeds"] == [2, 3, 5, 6]
    start(tmp_path, seeds=(0, 2))  # by now the sweep itself has one of them
    with pytest.raises(SweepError, match="no longer fresh"):
        confirmation(tmp_path, "tiny", "fast", seeds=2)


def test_seeds_that_are_asked_for_after_a_result_are_a_sweep_of_their_own(tmp_path: Path) -> None:
    """Otherwise nothing would show that they were added after a look at the first ones."""
    start(tmp_path)
    content = confirmation(tmp_path, "tiny", "fast", seeds=2)
    directory = start(tmp_path, content)
    for run in rundir.read_json(directory / rundir.SWEEP)["runs"]:
        rundir.write_json(directory / run["run_id"] / rundir.RESULT, {"run_id": run["run_id"]})
    assert confirmation(tmp_path, "tiny", "fast", seeds=2) == content  # nothing more to run
    further = confirmation(tmp_path, "tiny", "fast", seeds=5)
    assert (further["name"], further["seeds"]) == ("tiny-confirm-fast-2", [5, 6, 7])
    start(tmp_path, further)
    assert confirmation(tmp_path, "tiny", "fast", seeds=5) == further


def test_long_names_are_bounded(tmp_path: Path) -> None:
    name = "a" * MAX_NAME
    start(tmp_path, spec(name=name, recipes={"baseline": [], "b" * MAX_NAME: ["ema"]}))
    found = read(confirmation(tmp_path, name, "b" * MAX_NAME), tmp_path / "x.yaml")
    assert len(found.name) == MAX_NAME and found.name.startswith("aaaa")


def test_texts_stay_texts_in_the_file(tmp_path: Path) -> None:
    """Names and words that YAML would take for something else."""
    start(
        tmp_path, spec(recipes={"baseline": [], "1e5": ["ema"], "no": ["mixup"]}, tuning="2026-01-01: 'x' # \u202e\n")
    )
    for name in ("1e5", "no"):
        content = confirmation(tmp_path, "tiny", name)
        text = written(content, recipe=name, of="tiny")
        assert parse_document(text, where="x").value == content and text.isascii()


def test_documents_are_seen_from_where_the_file_lies(tmp_path: Path) -> None:
    directory = start(tmp_path / "runs")
    plan = rundir.read_json(directory / rundir.SWEEP)
    plan["spec"] |= {"governance": "../governed"}
    rundir.write_json(directory / rundir.SWEEP, plan | {"source": str(tmp_path / "sweeps" / "tiny.yaml")})
    found = read(confirmation(tmp_path / "runs", "tiny", "fast"), tmp_path / "runs" / "x.yaml")
    assert found.governance is not None
    assert found.governance.resolve() == (tmp_path / "governed").resolve()


def test_a_baseline_or_a_control_cannot_be_confirmed(tmp_path: Path) -> None:
    start(tmp_path)
    for sweep, recipe, words in (
        ("tiny", "fest", "did you mean 'fast'"),
        ("tinny", "fast", "did you mean 'tiny'"),
        ("../tiny", "fast", "unknown sweep"),
        ("tiny", "baseline", "nothing to confirm"),
        ("tiny", "choosy-random", "is a control of choosy"),
    ):
        with pytest.raises(SweepError, match=words):
            confirmation(tmp_path, sweep, recipe)
    with pytest.raises(SweepError, match="from 1 to"):
        confirmation(tmp_path, "tiny", "fast", seeds=0)
    rundir.write_json(tmp_path / "tiny" / rundir.SWEEP, {"runs": 3})
    with pytest.raises(SweepError, match="damaged"):
        confirmation(tmp_path, "tiny", "fast")


def test_another_recipe_by_that_name_is_refused(tmp_path: Path) -> None:
    """The plan is compared with what was recorded: the digest covers code, data, machine and documents."""
    first = make_plan(load_spec(SPEC), runs=tmp_path)
    rundir.write_json(first.directory / rundir.SWEEP, first.to_json())
    for run in first.runs:
        rundir.write_json(run.directory / rundir.RUN, {"identity": run.record.identity})
    write_profile(tmp_path, next(run.record for run in first.runs if run.record.recipe == "mixed"), seconds=0.5)
    recorded = started(tmp_path, "tiny")
    fresh = make_plan(load_spec(confirmation(tmp_path, "tiny", "mixed")), runs=tmp_path)
    check_same(fresh, recorded)
    known = {run.record.recipe: run.seconds for run in timed(fresh, first.directory).runs if run.record.ssr == 1.0}
    assert known == {"baseline": None, "mixed": 7 * 0.5}

    for run in recorded["runs"]:
        run["recipe_digest"] = "0" * 64
    for run in first.runs:
        rundir.write_json(run.directory / rundir.RUN, {"identity": run.record.identity | {"data": "other"}})
    with pytest.raises(SweepError, match=r"'baseline' is not what it was in tiny.*changed since then: data$"):
        check_same(fresh, recorded)
    for run in first.runs:
        (run.directory / rundir.RUN).write_text("[]")
    with pytest.raises(SweepError, match="the difference is unknown"):
        check_same(fresh, recorded)
