"""Beginning with an attested model: every class is admitted by weight, and everything is checked each time."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from explorer import run_files, rundir
from explorer.cli.run import begin
from explorer.entries.fields import read_float
from explorer.errors import ExplorerError, ProvenanceError, RecipeError, RunError
from explorer.recipes.recipe import Recipe
from explorer.release.attest import attest, ship
from explorer.run_files import RunRecord
from explorer.runlog.run_ledger import RunLedger
from explorer.training.replay import replay
from explorer.training.run import build_loop, documents_in, execute
from explorer.training.run_plan import PlannedRun, plan_single
from tests.governance import desk
from tests.provenance.people import NOW, private
from tests.recipes_for_tests import tiny_recipe
from tests.training.recorded_runs import METHODS, documents_for_digits, planned_run

EVERYBODY = {"open": 1, "licensed": 0.5}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the author's documents in `desk` and a finished, attested run."""
    root = tmp_path_factory.mktemp("base")
    run = planned_run(root, documents_for_digits(root))
    execute(run)
    ledger = RunLedger(run)
    ship(ledger, attest(ledger, keys=[private(desk.TRAINER)], trust=desk.TRUST, now=NOW), trust=desk.TRUST, now=NOW)
    return run


def author(base: Path) -> Path:
    return next(path for path in (base.parent / "desk", base.parent.parent / "desk") if path.exists())


def content(model: Path, admit: dict[str, Any] | None = None, **change: Any) -> dict[str, Any]:
    recipe = tiny_recipe([*METHODS, {"recorder": {"every": 3}}]).to_mapping()
    start = {"model": str(model), "admit": EVERYBODY if admit is None else admit}
    return {**recipe, "seed": 5, "start": start, **change}


def planned(base: Path, *, model: Path | None = None, admit: dict[str, Any] | None = None, **change: Any) -> PlannedRun:
    return plan_single(
        content(base / "model" if model is None else model, admit, **change),
        name="tuned",
        where="recipe.yaml",
        data=None,
        beside=base,
        governance=author(base),
        now=NOW,
    )


def begun(base: Path, root: Path, **how: Any) -> Path:
    found = planned(base, **how)
    run = root / found.record.run_id
    begin(found, run)
    return run


