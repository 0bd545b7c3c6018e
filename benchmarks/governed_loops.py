"""The steps that `governed_step.py` compares: plain, governed, and two other ways to the gradients of classes."""

import importlib
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from explorer.canonical import digest
from explorer.data.batches import Batches, Typing
from explorer.data.dataset import Dataset, DataSource, Provenance, Split, simulated
from explorer.data.images import Images
from explorer.data.sequences import Text
from explorer.engine.clock import Clock
from explorer.engine.loop import Loop, Setting
from explorer.engine.method import Method, ordered
from explorer.engine.optimizer import AdamWSpec, Constant, OptimizerSpec, SGDSpec, build_optimizer
from explorer.engine.task import TASKS
from explorer.entries.kinds import Genesis
from explorer.governance.contributions import Contributions
from explorer.governance.credentials import check
from explorer.governance.journal import Journal
from explorer.governance.recorder import Recorder
from explorer.governance.routing import Routing
from explorer.governance.shared_state import Session
from explorer.models.table import MODELS
from explorer.provenance import policy as policies
from explorer.provenance import taxonomy as taxonomies
from explorer.provenance.policy import Quarantine, RoutingPolicy, Rule, TaxonomyReference
from explorer.provenance.taxonomy import Taxonomy, TaxonomyClass
from explorer.recipes import machine
from explorer.runlog.documents import Documents, read_documents
from explorer.training.demonstration import demonstrate
from explorer.training.ledgered import session_of, stand_in

