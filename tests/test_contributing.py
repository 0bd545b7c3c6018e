"""CONTRIBUTING.md names every file that an addition touches: one of each kind is added by these files, and works."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.frozen.make import ARCHIVE, GOVERNED, HERE, RUN, TRUST, resolve, write_private

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
Change = str | tuple[tuple[str, str], ...]  # a new file, or patterns of an old one with what each becomes

METHOD = '''\
from dataclasses import dataclass
from typing import ClassVar

from explorer.engine.method import Kind, Method
from explorer.engine.state import State
{more}

@dataclass(frozen=True, kw_only=True, slots=True)
class {cls}(Method):
    """An addition."""

    name: ClassVar[str] = "{name}"
    kind: ClassVar[Kind] = Kind.TARGET
    summary: ClassVar[str] = "Halves every loss target."
    source: ClassVar[str] = "no paper"
    formula: ClassVar[str] = "t / 2"
    changes: ClassVar[str] = "the targets of the loss"
    routing: ClassVar[str] = "Every target is halved by itself."
    makes_dense: ClassVar[bool] = True
{traits}
    def before_loss(self, state: State) -> None:
        {body}
'''
DATASET = '''\
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from explorer.data.dataset import DataSource, Fitted, Modality, Split, TaskName
from explorer.data.images import Images


@dataclass(frozen=True, kw_only=True, slots=True)
class Stripes(DataSource):
    """Light and dark."""

    name: ClassVar[str] = "stripes"
    summary: ClassVar[str] = "light and dark images"
    source: ClassVar[str] = "computed"
    licence: ClassVar[str] = "CC0-1.0"
    modality: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"
    fitted: ClassVar[Fitted] = {"normalisation": "none"}
    metrics: ClassVar[tuple[str, ...]] = ("error_rate", "nll")

    def load(self, data: Path | None) -> Images:
        labels = torch.arange(64) % 2
        side = Split(inputs=(labels * 200).to(torch.uint8).reshape(-1, 1, 1, 1).repeat(1, 1, 8, 8), labels=labels)
        return Images(train=side, test=side, classes=2, mean=(0.4,), std=(0.4,))

    def digest(self, data: Path | None) -> str:
        return hashlib.sha256(b"stripes").hexdigest()
'''
MODEL = '''\
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from explorer.models.specification import Modality, ModelSpec, TaskName


class Plain(nn.Module):
    def __init__(self, numbers: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(numbers, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1))


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainSpec(ModelSpec):
    """One affine map."""

    name: ClassVar[str] = "plain"
    takes: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, height, width = example_shape
        return Plain(channels * height * width, classes)


FAMILY = (PlainSpec,)
'''
SECTION = '''\
from explorer.page.document import Block, Heading, Paragraph
from explorer.report.{part}.reported_{part} import Reported{cls}
from explorer.report.section import Section
from explorer.schema import record


@record
class AddedRecord:
    """An addition."""

    added: str


class AddedSection(Section[Reported{cls}, AddedRecord]):
    """An addition."""

    record = AddedRecord

    def gather(self, subject: Reported{cls}) -> AddedRecord:
        return AddedRecord(added="here it is")

    def blocks(self, record: AddedRecord, subject: Reported{cls}) -> list[Block]:
        return [Heading(2, "An addition", "addition"), Paragraph(record.added)]
'''
PANEL = '''\
from collections.abc import Callable

import ipywidgets as widgets

from explorer.views.explorer.answer import Answer
from explorer.views.explorer.tabs.sections import Section
from explorer.views.explorer.snapshot import Snapshot


class AddedSection(Section):
    """An addition."""

    key, title = "added", "Added"

    def __init__(self, ask: Callable[..., None]) -> None:
        self.shown = widgets.HTML()
        super().__init__(ask, [self.shown])

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        self.shown.value = f"{len(answer.rows)} runs"
'''
OPEN_IT = """
from explorer.views.explore import explore
view = explore("runs", sweep="frozen", section="added")
print(view._sections.opened.value, view._sections.by_key["added"].shown.value)
"""
FIELD = """
[[fields]]
name = "an addition"
reference = "policy"
verified = true
asks = "What was added?"
answer = "policy_versions"
"""
VERB = '''\
from typing import Annotated

import typer


def greet(name: Annotated[str, typer.Argument(help="Of the person.")]) -> None:
    """Greet somebody."""
    print(f"hello, {name}")
'''


SECTIONS = r"SECTIONS[^=\n]*= \("


def line(table: str, imported: str, item: str) -> Change:
    """Return the change that imports a thing above a table and lists it first."""
    above = ((r"\n\n(?=[A-Z_]+(: .*)? = )", f"\n{imported}\n\n"),) if imported else ()
    return (*above, (table, rf"\g<0>\n{item},"))


ADDITIONS: dict[str, dict[str, Change]] = {
    "A method": {
        "explorer/methods/halved.py": METHOD.format(
            more="from explorer.data.batches import dense\n",
            cls="Halved",
            name="halved",
            traits="",
            body="state.loss_targets = dense(state.loss_targets, classes=state.classes) / 2",
        ),
        "explorer/methods/__init__.py": line(
            r"for method in \(", "from explorer.methods.halved import Halved", "Halved"
        ),
    },
    "A governed method": {
        "explorer/governance/onlooker.py": METHOD.format(
            more="from explorer.entries.kinds import Traits\n",
            cls="Onlooker",
            name="onlooker",
            traits='    traits: ClassVar[Traits] = Traits(remembers="classes")\n',
            body="pass",
        ).replace("    makes_dense: ClassVar[bool] = True\n", ""),
        "explorer/governance/__init__.py": line(
            r"_ALL[^=]*= \(", "from explorer.governance.onlooker import Onlooker", "Onlooker"
        ),
    },
    "A metric": {
        "explorer/run_files.py": line(
            r"for metric in \(", "", 'Metric(name="error_rate", unit="fraction", higher_is_better=False)'
        ),
        "explorer/engine/task.py": (
            ('return {"accuracy": right', 'return {"error_rate": 1 - right / len(test), "accuracy": right'),
        ),
    },
    "A dataset": {
        "explorer/data/stripes.py": DATASET,
        "explorer/data/sources.py": line(r"for source in \(", "from explorer.data.stripes import Stripes", "Stripes"),
    },
    "A model": {
        "explorer/models/plain.py": MODEL,
        "explorer/models/table.py": line(r"FAMILIES = \(", "from explorer.models import plain", "plain.FAMILY"),
    },
    "A section of the run report": {
        "explorer/report/run/added_section.py": SECTION.format(part="run", cls="Run"),
        "explorer/report/run_report.py": line(
            SECTIONS, "from explorer.report.run.added_section import AddedSection", "AddedSection()"
        ),
    },
    "A section of the sweep report": {
        "explorer/report/sweep/added_section.py": SECTION.format(part="sweep", cls="Sweep"),
        "explorer/report/sweep_report.py": line(
            SECTIONS, "from explorer.report.sweep.added_section import AddedSection", "AddedSection()"
        ),
    },
    "A section of the explorer notebook": {
        "explorer/views/explorer/tabs/added_section.py": PANEL,
        "explorer/views/explore.py": line(
            SECTIONS, "from explorer.views.explorer.tabs.added_section import AddedSection", "AddedSection"
        ),
    },
    "A form field": {"explorer/report/forms/7_unasked.toml": ((r"\n\[\[fields\]\]\n", f"{FIELD}\n[[fields]]\n"),)},
    "A CLI verb": {
        "explorer/cli/greet.py": VERB,
        "explorer/cli/verbs.py": line(r"VERBS[^=]*= \{.*", "", '"greet": ("greet:greet", "Greet somebody.")'),
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with every addition, and the frozen project to use it on."""
    place = tmp_path_factory.mktemp("added")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "explorer", place / "explorer", ignore=ignored)
    for changes in ADDITIONS.values():
        for name, change in changes.items():
            write(place / name, change)
    with tarfile.open(HERE / ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    return place


def write(path: Path, change: Change) -> None:
    """Write a new file, or change one that is there, at the first place of each pattern."""
    if isinstance(change, str):
        assert not path.exists()
        path.write_text(change)
        return
    text = path.read_text()
    for old, new in change:
        text, changed = re.subn(old, new, text, count=1)
        assert changed, f"{path}: {old}"
    path.write_text(text)


def explorer(place: Path, *arguments: object) -> str:
    """Run a verb of the changed package and return what it printed."""
    return run_python(place, "from explorer.__main__ import main; main()", *arguments)


def run_python(place: Path, program: str, *arguments: object) -> str:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(place), "COLUMNS": "120"}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_guide_has_no_other_kinds() -> None:
    assert re.findall(r"^## (.+)$", GUIDE, re.M) == list(ADDITIONS)


