"""A recipe: everything about a training run but its budget, its seed and its machine, as one frozen value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Self

from pydantic import Field

from explorer.canonical import digest
from explorer.data.dataset import DataSource
from explorer.data.sources import DATASETS
from explorer.engine.method import Method
from explorer.engine.optimizer import OPTIMIZERS, OptimizerSpec
from explorer.engine.order import ordered
from explorer.engine.precision import Precision
from explorer.engine.schedule import SCHEDULES, Cosine, Schedule
from explorer.errors import RecipeError, unknown
from explorer.models.specification import ModelSpec
from explorer.models.table import MODELS
from explorer.recipes.choice import check, choose, written
from explorer.recipes.methods import GOVERNED, METHODS

TASK_KEYS = ("dataset", "model")
MODALITIES = {"image": "images", "text": "text", "volume": "volumes"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """The plain numbers of `train:`; `epochs` is the full schedule, at scale-schedule ratio 1."""

    epochs: Annotated[float, Field(gt=0, le=1e6)]
    batch_size: Annotated[int, Field(ge=1, le=2**20)]
    microbatch_size: Annotated[int, Field(ge=1, le=2**20)] | None = None  # rows of one pass; null: the whole batch
    evaluations: Annotated[int, Field(ge=1, le=1000)] = 1  # spread evenly, the last at the end
    precision: Precision = "fp32"


TRAIN_KEYS = (*(field.name for field in fields(Numbers)), "optimizer", "schedule")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Task, optimiser, schedule and methods. `name` is for people; the digest covers everything else."""

    name: str
    dataset: DataSource
    model: ModelSpec
    numbers: Numbers
    optimizer: OptimizerSpec
    schedule: Schedule
    methods: tuple[Method, ...]  # in acting order, so the order of writing makes no difference

    def to_mapping(self) -> dict[str, Any]:
        """The canonical JSON form, every default written out. `build_recipe` reads it back."""
        numbers = {field.name: getattr(self.numbers, field.name) for field in fields(Numbers)}
        return {
            "task": {"dataset": written(self.dataset), "model": written(self.model)},
            "train": {**numbers, "optimizer": written(self.optimizer), "schedule": written(self.schedule)},
            "methods": [written(method) for method in self.methods],
        }

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical form."""
        return digest(self.to_mapping())

    @classmethod
    def from_mapping(cls, name: str, value: Any, *, where: str) -> Self:
        """Read what `to_mapping` wrote, or what a person wrote in the same form."""
        if not isinstance(value, Mapping):
            raise RecipeError(f"{where}: found {type(value).__name__}, expected a mapping with task, train, methods")
        for key in value:
            if key not in ("task", "train", "methods"):
                raise RecipeError(f"{where}: {unknown('key', str(key), ('task', 'train', 'methods'))}")
        for key in ("task", "train"):
            if key not in value:
                raise RecipeError(f"{where}: {key}: missing: expected a mapping")
        methods = value.get("methods")
        return cls._build(name, value["task"], value["train"], [] if methods is None else methods, where)

    @classmethod
    def _build(cls, name: str, task: Any, train: Any, methods: Any, where: str) -> Self:
        task = _mapping(task, where=f"{where}: task", keys=TASK_KEYS, required=TASK_KEYS)
        train = _mapping(
            train, where=f"{where}: train", keys=TRAIN_KEYS, required=("epochs", "batch_size", "optimizer")
        )
        numbers = check(
            Numbers, {k: v for k, v in train.items() if k not in ("optimizer", "schedule")}, where=f"{where}: train"
        )
        if not isinstance(methods, Sequence) or isinstance(methods, str):
            raise RecipeError(f"{where}: methods: found {type(methods).__name__}, expected a list of methods")
        chosen = [
            choose(METHODS, method, kind="method", where=f"{where}[{index}]") for index, method in enumerate(methods)
        ]
        try:
            in_order = ordered(chosen)
        except RecipeError as error:
            raise RecipeError(f"{where}: {error}") from error
        dataset = choose(DATASETS, task["dataset"], kind="dataset", where=f"{where}: task.dataset")
        model = choose(MODELS, task["model"], kind="model", where=f"{where}: task.model")
        _check_fit(dataset, model, chosen, where=where)
        return cls(
            name=name,
            dataset=dataset,
            model=model,
            numbers=numbers,
            optimizer=choose(OPTIMIZERS, train["optimizer"], kind="optimizer", where=f"{where}: train.optimizer"),
            schedule=choose(SCHEDULES, train["schedule"], kind="schedule", where=f"{where}: train.schedule")
            if "schedule" in train
            else Cosine(),
            methods=in_order,
        )


def build_recipe(
    name: str, *, task: Mapping[str, Any], train: Mapping[str, Any], methods: Sequence[Any], where: str
) -> Recipe:
    """A recipe from the parts of a specification. Raises `RecipeError` whose message starts with `where`."""
    return Recipe.from_mapping(name, {"task": task, "train": train, "methods": methods}, where=where)


def _check_fit(dataset: DataSource, model: ModelSpec, methods: Sequence[Method], *, where: str) -> None:
    """Check that model and methods, in the order of writing, are for this kind of data."""
    found = f"dataset {dataset.name!r} is {MODALITIES[dataset.modality]}"
    if model.takes != dataset.modality:
        raise RecipeError(f"{where}: task.model: {model.name!r} takes {MODALITIES[model.takes]}; {found}")
    for index, method in enumerate(methods):
        if dataset.modality not in method.modalities:
            works = " and ".join(MODALITIES[modality] for modality in sorted(method.modalities))
            serving = sorted(
                name for name, other in METHODS.items() if dataset.modality in other.modalities and name not in GOVERNED
            )
            raise RecipeError(
                f"{where}[{index}]: {method.name!r} works on {works}; {found}; methods for"
                f" {MODALITIES[dataset.modality]}: {', '.join(serving)}"
            )
    if model.task != dataset.task:
        raise RecipeError(
            f"{where}: task.model: {model.name!r} is for {model.task}; dataset {dataset.name!r} is for {dataset.task}:"
            f" expected one of {', '.join(sorted(name for name, other in MODELS.items() if _fits(other, dataset)))}"
        )


def _fits(model: type[ModelSpec], dataset: DataSource) -> bool:
    return model.task == dataset.task and model.takes == dataset.modality


def _mapping(value: Any, *, where: str, keys: Sequence[str], required: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RecipeError(f"{where}: found {type(value).__name__}, expected a mapping with {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise RecipeError(f"{where}: {unknown('key', str(key), keys)}")
    for key in required:
        if key not in value:
            raise RecipeError(f"{where}.{key}: missing: expected a value")
    return value
