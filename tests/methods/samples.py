"""Under what each method is tried by the battery: a line a method."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from explorer.data.dataset import DataSource
from explorer.data.sources import DATASETS, load
from explorer.engine.loop import Loop
from explorer.methods import METHODS
from explorer.recipes.choice import choose
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.training.run import build_loop
from explorer.training.run_plan import plan_run

STEPS, BATCH = 7, 32
ROOT = Path(__file__).parents[2]  # the data directory: the text is this project's README
TASKS: dict[str, dict[str, Any]] = {
    "digits": {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}},
    "text": {
        "dataset": {"text": {"path": "README.md", "context": 32}},
        "model": {"gpt": {"depth": 2, "width": 16, "heads": 2, "dropout": 0.1}},
    },
}
GROUPED = {"resnet8": {"width": 0.5, "norm": "group"}}
OTHERS: dict[str, dict[str, Any]] = {  # what a method says it works on is tried as well
    "clutter": {
        "dataset": {"clutter": {"size": 16, "examples": 256}},
        "model": {"unet": {"width": 8, "levels": 2, "norm": "batch"}},
    },
    "clutter3d": {
        "dataset": {"clutter3d": {"size": 16, "depth": 8, "examples": 64}},
        "model": {"unet3d": {"width": 8, "levels": 2, "norm": "batch"}},
    },
    "iris": {
        "dataset": {"tabular": {"path": "tests/data/iris.csv", "target": "target"}},
        "model": {"mlp": {"width": 16, "depth": 2}},
    },
}
MODALITY = {"digits": "image", "text": "text"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A method in a run of seven steps, in every part of which it acts."""

    parameters: dict[str, Any] = field(default_factory=dict)
    task: str = "digits"  # in TASKS; what works on images and on text is tried on images
    model: Any = None  # instead of the task's
    train: dict[str, Any] = field(default_factory=dict)  # beside the usual settings
    neutral: bool = True  # whether there is a zero strength that is bit-identical to leaving it out
    changes: bool = True  # whether the bits differ from the plain run's, under these parameters
    only: bool = False  # the models of the other tasks have nothing that it could change


SAMPLES: dict[str, Sample] = {
    "alibi": Sample(task="text", parameters={"train_length": 0.5}, neutral=False),
    "augmix": Sample(parameters={"width": 2, "depth": 1}),
    "batch_size_warmup": Sample(parameters={"initial": 0.25, "stages": 2, "duration": 0.6}),
    "blurpool": Sample(neutral=False),
    "channels_last": Sample(neutral=False),
    "colout": Sample(parameters={"finetune": 0.3}),
    "compile": Sample(parameters={"backend": "aot_eager"}, neutral=False, changes=False),
    "cutmix": Sample(),
    "cutout": Sample(),
    "ema": Sample(parameters={"half_life": 0.2, "every": 2}),
    "factorize": Sample(parameters={"min_channels": 8, "linear_rank": 2, "min_features": 4}, neutral=False),
    "gated_linear_units": Sample(task="text", neutral=False, only=True),
    "ghost_batchnorm": Sample(parameters={"size": 4}),
    "gradient_clipping": Sample(parameters={"threshold": 0.1}),
    "gyro_dropout": Sample(parameters={"masks": 4, "together": 2}),
    "label_smoothing": Sample(),
    "layer_freezing": Sample(parameters={"start": 0.2, "level": 0.9}),
    "low_precision_groupnorm": Sample(model=GROUPED, train={"precision": "bf16"}, neutral=False),
    "low_precision_layernorm": Sample(task="text", train={"precision": "bf16"}, neutral=False, only=True),
    "mixup": Sample(),
    "muon": Sample(neutral=False),
    "progressive_resizing": Sample(parameters={"delay": 0.3, "finetune": 0.3, "increment": 2}),
    "randaugment": Sample(),
    "random_subset": Sample(parameters={"start": 0.2, "end": 0.9, "interrupt": 3}),
    "rotary": Sample(task="text", neutral=False, only=True),
    "sam": Sample(parameters={"rho": 0.5, "interval": 2}),
    "schedule_free": Sample(parameters={"lr": 1.0, "warmup": 0.3}, train={"schedule": "constant"}, neutral=False),
    "selective_backprop": Sample(parameters={"start": 0.2, "end": 0.9, "interrupt": 3}),
    "seq_length_warmup": Sample(task="text", parameters={"duration": 0.8}),
    "squeeze_excite": Sample(neutral=False),
    "stochastic_depth": Sample(parameters={"rate": 0.5, "warmup": 0.3}),
    "swa": Sample(parameters={"start": 0.3, "end": 0.9, "interval": 0.2, "lr": 0.5}, neutral=False),
    "weight_standardization": Sample(neutral=False),
    "whitening": Sample(neutral=False),
}


def active(name: str) -> dict[str, Any]:
    """The method as a recipe writes it."""
    return {name: SAMPLES[name].parameters}


def task_of(*names: str) -> str | None:
    """The task on which these methods are tried together; None: there is no data that they all work on."""
    shared = frozenset.intersection(*(METHODS[name].modalities for name in names))
    wanted = [SAMPLES[name].task for name in names]
    fixed = {SAMPLES[name].task for name in names if SAMPLES[name].only}
    return next((task for task in (*wanted, *TASKS) if MODALITY[task] in shared and fixed <= {task}), None)


def sample_recipe(
    methods: list[Any], *, like: tuple[str, ...], task: str | None = None, steps: int = STEPS, **settings: Any
) -> Recipe:
    """A recipe with these methods, under what the methods `like` are tried with; `settings` of training beside them."""
    task = task or task_of(*like)
    assert task is not None
    chosen = dict((TASKS | OTHERS)[task])
    train: dict[str, Any] = {"batch_size": BATCH, "optimizer": {"sgd": {"lr": 0.1, "weight_decay": 5e-3}}}
    for name in like:
        train |= SAMPLES[name].train | settings
        if SAMPLES[name].model and SAMPLES[name].task == task:
            chosen["model"] = SAMPLES[name].model
    source: DataSource = choose(DATASETS, chosen["dataset"], kind="dataset", where="test")
    train["epochs"] = steps * train["batch_size"] / len(load(source, ROOT).train)
    return build_recipe("tiny", task=chosen, train=train, methods=methods, where="test")


def sample_loop(methods: list[Any], **sample: Any) -> Loop:
    """The loop of that recipe."""
    recipe = sample_recipe(methods, **sample)
    run = plan_run(recipe, sweep="t", baseline="tiny", tuning=None, ssr=1.0, seed=0, threads=1, data=ROOT)
    return build_loop(run, data=ROOT)
