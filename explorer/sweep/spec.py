"""The specification of a sweep: task, training, recipes, budgets and seeds, validated before anything starts.

    name: digits
    task: {dataset: digits, model: resnet8}
    train: {epochs: 20, batch_size: 64, optimizer: {sgd: {lr: 0.2}}}
    baseline: baseline
    tuning: learning rate and weight decay by grid       # how the baseline was tuned; leave it out if it was not
    recipes:
      baseline: []                                       # a list of methods
      fast: [channels_last, {label_smoothing: {smoothing: 0.1}}]
      slow: {train: {epochs: 40}, methods: [sam]}        # or methods with training settings of their own
      other: {model: airbench}                           # or with another network
    compose: {each_of: [blurpool, ema], pairs_of: [mixup, sam], leave_one_out: fast}
    controls: all                                        # comparisons other than the baseline
    budgets: [0.25, 0.5, 1.0]                            # scale-schedule ratios
    seeds: [0, 1, 2]
    until: {interval: 10%, of: [fast], at_most: 12}      # more seeds, see `explorer.sweep.until_key`; may be left out
    threads: 1                                           # torch threads of a run; they change bits, so never guessed
    on: [{name: "NVIDIA H200"}]                          # other classes of machines, see `explorer.sweep.on_key`
    governance: ../governed                              # signed documents for all runs, relative to this file
    # in train: lanes: 4, ranks: 2                       # processes that train a run together: see `engine.lanes`
    tune: {space: {lr: [0.03, 0.3]}, runs: 24, budget: 0.25, seeds: [100]}    # in place of `tuning`, for every recipe

With `search`, recipes are made as results arrive, and `budgets` are its ladder: see `explorer.sweep.search_key`.

A task may be a command or a notebook of the user's: see `explorer.sweep.commands.command_task`. What `tune` may say is
in `explorer.sweep.tune_key`.

Names become names of directories. A Python dict with the same content is the same specification.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.canonical import digest
from explorer.errors import RecipeError, unknown
from explorer.machine_class import MAX_THREADS
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.run_files import says_how_tuned
from explorer.runlog.target import SWEEP as DELETIONS
from explorer.sweep.commands import command_task
from explorer.sweep.commands.command_task import CommandRecipe, CommandTask, is_command, read_task
from explorer.sweep.compose import MAX_NAME, composed
from explorer.sweep.control_runs import CONTROLS, NotRun, Twins, twins_of
from explorer.sweep.on_key import On, read_on
from explorer.sweep.search_key import SearchKey, read_search
from explorer.sweep.tune_key import KEYS as TUNE_KEYS
from explorer.sweep.tune_key import REQUIRED as TUNE_REQUIRED
from explorer.sweep.tune_key import Axis, Tune, read_tune, with_values
from explorer.sweep.tuned import TunedRecord
from explorer.sweep.until_key import Until, read_until
from explorer.training.run_plan import MAX_BUDGET, MAX_SEED
from explorer.training.run_plan import SWEEP as SINGLE
from explorer.yaml_document import Document, Key, document_of, read_document

TAKEN = {SINGLE: "runs of single recipes", DELETIONS: "runs that deletions made"}  # directories next to those of sweeps
REQUIRED = ("name", "task", "train", "baseline", "recipes", "budgets", "seeds")
KEYS = (*REQUIRED, "until", "tuning", "tune", "compose", "controls", "threads", "on", "governance", "search")
OF_COMMANDS = (*(key for key in REQUIRED if key != "train"), "until", "tuning", "threads", "on", *command_task.KEYS)
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
MAX_RUNS = 20_000  # more are likelier a mistake in the specification than an intention


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepSpec:
    """A valid sweep, as its author wrote it. Recipes are in the order in which they were written."""

    name: str
    recipes: tuple[Recipe, ...]  # written, composed, and the twins of those that choose examples; none of a command
    baseline: str
    controls: str | None  # a key of `CONTROLS`
    twins: Twins  # name of a twin: the recipes that it controls
    not_run: tuple[NotRun, ...]  # composed recipes and twins that cannot be built
    tuning: str | None
    budgets: tuple[float, ...]  # ascending
    seeds: tuple[int, ...]
    threads: int
    on: tuple[On, ...]  # the classes of machines that its runs are for; none: that of the machine that plans them
    governance: Path | None  # the directory of the documents that govern every run
    source: str  # the file, for messages
    content: Mapping[str, Any]  # as written
    command: CommandTask | None = None  # that trains in place of Explorer
    settings: tuple[CommandRecipe, ...] = ()  # the recipes of a command
    tune: Tune | None = None  # the tuning that it asks for
    tunes: str | None = None  # the sweep whose recipes it tunes, if that is its purpose
    tuned: TunedRecord | None = None  # the tuning that chose the values of its recipes; None: they are as written
    until: Until | None = None  # more seeds
    search: SearchKey | None = None  # that makes further recipes

    @property
    def trained(self) -> tuple[Recipe | CommandRecipe, ...]:
        """The recipes of either kind."""
        return self.recipes or self.settings

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return digest(self.content)


def load_spec(source: Path | str | Mapping[str, Any]) -> SweepSpec:
    """Return the specification in a YAML file or a dict. Raises `SpecError`, which names file, line, key and fault."""
    if isinstance(source, Mapping):
        return read_spec(document_of(source))
    return read_spec(read_document(Path(source)))


def read_spec(document: Document) -> SweepSpec:
    """Return the specification in a document; see `load_spec`."""
    if isinstance(document.value, dict) and is_command(document.value):
        return _of_command(document)
    searched = isinstance(document.value, dict) and "search" in document.value
    required = [key for key in REQUIRED if key != "budgets" or not searched]
    content = _mapping(document, (), document.value, known=KEYS, required=required)
    name = check_name(document, ("name",), content["name"])
    if name in TAKEN:
        raise document.error(("name",), f"{name!r} is the directory of {TAKEN[name]}; choose another name")
    seeds = _distinct(document, "seeds", content, _seed)
    on = read_on(document, content)
    controls = _controls(document, content)
    # The number of runs is checked before compositions are built, and again with them and their controls.
    written = _recipes(document, content)
    if on and any(recipe.notes for recipe in written):
        raise document.error(("train", "precision"), "auto follows this machine, and `on` has others: name a precision")
    search = read_search(document, content["search"], recipes=written) if searched else None
    budgets = list(search.ladder) if search is not None else _distinct(document, "budgets", content, _budget)
    classes = max(1, len(on))  # every run is planned for each
    _bound(document, classes * len(written), budgets, seeds)
    baseline = _baseline(document, content["baseline"], written)
    room = MAX_RUNS // (classes * len(budgets) * len(seeds)) - len(written)
    recipes, not_run = _compositions(document, content, written, baseline=baseline, most=room)
    tune = _tune(document, content, recipes, seeds=seeds)
    twins, rescaled = Twins(), 0
    if controls is not None:
        # At worst, every recipe needs a rescaled baseline of its own at every budget.
        rescaled = (len(recipes) - 1) * CONTROLS[controls].rescaled
        if CONTROLS[controls].twins:
            made, twins, impossible = twins_of(recipes, baseline=baseline)
            recipes, not_run = [*recipes, *made], [*not_run, *impossible]
    names = [recipe.name for recipe in recipes if recipe.name not in twins]
    until = read_until(document, content, recipes=names, baseline=baseline, seeds=seeds)
    _bound(document, classes * (len(recipes) + rescaled), budgets, seeds, until)
    return SweepSpec(
        name=name,
        recipes=tuple(recipes),
        baseline=baseline,
        controls=controls,
        twins=twins,
        not_run=tuple(not_run),
        tuning=_tuning(document, content.get("tuning")),
        budgets=tuple(sorted(budgets)),
        seeds=tuple(seeds),
        threads=_whole(document, ("threads",), content.get("threads", 1), low=1, high=MAX_THREADS),
        on=on,
        governance=_directory(document, content.get("governance")),
        source=document.where,
        content=content,
        tune=tune,
        until=until,
        search=search,
    )


def _of_command(document: Document) -> SweepSpec:
    """Return the specification of a sweep that trains by a command."""
    content: dict[str, Any] = document.value
    known = (*OF_COMMANDS, *command_task.NOT_HERE)  # the latter are refused with a reason
    required = [key for key in REQUIRED if key != "train"]
    content = _mapping(document, (), content, known=known, required=required)
    name = check_name(document, ("name",), content["name"])
    if name in TAKEN:
        raise document.error(("name",), f"{name!r} is the directory of {TAKEN[name]}; choose another name")
    budgets = _distinct(document, "budgets", content, _budget)
    seeds = _distinct(document, "seeds", content, _seed)
    task = read_task(document, content)
    if len(on := read_on(document, content)) > 1:
        raise document.error(("on",), f"the runs of a {task.kind} are for one class: name one")
    settings = []
    for recipe, written in _mapping(document, ("recipes",), content["recipes"]).items():
        check_name(document, ("recipes", recipe), recipe)
        settings.append(command_task.read_recipe(document, content, task, recipe, written))
    if not settings:
        raise document.error(("recipes",), "empty: a sweep needs at least one recipe")
    baseline = _baseline(document, content["baseline"], settings)
    names = [setting.name for setting in settings]
    until = read_until(document, content, recipes=names, baseline=baseline, seeds=seeds)
    _bound(document, len(settings), budgets, seeds, until)
    _refuse_twins(document, settings)
    return SweepSpec(
        name=name,
        recipes=(),
        baseline=baseline,
        controls=None,
        twins=Twins(),
        not_run=(),
        tuning=_tuning(document, content.get("tuning")),
        budgets=tuple(sorted(budgets)),
        seeds=tuple(seeds),
        threads=_whole(document, ("threads",), content.get("threads", 1), low=1, high=MAX_THREADS),
        on=on,
        governance=None,
        source=document.where,
        content=content,
        command=task,
        settings=tuple(settings),
        until=until,
    )


def check_name(document: Document, key: Key, name: Any) -> str:
    """Return the name, which is fit for a directory. Raises `SpecError` if it is not."""
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise document.error(
            key,
            f"{name!r:.100} cannot be a name: expected at most {MAX_NAME} of the characters a-z 0-9 _ -,"
            " starting with a letter or digit",
        )
    return name


def _recipes(document: Document, content: Mapping[str, Any]) -> list[Recipe]:
    """Return every recipe that is written out.

    Task and training are checked first, so that a fault in them is not reported as a recipe's.
    """
    task, train = content["task"], content["train"]
    _build(document, (), "task", task=task, train=train, methods=())
    written = _mapping(document, ("recipes",), content["recipes"])
    if not written:
        raise document.error(("recipes",), "empty: a sweep needs at least one recipe")
    recipes = []
    for name, value in written.items():
        key = ("recipes", name)
        check_name(document, key, name)
        parts = _recipe_parts(document, key, value)
        own, merged, methods = dict(task), dict(train), parts.get("methods", [])
        if "model" in parts:
            own["model"] = parts["model"]
        if "train" in parts:
            merged |= _mapping(document, (*key, "train"), parts["train"])
        if parts.keys() - {"methods"}:
            _build(document, key, name, task=own, train=merged, methods=())
        where: Key = key if isinstance(value, list) else (*key, "methods")
        recipes.append(_build(document, where, name, task=own, train=merged, methods=methods))
    _refuse_twins(document, recipes)
    return recipes


def _bound(
    document: Document, recipes: int, budgets: Sequence[float], seeds: Sequence[int], until: Until | None = None
) -> None:
    runs = recipes * len(budgets) * len(seeds)
    if until is not None:
        runs += (len(until.of) + 1) * len(budgets) * (until.at_most - len(seeds))
    if runs > MAX_RUNS:
        raise document.error((), f"{runs} runs are too many for one sweep; at most {MAX_RUNS} are allowed")


def _recipe_parts(document: Document, key: Key, value: Any) -> Mapping[str, Any]:
    if isinstance(value, list):
        return {"methods": value}
    if isinstance(value, dict):
        return _mapping(document, key, value, known=("model", "train", "methods"))
    raise document.error(key, f"{_found(value)}, expected a list of methods, or a mapping of model, train and methods")


def _build(document: Document, key: Key, name: str, *, task: Any, train: Any, methods: Any) -> Recipe:
    where = f"{document.where}: {'.'.join(map(str, key))}" if key else document.where
    try:
        return build_recipe(name, task=task, train=train, methods=methods, where=where)
    except RecipeError as error:
        raise document.locate(error) from error


def _compositions(
    document: Document, content: Mapping[str, Any], recipes: Sequence[Recipe], *, baseline: str, most: int
) -> tuple[list[Recipe], list[NotRun]]:
    """Return the recipes with those composed from them, and the combinations that are impossible."""
    result, not_run = list(recipes), []
    if "compose" not in content:
        return result, not_run
    names, digests = {recipe.name for recipe in recipes}, {recipe.digest for recipe in recipes}
    for part in composed(document, content["compose"], recipes=recipes, baseline=baseline, most=most):
        if part.conflict is not None:
            not_run.append(NotRun(name=part.name, reason=part.conflict))
            continue
        check_name(document, part.key, part.name)
        key = (*part.key, part.name)
        base = part.base.to_mapping()
        recipe = _build(document, key, part.name, task=base["task"], train=base["train"], methods=part.methods)
        if recipe.digest in digests:
            continue  # the sweep has it already, under the name that its author gave it
        if part.name in names:
            raise document.error(
                part.key, f"two different recipes would be called {part.name!r}; write one of them under 'recipes'"
            )
        names.add(recipe.name)
        digests.add(recipe.digest)
        result.append(recipe)
    return result, list(dict.fromkeys(not_run))


def _refuse_twins(document: Document, recipes: Sequence[Recipe | CommandRecipe]) -> None:
    first: dict[str, str] = {}
    for recipe in recipes:
        twin = first.setdefault(recipe.digest, recipe.name)
        if twin != recipe.name:
            raise document.error(
                ("recipes", recipe.name), f"the same recipe as {twin!r}; every recipe must be different"
            )


def _baseline(document: Document, value: Any, recipes: Sequence[Recipe | CommandRecipe]) -> str:
    names = [recipe.name for recipe in recipes]
    if value not in names:
        raise document.error(("baseline",), unknown("recipe", str(value), names))
    return value


def _controls(document: Document, content: Mapping[str, Any]) -> str | None:
    word = content.get("controls")
    if word is not None and (not isinstance(word, str) or word not in CONTROLS):
        raise document.error(("controls",), unknown("word", str(word), CONTROLS))
    return word


def _tuning(document: Document, value: Any) -> str | None:
    if isinstance(value, str) and not says_how_tuned(value):
        untuned = "if it was not, leave the key out, and every view marks the baseline as untuned"
        raise document.error(("tuning",), f"{_found(value)}, expected how the baseline was tuned; {untuned}")
    if value is None or (isinstance(value, str) and len(value) <= 500):
        return value
    raise document.error(("tuning",), f"{_found(value)}, expected a text of at most 500 characters")


def _tune(
    document: Document, content: Mapping[str, Any], recipes: Sequence[Recipe], *, seeds: Sequence[int]
) -> Tune | None:
    """Return the tuning that is asked for, once every recipe can be built with it."""
    if "tune" not in content:
        return None
    if content.get("tuning") is not None:
        raise document.error(("tuning",), "'tune' tunes every recipe and says how; leave this key out")
    value = _mapping(document, ("tune",), content["tune"], known=TUNE_KEYS, required=TUNE_REQUIRED)
    budget = _budget(document, ("tune", "budget"), value["budget"])
    own = _distinct(document, "seeds", value, _seed, under=("tune",))
    tune = read_tune(document, value, budget=budget, seeds=own, claimed=seeds)
    for name in tune.spaces:
        if name not in (known := [recipe.name for recipe in recipes]):
            raise document.error(("tune", "spaces", name), unknown("recipe", name, known))
    methods = {method.name for recipe in recipes for method in recipe.methods}
    for axis in (*tune.space, *(axis for space in tune.spaces.values() for axis in space)):
        name, dot, _ = axis.key.partition(".")
        if dot and name not in methods:
            raise document.error(("tune", "space"), unknown("method", name, methods))
    points = tune.runs * len(recipes)
    if points * len(own) > MAX_RUNS:
        raise document.error(("tune",), f"{points * len(own)} runs are too many; at most {MAX_RUNS} are allowed")
    same: dict[str, str] = {}
    for recipe in recipes:
        axes = tune.axes(recipe.name, [method.name for method in recipe.methods])
        key: Key = ("tune", "spaces", recipe.name) if recipe.name in tune.spaces else ("tune", "space")
        if not axes:
            raise document.error(key, f"nothing in it is a number of the recipe {recipe.name!r}")
        built = [_valued(document, key, recipe, values) for values in _corners(axes)]
        twin = same.setdefault(built[0].digest, recipe.name)
        if twin != recipe.name:
            raise document.error(key, f"recipes {twin!r} and {recipe.name!r} differ only in what is tuned")
    return tune


def _corners(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Return points that have every end and every choice of the axes."""
    most = max((len(axis.options) for axis in axes), default=0)
    shares = [at / (most - 1) for at in range(most)] if most > 1 else [0.0, 1.0]
    return [{axis.key: axis.at(share) for axis in axes} for share in sorted({0.0, 1.0, *shares})]