@pytest.mark.parametrize("title", ADDITIONS)
def test_the_listed_files_are_those_that_change(title: str) -> None:
    section = GUIDE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\d+\. `([^`]+)`:", section, re.M)
    assert len(listed) == len(ADDITIONS[title])
    for pattern, path in zip(listed, ADDITIONS[title], strict=True):
        assert fnmatch(path, pattern.replace("NAME", "*")), (pattern, path)


@pytest.mark.slow
def test_method_metric_dataset_and_model_make_a_run(place: Path) -> None:
    assert "formula    t / 2" in explorer(place, "methods", "halved")
    recipe = {
        "task": {"dataset": "stripes", "model": "plain"},
        "train": {"epochs": 2, "batch_size": 16, "optimizer": {"sgd": {"lr": 0.1}}},
        "methods": ["halved"],
    }
    (place / "added.yaml").write_text(json.dumps(recipe))
    explorer(place, "run", "added.yaml", "--out", "ran")
    (run,) = (place / "ran").iterdir()
    record, result = (json.loads((run / name).read_text()) for name in ("run.json", "result.json"))
    assert (record["dataset"], record["model"], record["methods"]) == ("stripes", "plain", ["halved"])
    assert record["quality"] == "error_rate" and 0 <= result["metrics"]["error_rate"] <= 1


@pytest.mark.slow
def test_a_governed_method_makes_a_governed_run(place: Path) -> None:
    write_private(place / "governed" / "trainer.pem", "trainer")
    (place / "more.yaml").write_text(GOVERNED.replace("  - contributions\n", "  - contributions\n  - onlooker\n"))
    explorer(place, "run", "more.yaml", "--out", "ran-governed")
    (run,) = (place / "ran-governed").iterdir()
    genesis = json.loads(explorer(place, "ledger", "show", run / "ledger", "--json").splitlines()[0])["entry"]
    assert genesis["methods"]["onlooker"]["remembers"] == "classes"
    explorer(place, "delete", "plan", run, "simulated/class-02")


@pytest.mark.slow
@pytest.mark.parametrize("subject", ["run", "sweep"])
def test_a_section_is_in_the_report(place: Path, subject: str) -> None:
    asked = ("report", resolve(place, RUN), *TRUST) if subject == "run" else ("report", "frozen")
    explorer(place, *asked, "--format", "json", "--out", "report.json")
    document = json.loads((place / "report.json").read_text())
    assert document["added"] == "here it is"
    if subject == "run":
        assert "an addition" in (field["name"] for form in document["forms"] for field in form["fields"])
    explorer(place, *asked, "--format", "md", "--out", "report.md")
    assert "An addition\n\nhere it is\n" in (place / "report.md").read_text()


@pytest.mark.slow
def test_a_section_is_in_the_explorer(place: Path) -> None:
    explorer(place, "store", "ingest")
    assert run_python(place, OPEN_IT) == "added 8 runs\n"


def test_a_verb_is_listed_and_runs(place: Path) -> None:
    assert re.search(r"^  greet +Greet somebody", explorer(place, "--help"), re.M)
    assert explorer(place, "greet", "world") == "hello, world\n"
