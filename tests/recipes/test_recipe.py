"""Recipes: what is refused and in which words, and that a recipe's identity is its content."""

from collections.abc import Callable
from typing import Any

import pytest

from explorer.canonical import digest
from explorer.data import sources
from explorer.errors import RecipeError
from explorer.models import table
from explorer.planned import effective_digest
from explorer.recipes import settings
from explorer.recipes.recipe import Recipe
from tests.recipes_for_tests import tiny_recipe, tiny_run

TASK = {"dataset": "digits", "model": "resnet8"}
TRAIN = {"epochs": 2, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1}}}


def recipe(settings: Any = (), *, task: Any = TASK, **train: Any) -> Recipe:
    value = {"task": task, "train": {**TRAIN, **train}, "methods": list(settings)}
    return Recipe.from_mapping("r", value, where="spec.yaml: recipes.fast")


METHODS = ", ".join(sorted(settings.METHODS))
TRAIN_KEYS = (
    "batch_size, deterministic, epochs, evaluations, lanes, microbatch_size, optimizer, precision, ranks, schedule"
)
SCHEDULES = "constant, cosine, exponential, linear, multistep, polynomial, restarts, step, wsd"
MODELS = ", ".join(sorted(table.MODELS))
DATASETS = ", ".join(sorted(sources.DATASETS))