def _valued(document: Document, key: Key, recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    whole = recipe.to_mapping()
    made = with_values(whole, values, where=document.place(key))
    try:
        return build_recipe(recipe.name, task=whole["task"], **made, where=f"recipe {recipe.name!r}")
    except RecipeError as error:
        raise document.error(key, str(error)) from error


def _directory(document: Document, value: Any) -> Path | None:
    """Return a directory, which is relative to the file; without a file, to the working directory."""
    if value is None:
        return None
    if not isinstance(value, str) or not value or "\0" in value:
        raise document.error(("governance",), f"{_found(value)}, expected a directory")
    base = Path() if document.text is None else Path(document.where).parent
    return base / value


def _distinct(
    document: Document, name: str, content: Mapping[str, Any], check: Callable[..., Any], *, under: Key = ()
) -> list[Any]:
    """Return a list of distinct numbers, every one checked; `under` is the key of the content."""
    values, key = content[name], (*under, name)
    if not isinstance(values, list):
        raise document.error(key, f"{_found(values)}, expected a list of numbers")
    if not values:
        raise document.error(key, "empty: a sweep needs at least one")
    checked: dict[Any, None] = {}  # in the order of writing
    for index, value in enumerate(values):
        number = check(document, (*key, index), value)
        if number in checked:
            raise document.error((*key, index), f"{number:g} is given twice")
        checked[number] = None
    return list(checked)


def _budget(document: Document, key: Key, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= MAX_BUDGET:
        raise document.error(key, f"{_found(value)}, expected a number above 0 and at most {MAX_BUDGET:g}")
    return float(value)


def _seed(document: Document, key: Key, value: Any) -> int:
    return _whole(document, key, value, low=0, high=MAX_SEED)


def _whole(document: Document, key: Key, value: Any, *, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise document.error(key, f"{_found(value)}, expected a whole number from {low} to {high}")
    return value


def _mapping(
    document: Document, key: Key, value: Any, *, known: Sequence[str] | None = None, required: Sequence[str] = ()
) -> dict[str, Any]:
    if not isinstance(value, dict):
        expected = f" with {', '.join(known)}" if known else ""
        raise document.error(key, f"{_found(value)}, expected a mapping{expected}")
    for name in value:
        if known is not None and name not in known:
            raise document.error((*key, name), unknown("key", name, known))
    for name in required:
        if name not in value:
            raise document.error(key, f"key {name!r} is missing; expected {', '.join(required)}")
    return value


def _found(value: Any) -> str:
    return "found nothing" if value is None else f"found {value!r:.80}"
