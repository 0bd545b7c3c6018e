"""The records of a dataset's training side, as its maker knows them: what a tag table of it is made from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from explorer.data.dataset import DataSource
from explorer.data.sources import DATASETS, load
from explorer.document import read_document
from explorer.errors import DataError, RecipeError
from explorer.provenance.tag_records import Record
from explorer.recipes.choice import choose

FILES = (".yaml", ".yml")


def dataset_of(written: str) -> DataSource:
    """The dataset of this name, or that of a recipe or sweep file. Raises `RecipeError` or `SpecError`."""
    if not written.endswith(FILES):
        return choose(DATASETS, written, kind="dataset", where="dataset")
    content: Any = read_document(Path(written)).value
    task = content.get("task") if isinstance(content, dict) else None
    if not isinstance(task, dict) or "dataset" not in task:
        raise RecipeError(f"{written}: task.dataset: missing: expected the dataset to tag")
    return choose(DATASETS, task["dataset"], kind="dataset", where=f"{written}: task.dataset")


def records_of(source: DataSource, *, data: Path | None, authority: str) -> Iterator[Record]:
    """One record a training example, in order. Raises `DataError` for a dataset that does not know where its examples
    come from."""
    dataset = load(source, data)
    found = dataset.provenance
    if found is None:
        raise DataError(
            f"dataset {source.name!r} does not know where its examples come from, so nothing can be said about them;"
            " imagefolder, parquet and text take a table or column of yours; digits, cifar10 and clutter have a"
            " simulated division: {digits: {simulated_classes: 4}}"
        )
    paths = [found.classes[code] for code in found.codes.tolist()]
    return (
        Record(dataset.train.content(slot), path, origin, authority)
        for slot, (path, origin) in enumerate(zip(paths, found.sources, strict=True))
    )