BETA = " (both parameters of the Beta distribution; 0 is off)"  # what the parameter means
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "misspelt method": (
        lambda: recipe(["sam", "mixupp"]),
        f"[1]: unknown method 'mixupp'; did you mean 'mixup'? known: {METHODS}",
    ),
    "misspelt parameter": (
        lambda: recipe([{"mixup": {"alfa": 1}}]),
        "[0].mixup: unknown parameter 'alfa'; did you mean 'alpha'? known: alpha",
    ),
    "misspelt dataset": (
        lambda: recipe(task={**TASK, "dataset": "digit"}),
        f": task.dataset: unknown dataset 'digit'; did you mean 'digits'? known: {DATASETS}",
    ),
    "misspelt model": (
        lambda: recipe(task={**TASK, "model": "resnet9"}),
        f": task.model: unknown model 'resnet9'; did you mean 'resnet8'? known: {MODELS}",
    ),
    "misspelt optimiser": (
        lambda: recipe(optimizer={"adam": {"lr": 1}}),
        ": train.optimizer: unknown optimizer 'adam'; did you mean 'adamw'? known: adamw, sgd",
    ),
    "misspelt schedule": (
        lambda: recipe(schedule="cosinus"),
        f": train.schedule: unknown schedule 'cosinus'; did you mean 'cosine'? known: {SCHEDULES}",
    ),
    "misspelt key": (
        lambda: recipe(epoch=3),
        f": train: unknown key 'epoch'; did you mean 'epochs'? known: {TRAIN_KEYS}",
    ),
    "ranks": (
        lambda: recipe(ranks=4),
        ": train.ranks: found 4, expected 1, for the recipe has 'lanes: 1': every rank takes whole lanes",
    ),
    "more ranks than lanes": (
        lambda: recipe(lanes=4, ranks=5),
        ": train.ranks: found 5, expected 1 to 4, for the recipe has 'lanes: 4': every rank takes whole lanes",
    ),
    "truth for ranks": (
        lambda: recipe(ranks=True),
        ": train.ranks: found True, expected 1, for the recipe has 'lanes: 1': every rank takes whole lanes",
    ),
    "key of the task": (
        lambda: recipe(task={**TASK, "net": 1}),
        ": task: unknown key 'net'; known: dataset, model",
    ),
    "text for a number": (
        lambda: recipe([{"mixup": {"alpha": "0.2"}}]),
        "[0].mixup.alpha: found str '0.2': input should be a valid number" + BETA,
    ),
    "truth for a number": (
        lambda: recipe([{"mixup": {"alpha": True}}]),
        "[0].mixup.alpha: found bool True: input should be a valid number" + BETA,
    ),
    "truth for a whole number": (
        lambda: recipe(batch_size=True),
        ": train.batch_size: found bool True: input should be a valid integer",
    ),
    "fraction for a whole number": (
        lambda: recipe(batch_size=64.5),
        ": train.batch_size: found float 64.5: input should be a valid integer",
    ),
    "number for a truth": (
        lambda: recipe([{"blurpool": {"pools": 1}}]),
        "[0].blurpool.pools: found int 1: input should be a valid boolean (blur after max-pooling at stride one)",
    ),
    "not a number": (
        lambda: recipe([{"mixup": {"alpha": float("nan")}}]),
        "[0].mixup.alpha: found float nan: input should be less than or equal to 100" + BETA,
    ),
    "no plain value": (
        lambda: recipe([{"mixup": {"alpha": {1}}}]),
        "[0].mixup: found dict {'alpha': {1}}, expected plain values: Object of type set is not JSON serializable",
    ),
    "below the range": (
        lambda: recipe([{"sam": {"rho": -0.1}}]),
        "[0].sam.rho: found float -0.1: input should be greater than or equal to 0"
        " (length of the perturbation; 0 is off)",
    ),
    "above the range": (
        lambda: recipe([{"label_smoothing": {"smoothing": 1}}]),
        "[0].label_smoothing.smoothing: found int 1: input should be less than 1"
        " (weight of the uniform distribution; 0 is off)",
    ),
    "none of the choices": (
        lambda: recipe(precision="fp8"),
        ": train.precision: unknown precision 'fp8'; known: auto, bf16, fp16, fp32, tf32",
    ),
    "no fixed order, on any number of ranks": (
        lambda: recipe(deterministic="fast", lanes=2),
        ": train.deterministic: found 'fast' with 'lanes: 2', which promise the same bits on any number of ranks:"
        " expected 'strict'",
    ),
    "choice of a dataset": (
        lambda: recipe(task={**TASK, "dataset": {"digits": {"size": 9}}}),
        ": task.dataset.digits.size: found int 9: input should be 8, 16 or 32",
    ),
    "pair of the wrong length": (
        lambda: recipe(optimizer={"adamw": {"lr": 1, "betas": [0.9]}}),
        ": train.optimizer.adamw.betas.1: missing: expected a value",
    ),
    "missing parameter": (
        lambda: recipe(optimizer="sgd"),
        ": train.optimizer.sgd.lr: missing: expected a value",
    ),
    "missing key": (
        lambda: Recipe.from_mapping(
            "r", {"task": TASK, "train": {"epochs": 1, "batch_size": 8}}, where="spec.yaml: recipes.fast"
        ),
        ": train.optimizer: missing: expected a value",
    ),
    "missing part": (
        lambda: Recipe.from_mapping("r", {"task": TASK}, where="spec.yaml: recipes.fast"),
        ": train: missing: expected a mapping",
    ),
    "misspelt part": (
        lambda: Recipe.from_mapping("r", {"tasks": TASK}, where="spec.yaml: recipes.fast"),
        ": unknown key 'tasks'; did you mean 'task'? known: methods, task, train",
    ),
    "no mapping at all": (
        lambda: Recipe.from_mapping("r", [1], where="spec.yaml: recipes.fast"),
        ": found list, expected a mapping with task, train, methods",
    ),
    "methods are no list": (
        lambda: Recipe.from_mapping(
            "r", {"task": TASK, "train": TRAIN, "methods": "mixup"}, where="spec.yaml: recipes.fast"
        ),
        ": methods: found str, expected a list of methods",
    ),
    "methods are a number": (
        lambda: Recipe.from_mapping("r", {"task": TASK, "train": TRAIN, "methods": 0}, where="spec.yaml: recipes.fast"),
        ": methods: found int, expected a list of methods",
    ),
    "a number for a method": (
        lambda: recipe([3]),
        "[0]: found int 3, expected the name of a method, or {name: {parameters}}",
    ),
    "two methods in one": (
        lambda: recipe([{"mixup": {}, "sam": {}}]),
        "[0]: found dict {'mixup': {}, 'sam': {}}, expected the name of a method, or {name: {parameters}}",
    ),
    "parameters are no mapping": (
        lambda: recipe([{"mixup": 0.2}]),
        "[0].mixup: found float 0.2, expected parameters as a mapping",
    ),
    "given twice": (
        lambda: recipe(["sam", {"sam": {"rho": 0.1}}]),
        ": method 'sam' is given twice: expected each method at most once",
    ),
    "a model for other data": (
        lambda: recipe(task={**TASK, "model": "gpt-tiny"}),
        ": task.model: 'gpt-tiny' takes text; dataset 'digits' is images: expected one of airbench, resnet101,"
        " resnet110, resnet14, resnet18, resnet20, resnet32, resnet34, resnet44, resnet50, resnet56, resnet8",
    ),
    "parameters that do not fit each other": (
        lambda: recipe([{"progressive_resizing": {"delay": 0.9, "finetune": 0.5}}]),
        "[0].progressive_resizing: found delay 0.9 and finetune 0.5: expected at most 1 together",
    ),
    "an optimiser that does not fit itself": (
        lambda: recipe(optimizer={"sgd": {"lr": 1, "momentum": 0, "nesterov": True}}),
        ": train.optimizer.sgd: found nesterov with momentum 0: expected a momentum above 0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_in_which_words(name: str) -> None:
    act, message = REFUSED[name]
    with pytest.raises(RecipeError) as caught:
        act()
    assert str(caught.value) == "spec.yaml: recipes.fast" + message


def test_methods_are_for_some_kinds_of_data() -> None:
    text = {"dataset": "source", "model": "gpt-tiny"}
    with pytest.raises(RecipeError) as caught:
        recipe(["ema", "blurpool"], task=text)
    said, _, serving = str(caught.value).partition("; methods for text: ")
    assert said == "spec.yaml: recipes.fast[1]: 'blurpool' works on images; dataset 'source' is text"
    assert {"ema", "sam"} <= set(serving.split(", ")) and "blurpool" not in serving
    assert recipe(["ema"], task=text).methods[0].name == "ema"


def test_what_is_written_reads_back() -> None:
    full = recipe(
        [{"mixup": {"alpha": 0.4}}, "ema"],
        task={"dataset": {"digits": {"size": 16}}, "model": {"resnet14": {"norm": "group"}}},
        optimizer={"adamw": {"lr": 0.001, "betas": [0.8, 0.9]}},
        schedule={"multistep": {"milestones": [0.3, 0.6], "warmup": 0.1}},
        precision="bf16",
        microbatch_size=16,
    )
    again = Recipe.from_mapping("r", full.to_mapping(), where="x")
    assert again == full
    assert again.digest == full.digest == digest(full.to_mapping())


SAME: dict[str, tuple[Recipe, Recipe]] = {
    "order of the methods": (recipe(["sam", "ema", "mixup"]), recipe(["mixup", "sam", "ema"])),
    "defaults written out": (recipe(["mixup"]), recipe([{"mixup": {"alpha": 0.2}}])),
    "no parameters": (recipe(["mixup"]), recipe([{"mixup": None}])),
    "whole numbers": (recipe(epochs=2), recipe(epochs=2.0)),
    "schedule written out": (recipe(), recipe(schedule={"cosine": {"final": 0}})),
    "precision written out": (recipe(), recipe(precision="fp32")),
    "kernels written out": (recipe(), recipe(deterministic="strict")),
    "tuple or list": (
        recipe(optimizer={"adamw": {"lr": 1, "betas": (0.9, 0.999)}}),
        recipe(optimizer={"adamw": {"lr": 1.0}}),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_content_is_the_same_recipe(name: str) -> None:
    one, other = SAME[name]
    assert one.digest == other.digest
    assert one.methods == other.methods


DIFFERENT = {
    "plain": recipe(),
    "method": recipe(["mixup"]),
    "parameter": recipe([{"mixup": {"alpha": 0.3}}]),
    "lr": recipe(optimizer={"sgd": {"lr": 0.2}}),
    "optimizer": recipe(optimizer={"adamw": {"lr": 0.1}}),
    "schedule": recipe(schedule="linear"),
    "warm-up": recipe(schedule={"cosine": {"warmup": 0.1}}),
    "scaled warm-up": recipe(schedule={"cosine": {"warmup": 0.1, "scale_warmup": True}}),
    "epochs": recipe(epochs=3),
    "batch_size": recipe(batch_size=32),
    "microbatch_size": recipe(microbatch_size=32),
    "precision": recipe(precision="bf16"),
    "tf32": recipe(precision="tf32"),
    "fp16": recipe(precision="fp16"),
    "kernels": recipe(deterministic="fast"),
    "model": recipe(task={**TASK, "model": "resnet14"}),
    "width": recipe(task={**TASK, "model": {"resnet8": {"width": 2.0}}}),
    "image size": recipe(task={**TASK, "dataset": {"digits": {"size": 16}}}),
}


def test_the_device_decides_an_automatic_precision_when_the_recipe_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for native, precision in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr("explorer.engine.precision.is_native", lambda *_, native=native: native)
        found = recipe(precision="auto")
        assert found.digest == recipe(precision=precision).digest
        assert [note.partition(" on ")[0] for note in found.notes] == [f"precision: auto is {precision}"]
    assert recipe().notes == ()


def test_whatever_determines_the_result_changes_the_digest() -> None:
    assert len({each.digest for each in DIFFERENT.values()}) == len(DIFFERENT)


def test_the_runs_name_follows_budget_seed_threads_and_content() -> None:
    plain = tiny_recipe()
    runs = [
        tiny_run(plain),
        tiny_run(plain, seed=1),
        tiny_run(plain, ssr=2.0),
        tiny_run(plain, threads=2),
        tiny_run(tiny_recipe(["ema"])),
    ]
    assert len({run.run_id[-8:] for run in runs}) == len(runs)
    assert runs[0].run_id == f"resnet8-digits-tiny-ssr1-s0-{digest(runs[0].identity)[:8]}"
    assert len({run.recipe_digest for run in runs}) == 3, "seed and budget are no part of it"
    again = tiny_run(tiny_recipe([]))
    assert again == runs[0]


def test_the_effective_recipe_is_the_same_on_another_machine_and_holds_batch_and_precision() -> None:
    plain = tiny_run(tiny_recipe())
    elsewhere = tiny_run(tiny_recipe(), threads=2, seed=1, ssr=2.0)
    assert elsewhere.recipe_digest != plain.recipe_digest
    assert elsewhere.effective_digest == plain.effective_digest
    other_software = {**plain.identity, "versions": {}}
    assert effective_digest(other_software) == plain.effective_digest
    others = [tiny_recipe(["ema"]), tiny_recipe(batch_size=32), tiny_recipe(precision="bf16")]
    assert len({plain.effective_digest, *(tiny_run(recipe).effective_digest for recipe in others)}) == 4


def test_names_are_no_part_of_the_content() -> None:
    value = {"task": TASK, "train": TRAIN}
    assert Recipe.from_mapping("a", value, where="x").digest == Recipe.from_mapping("b", value, where="x").digest
