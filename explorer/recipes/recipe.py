"""A recipe: everything about a training run but its budget, its seed and its machine, as one frozen value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from explorer.canonical import digest
from explorer.data.dataset import DataSource
from explorer.data.sources import DATASETS
from explorer.engine.method import Method
from explorer.errors import RecipeError, unknown
from explorer.models.specification import VECTORS, ModelSpec
from explorer.models.table import MODELS
from explorer.plugins import NO_CODE, Code, code_of
from explorer.recipes.choice import choose, written
from explorer.recipes.settings import MODALITIES, Training, check_serving, mapping, read_training

TASK_KEYS = ("dataset", "model")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe(Training):
    """Task and training. `name` is for people; the digest covers everything else."""

    name: str
    dataset: DataSource
    model: ModelSpec

    def to_mapping(self) -> dict[str, Any]:
        """Return the canonical JSON form, every default written out. `build_recipe` reads it back."""
        task = {"dataset": written(self.dataset), "model": written(self.model)}
        return {"task": task, **self.training()}

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the canonical form."""
        return digest(self.to_mapping())

    @property
    def code(self) -> dict[str, str]:
        """Return the source digests of the code of other packages, by top-level name; empty if all is ours."""
        values = (self.dataset, self.model, self.optimizer, self.schedule, *self.methods)
        own_task = self.dataset.own_task
        return code_of((*map(type, values), *(() if own_task is None else (own_task,))))

    @classmethod
    def from_mapping(cls, name: str, value: Any, *, where: str, code: Code = NO_CODE) -> Self:
        """Read a mapping that `to_mapping` or a person wrote; `code` of other packages may be imported for it.

        Raises `RecipeError` that starts with `where`.
        """
        if not isinstance(value, Mapping):
            raise RecipeError(f"{where}: found {type(value).__name__}, expected a mapping with task, train, methods")
        for key in value:
            if key not in ("task", "train", "methods"):
                raise RecipeError(f"{where}: {unknown('key', str(key), ('task', 'train', 'methods'))}")
        for key in ("task", "train"):
            if key not in value:
                raise RecipeError(f"{where}: {key}: missing: expected a mapping")
        # YAML reads `methods:` without a list as null.
        methods = [] if value.get("methods") is None else value["methods"]
        task = mapping(value["task"], where=f"{where}: task", keys=TASK_KEYS, required=TASK_KEYS)
        training, chosen = read_training(value["train"], methods, where=where, code=code)
        dataset = choose(DATASETS, task["dataset"], kind="dataset", where=f"{where}: task.dataset", code=code)
        model = choose(MODELS, task["model"], kind="model", where=f"{where}: task.model", code=code)
        _check_fit(dataset, model, chosen, where=where)
        return cls(
            name=name,
            dataset=dataset,
            model=model,
            numbers=training.numbers,
            optimizer=training.optimizer,
            schedule=training.schedule,
            methods=training.methods,
            ranks=training.ranks,
            notes=training.notes,
        )


def build_recipe(
    name: str, *, task: Mapping[str, Any], train: Mapping[str, Any], methods: Sequence[Any], where: str
) -> Recipe:
    """Return a recipe from the parts of a specification, which may name code of any package.

    Raises `RecipeError` whose message starts with `where`.
    """
    return Recipe.from_mapping(name, {"task": task, "train": train, "methods": methods}, where=where, code=None)


def _check_fit(dataset: DataSource, model: ModelSpec, methods: Sequence[Method], *, where: str) -> None:
    """Check that model and methods are for this kind of data; `methods` in the order of writing, for its messages."""
    shown = f"dataset {dataset.name!r} is {MODALITIES[dataset.modality]}"
    if model.takes != dataset.modality:
        raise RecipeError(
            f"{where}: task.model: {model.name!r} takes {MODALITIES[model.takes]}; {shown}:"
            f" expected {_serving(dataset)}"
        )
    check_serving(methods, dataset.modality, shown=shown, where=where)
    if not _serves(type(model), dataset):
        raise RecipeError(
            f"{where}: task.model: {model.name!r} is for {model.task}; dataset {dataset.name!r} is for {dataset.aim}:"
            f" expected {_serving(dataset)}"
        )


def _serving(dataset: DataSource) -> str:
    """Return the models for such data, in words."""
    fitting = (name for name, kind in MODELS.items() if kind.takes == dataset.modality and _serves(kind, dataset))
    return f"one of {', '.join(sorted(fitting))}"


def _serves(model: type[ModelSpec], dataset: DataSource) -> bool:
    """Return whether outputs of the model's kind fit what the dataset has predicted."""
    return model.task == dataset.aim or (model.task == VECTORS[0] and dataset.aim in VECTORS)
