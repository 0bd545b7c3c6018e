"""A package of somebody's own, with a method, written where a test wants it: importing it leaves a mark."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from explorer import plugins

MARK = "imported"  # the file that importing the package leaves in its directory

METHOD = '''\
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field

from explorer.engine.method import Kind, Method
from explorer.engine.state import State

Path(__file__).with_name("imported").touch()


@dataclass(frozen=True, kw_only=True, slots=True)
class Damped(Method):
    """Gradients are multiplied by a factor."""

    name: ClassVar[str] = "damped"
    kind: ClassVar[Kind] = Kind.GRADIENT
    summary: ClassVar[str] = "Multiplies gradients by a factor."
    source: ClassVar[str] = "no paper"
    formula: ClassVar[str] = "g <- factor g"
    changes: ClassVar[str] = "the gradients"
    routing: ClassVar[str] = "Every gradient is multiplied by itself."

    factor: Annotated[float, Field(gt=0, le=1, description="factor on every gradient")] = 0.5

    def neutral(self) -> Self:
        return type(self)(factor=1.0)

    def change_gradients(self, state: State) -> None:
        for parameter in state.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(self.factor)


@dataclass(frozen=True, kw_only=True, slots=True)
class MixUp(Damped):
    """A name that is taken."""

    name: ClassVar[str] = "mixup"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsaid(Method):
    """A method that does not declare itself."""

    name: ClassVar[str] = "unsaid"


@dataclass(frozen=True, kw_only=True, slots=True)
class Elsewhere(Damped):
    """A name that would lead out of a directory."""

    name: ClassVar[str] = "../damped"


class Changing:
    """Not a method."""
'''


DATASET = '''\
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from explorer.data.dataset import DataSource, Fitted, Modality, Split
from explorer.data.images import Images
from explorer.engine.task import Task
from explorer.models.specification import ModelSpec
from explorer.run_files import Metric


@dataclass(frozen=True, kw_only=True, slots=True)
class Brightness(Task):
    """The mean of an image, as a number."""

    declares: ClassVar[tuple[Metric, ...]] = (Metric(name="mean_error", unit="1", higher_is_better=False),)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.squeeze(1) - targets / 255).square()

    @torch.no_grad()
    def evaluate(self, model, batches) -> dict[str, float]:
        model.eval()
        test = batches.dataset.test
        outputs = model(batches.prepare(test.inputs)).squeeze(1)
        return {"mean_error": float((outputs - test.labels / 255).abs().mean())}


@dataclass(frozen=True, kw_only=True, slots=True)
class Lamps(DataSource):
    """Images of one grey."""

    name: ClassVar[str] = "lamps"
    summary: ClassVar[str] = "images of one grey"
    source: ClassVar[str] = "computed"
    licence: ClassVar[str] = "CC0-1.0"
    modality: ClassVar[Modality] = "image"
    task: ClassVar[str] = "brightness"
    fitted: ClassVar[Fitted] = {}
    metrics: ClassVar[tuple[str, ...]] = ("mean_error",)
    own_task: ClassVar[type[Task]] = Brightness

    def load(self, data: Path | None) -> Images:
        labels = torch.arange(64) * 4
        side = Split(inputs=labels.to(torch.uint8).reshape(-1, 1, 1, 1).repeat(1, 1, 8, 8), labels=labels)
        return Images(train=side, test=side, classes=1, mean=(0.5,), std=(0.3,))

    def digest(self, data: Path | None) -> str:
        return hashlib.sha256(b"lamps").hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Undeclared(Lamps):
    """A metric that nobody declares."""

    name: ClassVar[str] = "undeclared"
    metrics: ClassVar[tuple[str, ...]] = ("mean_eror",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Flat(ModelSpec):
    """A linear layer."""

    name: ClassVar[str] = "flat"
    takes: ClassVar[Modality] = "image"
    task: ClassVar[str] = "brightness"

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
'''

MODEL = '''\
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import nn

from explorer.data.dataset import Modality, TaskName
from explorer.models.specification import ModelSpec

Path(__file__).with_name("imported").touch()


@dataclass(frozen=True, kw_only=True, slots=True)
class Dense(ModelSpec):
    """Three linear layers."""

    name: ClassVar[str] = "dense"
    takes: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"

    width: int = 16

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        layers = OrderedDict(flat=nn.Flatten(), first=nn.Linear(64, self.width), rest=nn.ReLU())
        layers |= OrderedDict(second=nn.Linear(self.width, self.width), bend=nn.ReLU())
        return nn.Sequential(layers | OrderedDict(head=nn.Linear(self.width, classes)))
'''

SECTION = '''\
from typing import ClassVar

from explorer.page.document import Heading, Paragraph
from explorer.report.section import Section
from explorer.schema import record


@record
class Power:
    """The power that a sweep drew."""

    watts: float


class PowerSection(Section):
    """A section about power."""

    record = Power
    report: ClassVar[str] = "sweep"

    def gather(self, subject):
        return Power(watts=123.0)

    def blocks(self, record, subject):
        return [Heading(2, "Power", "power"), Paragraph(f"The machine drew {record.watts:g} watts.")]
'''


def write_package(place: Path, name: str) -> Path:
    """Write the package below `place` and return its directory."""
    package = place / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "methods.py").write_text(METHOD)
    (package / "lamps.py").write_text(DATASET)
    (package / "nets.py").write_text(MODEL)
    (package / "power.py").write_text(SECTION)
    return package


def install(place: Path, name: str, points: str, version: str = "1.2.3") -> None:
    """Write what pip leaves of an installed distribution with these entry points."""
    about = place / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(points)


def forget(*names: str) -> None:
    """Make this process as if it had never imported these packages."""
    for module in [module for module in sys.modules if plugins.top_of(module) in names]:
        del sys.modules[module]
    for name in names:
        plugins._loaded.pop(name, None)


@contextmanager
def clean_imports(*names: str) -> Iterator[None]:
    """Leave the search path and the imported modules as they were."""
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = before
        forget(*names)
