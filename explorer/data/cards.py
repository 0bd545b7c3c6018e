"""Dataset cards: description, size, origin, classes, provenance and skipped files, also as MLCommons Croissant."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import torch
from pydantic.fields import FieldInfo

from explorer.data.dataset import DataFile, Dataset, DataSource, Provenance, Skipped, Split, TableColumn
from explorer.data.sources import load
from explorer.provenance.description import Column, File, Records, croissant
from explorer.schema import given


@dataclass(frozen=True, kw_only=True, slots=True)
class Class:
    """A label, and how many examples have it, or pixels where every pixel has a label."""

    name: str
    train: int
    test: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """A provenance class, and how many training examples have it."""

    path: str
    examples: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """A loaded dataset with its parameters and counts. The shape is that of one input; bytes are those in memory."""

    name: str
    summary: str
    description: str
    source: str
    licence: str
    modality: str
    task: str
    metrics: tuple[str, ...]
    parameters: Mapping[str, Any]
    digest: str
    train: int  # examples
    test: int
    shape: tuple[int, ...]
    bytes: int  # inputs and labels of both sides
    tokens: tuple[int, int] | None  # training and test side, of text
    vocabulary: int | None  # of text
    counted: str | None  # what `classes` counts: "examples", "pixels" or "voxels"
    classes: tuple[Class, ...]  # none for text
    provenance: tuple[Branch, ...]
    simulated: bool  # the provenance is simulated
    skipped: tuple[Skipped, ...]
    target: tuple[float, float] | None = None  # mean and standard deviation of a number on the training side
    columns: tuple[TableColumn, ...] = ()  # of a table: those that became features


def card(source: DataSource, data: Path | None) -> Card:
    """Return the card. Raises `DataError` if the dataset cannot be loaded."""
    dataset = load(source, data)
    text = dataset.task == "language"
    return Card(
        name=source.name,
        summary=source.summary,
        description=inspect.cleandoc(source.__doc__ or ""),
        source=source.source,
        licence=source.licence,
        modality=source.modality,
        task=source.aim,
        metrics=source.measures,
        parameters=given(source),
        digest=source.digest(data),
        train=len(dataset.train),
        test=len(dataset.test),
        shape=dataset.example_shape,
        bytes=_bytes(dataset.train) + _bytes(dataset.test),
        tokens=(dataset.train.labels.numel(), dataset.test.labels.numel()) if text else None,
        vocabulary=dataset.classes if text else None,
        counted=None if text else _counted(dataset),
        classes=() if text or dataset.task == "regression" else _classes(dataset),
        provenance=_branches(dataset.provenance),
        simulated=dataset.provenance is not None and dataset.provenance.simulated,
        skipped=dataset.skipped,
        target=(dataset.centre, dataset.scale) if dataset.task == "regression" else None,
        columns=dataset.columns,
    )


def _meaning(hint: Any) -> str:
    """Return the purpose of a parameter, where its field states one."""
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((extra.description for extra in extras if isinstance(extra, FieldInfo) and extra.description), "")


def describe(kind: type[DataSource]) -> dict[str, Any]:
    """Return a description of a dataset and its parameters, as JSON, without loading it."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        "name": kind.name,
        "summary": kind.summary,
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "source": kind.source,
        "licence": kind.licence,
        "modality": kind.modality,
        "task": kind.task,
        "metrics": list(kind.metrics),
        "parameters": [
            {
                "name": field.name,
                "required": field.default is MISSING,
                "default": None if field.default is MISSING else field.default,
                "meaning": _meaning(hints[field.name]),
            }
            for field in fields(kind)
        ],
    }


def _bytes(split: Split) -> int:
    return split.inputs.numel() * split.inputs.element_size() + split.labels.numel() * split.labels.element_size()


def _counted(dataset: Dataset) -> str:
    if dataset.task != "segmentation":
        return "examples"
    return "voxels" if dataset.modality == "volume" else "pixels"


def _classes(dataset: Dataset) -> tuple[Class, ...]:
    names = dataset.names or tuple(map(str, range(dataset.classes)))
    train, test = dataset.counts or (
        split.labels[:].sum(0).int().tolist()
        if dataset.task == "multilabel"
        else torch.bincount(split.labels[:].flatten(), minlength=dataset.classes).tolist()
        for split in (dataset.train, dataset.test)
    )
    return tuple(Class(name=name, train=a, test=b) for name, a, b in zip(names, train, test, strict=True))


def _branches(provenance: Provenance | None) -> tuple[Branch, ...]:
    if provenance is None:
        return ()
    counts = np.bincount(provenance.codes, minlength=len(provenance.classes)).tolist()
    return tuple(Branch(path=path, examples=count) for path, count in zip(provenance.classes, counts, strict=True))


# --- the card as MLCommons Croissant ---------------------------------------------------------------------------------

MOST = 1_000  # files that are listed
COUNTED = Column(name="counted", type="sc:Text", description="The unit of the numbers.")
TRAIN = Column(name="train", type="sc:Integer", description="Number on the training side.")
TEST = Column(name="test", type="sc:Integer", description="Number on the test side.")
SIMULATED = "Simulated provenance: this data has no real sources; the provenance classes were cut for demonstration."


def as_croissant(card: Card, files: Sequence[DataFile]) -> str:
    """Return the card as a Croissant document. The licence is quoted as the dataset's makers state it, even if it is
    "not stated"."""
    left = len(files) - MOST
    more = f"\n\n{left:,} more files are not listed; the identifier covers all of them." if left > 0 else ""
    document = croissant(
        name=card.name,
        description=f"{card.summary}\n\n{card.description}{more}",
        facts={
            "identifier": f"sha256:{card.digest}",
            "license": card.licence,
            "isBasedOn": card.source,
            "keywords": [card.modality, card.task],
            "rai:dataLimitations": SIMULATED if card.simulated else None,
        },
        files=[File(path=file.path, sha256=file.sha256, encoding=file.media) for file in files[:MOST]],
        records=[_sides(card), _labels(card), _provenance(card)],
    )
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _sides(card: Card) -> Records:
    counts = {"examples": (card.train, card.test)} | ({"tokens": card.tokens} if card.tokens else {})
    return Records(
        name="sides",
        description="Both sides of the split.",
        columns=(COUNTED, TRAIN, TEST),
        key=COUNTED.name,
        rows=[{COUNTED.name: what, TRAIN.name: train, TEST.name: test} for what, (train, test) in counts.items()],
    )


def _labels(card: Card) -> Records:
    return Records(
        name="labels",
        description=f"The labels, with the number of {card.counted or 'examples'} that have each.",
        columns=(Column(name="label", type="sc:Text", description="Its name."), TRAIN, TEST),
        key="label",
        rows=[{"label": label.name, TRAIN.name: label.train, TEST.name: label.test} for label in card.classes],
    )


def _provenance(card: Card) -> Records:
    return Records(
        name="provenance",
        description="Classes of the origin of training examples, as stated by the makers of the dataset, unsigned.",
        columns=(Column(name="class", type="sc:Text", description="A class of a taxonomy."), TRAIN),
        key="class",
        rows=[{"class": line.path, TRAIN.name: line.examples} for line in card.provenance],
    )