@pytest.fixture(scope="module")
def tuned(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = begun(base, tmp_path_factory.mktemp("tuned"))
    execute(run)
    return run


@pytest.mark.slow
def test_it_begins_with_the_model_and_not_with_drawn_weights(base: Path, tuned: Path) -> None:
    record = run_files.read(RunRecord, tuned / rundir.RUN)
    loop = build_loop(record, data=None, documents=documents_in(tuned, record))
    theirs = load_file(base / "model" / "model.safetensors")
    mine = dict(loop.state.model.named_parameters()) | dict(loop.state.model.named_buffers())
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_the_first_entry_says_who_was_let_in(base: Path, tuned: Path) -> None:
    run, was = RunLedger(tuned), RunLedger(base)
    (parent,) = run.genesis.parents
    assert parent.kind == "model" and parent.ledger.origin == was.ledger.checkpoint().origin
    assert parent.ledger.size == was.ledger.checkpoint().size
    weights = {path: read_float(text) for path, text in parent.admitted.items()}
    assert weights == {"licensed/news": 0.5, "open": 1.0, "open/mit": 1.0}


def test_it_is_another_run_than_one_of_its_own(base: Path, tuned: Path) -> None:
    other = planned(base, admit={**EVERYBODY, "open/mit": 0.25}).record
    alone = plan_single(
        {key: value for key, value in content(base).items() if key != "start"},
        name="tuned",
        where="recipe.yaml",
        data=None,
        beside=base,
        governance=author(base),
        now=NOW,
    ).record
    assert len({tuned.name, other.run_id, alone.run_id}) == 3
    assert other.identity["start"]["admitted"]["open/mit"] == 0.25  # the longest branch decides


def test_a_replay_begins_there_too(tuned: Path) -> None:
    assert replay(tuned, steps=(0, 3)).equal


@pytest.mark.slow
def test_without_the_place_where_the_model_came_from(base: Path, tmp_path: Path) -> None:
    """The run has a copy of its own; killed and begun again it needs nothing else."""
    shutil.copytree(base / "model", tmp_path / "model")
    run = begun(base, tmp_path, model=tmp_path / "model")
    shutil.rmtree(tmp_path / "model")
    execute(run)
    assert (run / rundir.RESULT).exists()


def test_the_attestation_of_the_child_names_its_parent(tuned: Path) -> None:
    ledger = RunLedger(tuned)
    made = attest(ledger, keys=[private(desk.TRAINER)], trust=desk.TRUST, now=NOW)
    ship(ledger, made, trust=desk.TRUST, now=NOW)
    (parent,) = ledger.genesis.parents
    assert (tuned / "model" / "parents" / f"{parent.attestation}.json").exists()


def test_three_generations(base: Path, tuned: Path, tmp_path: Path) -> None:
    """The attestations of all models before it come along, and without one of them nothing begins."""
    parent = Path(shutil.copytree(tuned, tmp_path / tuned.name))
    ledger = RunLedger(parent)
    ship(ledger, attest(ledger, keys=[private(desk.TRAINER)], trust=desk.TRUST, now=NOW), trust=desk.TRUST, now=NOW)
    child = begun(base, tmp_path / "third", model=parent / "model")
    kept = {path.name for path in (child / "governance" / "parents").glob("*.json") if len(path.stem) == 64}
    (grandparent,) = (path.name for path in (parent / "model" / "parents").iterdir())
    assert grandparent in kept and len(kept) == 2
    assert planned(base, model=parent / "model").record.run_id == child.name
    (parent / "model" / "parents" / grandparent).unlink()
    with pytest.raises(ProvenanceError, match=r"cannot read .*parents"):
        planned(base, model=parent / "model")


@pytest.mark.parametrize(
    ("admit", "message"),
    [
        ({"open": 1}, "the model was trained on licensed/news, which has no weight"),
        ({}, "which has no weight; expected one for it or its branch"),
        ({"open": 1, "licensed": 0}, "licensed/news: found weight 0, and the model was trained on it"),
        ({**EVERYBODY, "licenced": 1}, "unknown class of the model 'licenced'; did you mean"),
        ({**EVERYBODY, "open": 1.5}, r"start: admit\.open: found float 1\.5"),
        ({**EVERYBODY, "Open": 1}, r"start: admit\.Open.*should match pattern"),
    ],
)
def test_who_is_not_let_in(base: Path, admit: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=rf"recipe.yaml.*{message}"):
        planned(base, admit=admit)


def test_a_model_without_documents_to_believe_it(base: Path) -> None:
    recipe = {**tiny_recipe([]).to_mapping(), "start": {"model": str(base / "model"), "admit": EVERYBODY}}
    with pytest.raises(RecipeError, match="only a trust file can vouch for a model, and there is none"):
        plan_single(recipe, name="t", where="r.yaml", data=None, beside=base, governance=None, now=NOW)


def test_a_model_that_is_built_otherwise(base: Path) -> None:
    task = {"dataset": "digits", "model": {"resnet8": {"norm": "group"}}}
    with pytest.raises(RunError, match=r"model.json: model: the model has .*resnet8.*, the recipe asks for"):
        planned(base, task=task)


def changed(base: Path, root: Path) -> Path:
    shutil.copytree(base / "model", root / "model")
    return root / "model"


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "attestation.json"])
def test_another_model_than_the_attested_one(base: Path, tmp_path: Path, name: str) -> None:
    model = changed(base, tmp_path)
    if name == "model.safetensors":
        tensors = load_file(model / name)
        first = min(tensors)
        save_file({**tensors, first: tensors[first] + 1}, model / name)
    else:
        text = (model / name).read_text()
        (model / name).write_text(text.replace("digits", "digitz") if name == "model.json" else text[:-20])
    with pytest.raises(ProvenanceError):
        planned(base, model=model)


def test_a_kept_model_that_was_exchanged(base: Path, tmp_path: Path) -> None:
    run = begun(base, tmp_path)
    (kept,) = (run / "governance" / "parents").glob("*.safetensors")
    tensors = load_file(kept)
    save_file({name: tensor * 2 for name, tensor in tensors.items()}, kept)
    with pytest.raises(ProvenanceError, match=r"not the file that .* is about"):
        execute(run)


def test_nothing_is_half_begun(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ExplorerError):
        begun(base, tmp_path, admit={"open": 1})
    assert not list(tmp_path.iterdir())


def test_the_recipe_file_of_the_documentation(base: Path, tmp_path: Path) -> None:
    written = yaml.safe_load("start: {model: model, admit: {open: 1, licensed/news: 0.5}}")
    found = planned(base, start=written["start"])
    assert found.record.identity["start"]["admitted"]["licensed/news"] == 0.5
    assert Recipe.from_mapping("x", found.record.identity["recipe"], where="x").name == "x"