BATCH = 128
EXAMPLES = 1024
ISSUED, EXPIRES = "2026-01-01T00:00:00Z", "2031-01-01T00:00:00Z"
DEVICE = machine.device()
POLICY = "benchmark"
STEPS = 100_000  # announced, never reached


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise(DataSource):
    """Random examples in classes of equal size: what a step costs does not depend on what it reads."""

    name: ClassVar[str] = "noise"
    summary: ClassVar[str] = "random bytes"
    source: ClassVar[str] = "this benchmark"
    licence: ClassVar[str] = "none"

    modality: Literal["image", "text"]  # pyright: ignore[reportIncompatibleVariableOverride]
    shape: tuple[int, ...]
    provenance_classes: int

    def load(self, data: Path | None) -> Dataset:
        draws = torch.Generator().manual_seed(0)

        def random(count: int, shape: tuple[int, ...]) -> Tensor:
            return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=draws)

        def provenance(labels: Tensor) -> Provenance | None:
            return simulated(labels, classes=self.provenance_classes, name=self.name)

        if self.modality == "text":
            train, test = (random(count, (self.shape[0] + 1,)) for count in (EXAMPLES, 8))
            return Text.of(train, test, provenance=provenance(train[:, 0]))
        train, test = (
            Split(inputs=random(count, self.shape), labels=torch.randint(0, 10, (count,), generator=draws))
            for count in (EXAMPLES, 8)
        )
        channels = self.shape[0]
        mean, std = (0.5,) * channels, (0.25,) * channels
        return Images(train=train, test=test, classes=10, mean=mean, std=std, provenance=provenance(train.labels))

    def digest(self, data: Path | None) -> str:
        return digest({"modality": self.modality, "shape": list(self.shape), "classes": self.provenance_classes})


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Model, data and settings that all sides of a comparison train."""

    title: str
    model: str
    parameters: dict[str, str]
    optimizer: OptimizerSpec
    modality: Literal["image", "text"]
    shape: tuple[int, ...]
    window: int  # steps timed together
    sizes: tuple[int, ...]  # of the plain step's microbatches: those that are compared

    def dataset(self, classes: int) -> Noise:
        return Noise(modality=self.modality, shape=self.shape, provenance_classes=classes)

    def build(self, dataset: Dataset) -> nn.Module:
        spec = MODELS[self.model](**self.parameters)
        return spec.build(example_shape=dataset.example_shape, classes=dataset.classes)


RESNET = Work(
    title="ResNet-20 with GroupNorm, 3x32x32",
    model="resnet20",
    parameters={"norm": "group"},
    optimizer=SGDSpec(lr=0.1, weight_decay=5e-3),
    modality="image",
    shape=(3, 32, 32),
    window=2,
    sizes=(128, 64, 32, 16, 8),
)
GPT = Work(
    title="gpt-small, 64 places",
    model="gpt-small",
    parameters={},
    optimizer=AdamWSpec(lr=1e-3, weight_decay=0.1),
    modality="text",
    shape=(64,),
    window=1,
    sizes=(64, 32, 8),
)


def loop_of(work: Work, batches: Batches, methods: Sequence[Method], *, microbatch: int | None, **more: object) -> Loop:
    setting = Setting(
        model=work.build(batches.dataset),
        task=TASKS[batches.dataset.task](classes=batches.dataset.classes),
        batches=batches,
        optimizer=work.optimizer,
        schedule=Constant(),
        seed=0,
        total_steps=STEPS,
        full_steps=STEPS,
        microbatch_size=microbatch,
        **more,  # pyright: ignore[reportArgumentType]
    )
    return Loop(setting, ordered(methods), Clock(DEVICE, warmup_steps=0, split=False))


def plain(work: Work, microbatch: int) -> Loop:
    batches = Batches(work.dataset(0).load(None), batch_size=BATCH, seed=0, device=DEVICE)
    return loop_of(work, batches, (), microbatch=microbatch)


def documents_of(
    source: DataSource, dataset: Dataset, place: Path, *, denied: int, data: Path | None = None
) -> Documents:
    """Signed documents for simulated classes, the first of which are denied the lower half of the depth."""
    paths = dataset.provenance.classes if dataset.provenance else ()
    taxonomy = Taxonomy(
        format=taxonomies.FORMAT,
        name="simulated",
        version=1,
        issued=ISSUED,
        expires=EXPIRES,
        classes=tuple(
            TaxonomyClass(path=path, definition="Noise.", personal_data=False, source=taxonomies.Source.SYNTHETIC)
            for path in ("simulated", *paths)
        ),
    )
    lower = (Rule(classes=paths[:denied], depth=(0.0, 0.5), weight=0.0),) if denied else ()
    routing = RoutingPolicy(
        format=policies.FORMAT,
        name=POLICY,
        version=1,
        issued=ISSUED,
        expires=EXPIRES,
        taxonomy=TaxonomyReference(name=taxonomy.name, version=taxonomy.version, digest=taxonomy.digest),
        quarantine=Quarantine.REFUSE,
        rules=(*lower, Rule(classes=("*",), weight=1.0)),
    )
    now = int(time.time())
    directory = demonstrate(place, source, data=data, taxonomy=taxonomy, policies=[routing], now=now)
    return read_documents(directory, policy=POLICY, now=now)


def governed(work: Work, place: Path, *, classes: int, denied: int, stack: ExitStack) -> Loop:
    """A loop under routing, measured and recorded; the first classes are denied the lower half of the depth."""
    source = work.dataset(classes)
    dataset = source.load(None)
    documents = documents_of(source, dataset, place, denied=denied)
    found = check(documents, dataset.train)
    batches = Batches(
        dataset, batch_size=BATCH, seed=0, device=DEVICE, typing=Typing(codes=found.codes, names=found.names)
    )
    session = session_of(found)
    methods = (Routing(policy=POLICY), Contributions(), Recorder(every=STEPS))
    loop = loop_of(work, batches, methods, microbatch=None, resources={Session: session})
    run = place / f"run-{classes}-{denied}"
    run.mkdir()
    none = digest({})
    genesis = Genesis(
        run=run.name,
        recipe=none,
        code=none,
        environment=none,
        data=source.digest(None),
        tags={},
        taxonomy=found.tags.table.taxonomy,
        policy=None if found.routing is None else found.routing.policy.digest,
        trust=found.trust.digest,
        judged=found.judged,
        strategy="microbatch",
        seed=0,
        initial=none,
        classes=found.classes,
        layers=tuple(layer.name for layer in session.layers),
        begins=0,
        start=None,
        parents=(),
        blobs={},
    )
    journal = Journal.open(run, genesis=genesis, signer=stand_in(run.name), leaves=found.leaves)
    session.journal = stack.enter_context(journal)
    loop.call("before_fit")
    return loop


def by_hand(
    work: Work, classes: int
) -> tuple[nn.Module, torch.optim.Optimizer, Tensor, Callable[[Tensor, slice], Tensor]]:
    """A model, its optimiser, one batch, and the loss of each of some of its examples from their outputs."""
    dataset = work.dataset(classes).load(None)
    model = work.build(dataset)
    task = TASKS[dataset.task](classes=dataset.classes)
    inputs = dataset.preparation(DEVICE)(dataset.train.inputs[:BATCH])
    labels = dataset.train.labels[:BATCH].to(DEVICE, torch.int64)
    return (
        model,
        build_optimizer(work.optimizer, model.parameters()),
        inputs,
        lambda out, rows: task.loss(out, labels[rows]),
    )


def mixed_graph(work: Work, classes: int) -> Callable[[], None]:
    """One forward pass over the mixed batch, and a backward pass over all of it for each class."""
    model, optimizer, inputs, losses = by_hand(work, classes)
    parameters = list(model.parameters())

    def step() -> None:
        by_class = losses(model(inputs), slice(None)).view(-1, classes).sum(0) / BATCH
        for index in range(classes):
            found = torch.autograd.grad(by_class[index], parameters, retain_graph=index < classes - 1)
            for parameter, gradient in zip(parameters, found, strict=True):
                parameter.grad = gradient if index == 0 or parameter.grad is None else parameter.grad + gradient
        optimizer.step()

    return step


def single_examples(work: Work, classes: int, *, microbatch: int) -> Callable[[], None]:
    """The gradient of every example by Opacus, summed class by class."""
    opacus: Any = importlib.import_module("opacus")  # of the extra `bench`, which a type checker may not have

    model, optimizer, inputs, _ = by_hand(work, classes)
    labels = torch.arange(BATCH) % 10
    wrapped, parameters = opacus.GradSampleModule(model, loss_reduction="sum"), list(model.parameters())

    def step() -> None:
        total = [torch.zeros(classes, parameter.numel()) for parameter in parameters]
        for start in range(0, BATCH, microbatch):
            rows = slice(start, start + microbatch)
            (nn.functional.cross_entropy(wrapped(inputs[rows]), labels[rows], reduction="sum") / BATCH).backward()
            for parameter, sums in zip(parameters, total, strict=True):
                single = parameter.grad_sample  # pyright: ignore[reportAttributeAccessIssue]
                sums += single.view(-1, classes, parameter.numel()).sum(0)
                parameter.grad_sample = None  # pyright: ignore[reportAttributeAccessIssue]
        for parameter, sums in zip(parameters, total, strict=True):
            parameter.grad = sums.sum(0).view_as(parameter)
        optimizer.step()

    return step
