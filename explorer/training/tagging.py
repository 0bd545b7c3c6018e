"""The sources of a tag table: the records that a dataset keeps of its examples, or your own tensors.

    examples = explorer.Split(inputs=x, labels=y)
    explorer.tag(examples, classes, authority="example.com/data-governance", documents="governed")
    # explorer tags sign governed/tags.parquet --description dataset.yaml --taxonomy governed/taxonomy.json \\
    #     --key dg.pem --trust governed/trust.json --out governed/tags.json
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from explorer.data.dataset import DataSource, Split
from explorer.data.shards.shards import Shards
from explorer.data.sources import DATASETS, load
from explorer.errors import DataError, ErasedError, ProvenanceError, RecipeError
from explorer.provenance.spellings import CLASS_PATTERN
from explorer.provenance.tag_records import Record, write_tagged
from explorer.recipes.choice import choose
from explorer.runlog.documents import SALTS_FILE, TABLE_FILE
from explorer.yaml_document import read_document

FILES = (".yaml", ".yml")


def dataset_of(written: str) -> DataSource:
    """Return the dataset of this name, or that of a recipe or sweep file. Raises `RecipeError` or `SpecError`."""
    if not written.endswith(FILES):
        return choose(DATASETS, written, kind="dataset", where="dataset", code=None)
    content: Any = read_document(Path(written)).value
    task = content.get("task") if isinstance(content, dict) else None
    if not isinstance(task, dict) or "dataset" not in task:
        raise RecipeError(f"{written}: task.dataset: missing: expected the dataset to tag")
    return choose(DATASETS, task["dataset"], kind="dataset", where=f"{written}: task.dataset", code=None)


def records_of(source: DataSource, *, data: Path | None, authority: str) -> Iterator[Record]:
    """Return one record for each training example, in order; of one that was erased, without its content. Raises
    `DataError` for a dataset that does not know where its examples come from."""
    dataset = load(source, data)
    records = dataset.provenance
    if records is None:
        raise DataError(origins_unknown(source))
    paths = [records.classes[code] for code in records.codes.tolist()]
    return (
        Record(_content(dataset.train, slot), path, origin, authority)
        for slot, (path, origin) in enumerate(zip(paths, records.sources, strict=True))
    )


def origins_unknown(source: DataSource) -> str:
    """Return that a dataset does not know where its examples come from, and what would tell it."""
    words = f"dataset {source.name!r} does not know where its examples come from, so nothing can be said about them;"
    if isinstance(source, Shards):
        return (
            f"{words} shards keep the classes of what they are made from, in a new place: `explorer data shard"
            " imagefolder PLACE --param path=DIR --param provenance=folders` makes a class of each folder of images,"
            " and `explorer data shard FILE PLACE --param tag=COLUMN` reads the class of each document"
        )
    return (
        f"{words} imagefolder, parquet and text take a table or column of yours; digits, cifar10 and clutter have a"
        " simulated division: {digits: {simulated_classes: 4}}"
    )


def _content(examples: Split, slot: int) -> bytes | None:
    try:
        return examples.content(slot)
    except ErasedError:
        return None


def tag(
    examples: Split,
    classes: Sequence[str],
    *,
    authority: str,
    documents: str | Path,
    source: str | Sequence[str] = "tensors of one's own",
) -> Path:
    """Write the tag table of these examples, and its salts, into a directory of documents; return the table's path.

    Args:
        examples: the examples to tag. A tag commits to `Split.content`: the bytes of the input and of the label.
        classes: the class path of each example, in order.
        authority: the name of the authority that vouches for them.
        documents: the directory.
        source: where the examples come from, one text for all or one for each.

    The table counts for nothing before `explorer tags sign` has signed it. Raises `ProvenanceError` for malformed class
    paths, for another number of them than of examples, for tensors whose bytes are not here, and where a table or a
    salt file exists already.
    """
    # Everything is checked before a file is made: a table that was begun cannot be begun again.
    examples.check()
    sources = [source] * len(examples) if isinstance(source, str) else list(source)
    for what, given in (("classes", classes), ("source", sources)):
        if isinstance(given, str) or len(given) != len(examples):
            shown = f"{given!r:.100}" if isinstance(given, str) else f"{len(given)}"
            raise ProvenanceError(f"{what}: found {shown}, expected one for each of {len(examples)} examples")
        for slot, record in enumerate(given):
            if not isinstance(record, str):
                raise ProvenanceError(f"{what}: example {slot}: found {record!r:.100}, expected text")
    for slot, path in enumerate(classes):
        if not re.fullmatch(CLASS_PATTERN, path):
            raise ProvenanceError(f"classes: example {slot}: found {path!r:.100}, expected a path such as open/mit")
    directory = Path(documents)
    directory.mkdir(parents=True, exist_ok=True)
    content = (Record(examples.content(slot), path, sources[slot], authority) for slot, path in enumerate(classes))
    write_tagged(directory / TABLE_FILE, directory / SALTS_FILE, content)
    return directory / TABLE_FILE
