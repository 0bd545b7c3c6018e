"""Settings of training: optimiser, schedule, methods and plain numbers, without the task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args

from pydantic import Field

from explorer import governance, methods
from explorer.data.dataset import Modality
from explorer.engine.fit import AUTOMATIC
from explorer.engine.lanes import MAX_LANES
from explorer.engine.method import Method, ordered
from explorer.engine.optimizer import OPTIMIZERS, SCHEDULES, Cosine, OptimizerSpec, Schedule
from explorer.engine.precision import Kernels, Precision, choose_precision
from explorer.errors import RecipeError, unknown
from explorer.parameters import check
from explorer.plugins import NO_CODE, Code
from explorer.recipes.choice import choose, written
from explorer.recipes.machine import device, hardware

# Every method that a recipe can name: those that train, and those that act on signed documents.
GOVERNED = frozenset(governance.METHODS)  # these need `governance: DIR`

METHODS: dict[str, type[Method]] = methods.METHODS | governance.METHODS

MODALITIES = {"image": "images", "text": "text", "volume": "volumes", "tabular": "tables"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """The plain numbers of `train:`; `epochs` is the full schedule, at scale-schedule ratio 1."""

    epochs: Annotated[float, Field(gt=0, le=1e6)]
    batch_size: Annotated[int, Field(ge=1, le=2**20)]
    microbatch_size: Annotated[int, Field(ge=1, le=2**20)] | None = None  # rows of one pass; null: the whole batch
    # Spread evenly, the last at the end. 0: only that one. 1 once meant that and is part of the digest of every recipe
    # that does not name it, so it stays the written form of "automatic": see `engine.fit.AUTOMATIC`.
    evaluations: Annotated[int, Field(ge=0, le=1000)] = AUTOMATIC
    precision: Precision = "fp32"
    lanes: Annotated[int, Field(ge=1, le=MAX_LANES)] = 1  # parts of a step, added in a fixed order: engine/lanes.py
    deterministic: Kernels = "strict"  # fast: kernels whose sums have no fixed order too, chosen by their speed


AUTO = "auto"  # the precision that the device decides, when a recipe is read: no plan and no record has the word
LATER = frozenset(
    {"lanes", "deterministic"}
)  # numbers that came later: a recipe that leaves them at their default has its old digest
TRAIN_KEYS = (*(field.name for field in fields(Numbers)), "optimizer", "schedule", "ranks")


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """The settings of training."""

    numbers: Numbers
    optimizer: OptimizerSpec
    schedule: Schedule
    methods: tuple[Method, ...]  # in acting order, so the order of writing makes no difference
    ranks: int = 1  # processes that train a run together: they change times and no bits, so no recipe's digest has them
    notes: tuple[str, ...] = ()  # what was decided here, and not in the recipe: no part of its digest

    def training(self) -> dict[str, Any]:
        """Return the keys `train` and `methods` of the canonical JSON form, every default written out."""
        numbers = {
            field.name: getattr(self.numbers, field.name)
            for field in fields(Numbers)
            if field.name not in LATER or getattr(self.numbers, field.name) != field.default
        }
        return {
            "train": {**numbers, "optimizer": written(self.optimizer), "schedule": written(self.schedule)},
            "methods": [written(method) for method in self.methods],
        }


def read_training(train: Any, methods: Any, *, where: str, code: Code = NO_CODE) -> tuple[Training, list[Method]]:
    """Return the settings from the form that `Training.training` writes, and the methods in the order of writing.

    `code` of other packages may be imported. Raises `RecipeError` that starts with `where`.
    """
    train = mapping(train, where=f"{where}: train", keys=TRAIN_KEYS, required=("epochs", "batch_size", "optimizer"))
    plain = {key: value for key, value in train.items() if key not in ("optimizer", "schedule", "ranks")}
    notes: tuple[str, ...] = ()
    if (asked := plain.get("precision", AUTO)) not in (AUTO, *get_args(Precision)):
        raise RecipeError(f"{where}: train.precision: {unknown('precision', str(asked), (AUTO, *get_args(Precision)))}")
    if plain.get("precision") == AUTO:
        plain["precision"], why = choose_precision(device(), hardware=hardware(threads=1).name)
        notes = (why,)
    numbers = check(Numbers, plain, where=f"{where}: train")
    if numbers.deterministic == "fast" and numbers.lanes > 1:
        raise RecipeError(
            f"{where}: train.deterministic: found 'fast' with 'lanes: {numbers.lanes}', which promise the same bits on"
            " any number of ranks: expected 'strict'"
        )
    ranks = check_ranks(train.get("ranks", 1), numbers, where=f"{where}: train.ranks")
    if not isinstance(methods, Sequence) or isinstance(methods, str):
        raise RecipeError(f"{where}: methods: found {type(methods).__name__}, expected a list of methods")
    # Errors name a method by its place in what was written; the recipe has the methods in acting order.
    chosen = [
        choose(METHODS, method, kind="method", where=f"{where}[{at}]", code=code) for at, method in enumerate(methods)
    ]
    try:
        in_order = ordered(chosen)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error
    return Training(
        numbers=numbers,
        optimizer=choose(
            OPTIMIZERS, train["optimizer"], kind="optimizer", where=f"{where}: train.optimizer", code=code
        ),
        schedule=choose(SCHEDULES, train["schedule"], kind="schedule", where=f"{where}: train.schedule", code=code)
        if "schedule" in train
        else Cosine(),
        methods=in_order,
        ranks=ranks,
        notes=notes,
    ), chosen


def check_ranks(ranks: Any, numbers: Numbers, *, where: str) -> int:
    """Return how many processes train a run together, which is at most one for each lane. Raises `RecipeError`."""
    if type(ranks) is not int or not 1 <= ranks <= numbers.lanes:
        most = f"1 to {numbers.lanes}, for the recipe has" if numbers.lanes > 1 else "1, for the recipe has"
        raise RecipeError(
            f"{where}: found {ranks!r:.40}, expected {most} 'lanes: {numbers.lanes}': every rank takes whole lanes"
        )
    return ranks


def check_serving(methods: Sequence[Method], modality: Modality, *, shown: str, where: str) -> None:
    """Check that the methods, in the order of writing, are for this kind of data, which `shown` describes."""
    serving = sorted(name for name, kind in METHODS.items() if modality in kind.modalities and name not in GOVERNED)
    for index, method in enumerate(methods):
        if modality not in method.modalities:
            works = " and ".join(MODALITIES[served] for served in sorted(method.modalities))
            raise RecipeError(
                f"{where}[{index}]: {method.name!r} works on {works}; {shown}; methods for {MODALITIES[modality]}:"
                f" {', '.join(serving)}"
            )


def mapping(value: Any, *, where: str, keys: Sequence[str], required: Sequence[str]) -> Mapping[str, Any]:
    """Return a mapping with these keys and no others. Raises `RecipeError` whose message starts with `where`."""
    if not isinstance(value, Mapping):
        raise RecipeError(f"{where}: found {type(value).__name__}, expected a mapping with {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise RecipeError(f"{where}: {unknown('key', str(key), keys)}")
    for key in required:
        if key not in value:
            raise RecipeError(f"{where}.{key}: missing: expected a value")
    return value
