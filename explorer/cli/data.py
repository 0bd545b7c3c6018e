"""`explorer data show` and `explorer tags dataset`: the datasets, their cards, and tags from their own provenance."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from explorer.cli import options
from explorer.cli.governed.tags import write_table
from explorer.cli.init import specification_at
from explorer.cli.models import listed, warn_broken
from explorer.data.cards import Card, as_croissant, card, describe
from explorer.data.dataset import DataSource, TableColumn
from explorer.data.progress_line import watched
from explorer.data.shards.shard_index import Index, Shard
from explorer.data.shards.shard_material import material_of
from explorer.data.shards.shard_writer import write_shards
from explorer.data.shards.shards import Shards
from explorer.data.shards.text_documents import Documents
from explorer.data.shards.text_shards import separator_of
from explorer.data.shards.token_material import CONTEXT, token_material, trained_before, trained_on
from explorer.data.shards.tokenising import MAX_TOKENISER
from explorer.data.sources import DATASETS, of_path
from explorer.errors import DataError, RecipeError
from explorer.objects import Objects, open_objects
from explorer.page.document import Block
from explorer.page.terminal import Answer, from_here, table
from explorer.parameters import check
from explorer.recipes.choice import choose, class_of, offered_classes, origin_of
from explorer.rundir import read_bytes, write_bytes
from explorer.schema import to_json
from explorer.training.tagging import FILES, dataset_of, records_of
from explorer.yaml_document import parse_document

SHARD = 4_000_000  # bytes
MOST_CLASSES = 20  # in a table; --json lists all
MOST_COLUMNS = 10  # of a table of data
MOST_FEATURES = 8  # of a column


def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME|FILE]", help="Name of a dataset, or a recipe or sweep file (YAML) that has one."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="KEY=VALUE", help="Parameter of the dataset, as in a recipe; repeatable."),
    ] = None,
    data: options.Data = None,
    croissant: Annotated[
        Path | None,
        typer.Option("--croissant", metavar="FILE", help="Also write the card as MLCommons Croissant (JSON-LD)."),
    ] = None,
) -> Answer:
    """List the datasets, or show the card of one: size, licence, classes, sources, skipped examples.

    A dataset that needs parameters shows them instead, unless they are given with --param.
    """
    if name is None:
        for option, value in (("--param", param), ("--croissant", croissant)):
            if value:
                raise RecipeError(f"{option} is for one dataset: found no name, expected the dataset's")
        return _all()

    if not name.endswith(FILES):
        asked = _described(_kind(name))
        if not param and croissant is None and any(parameter["required"] for parameter in asked["parameters"]):
            return Answer(page=lambda: _needed(asked), record=lambda: asked)
    source = _chosen(name, param or [])
    dataset_card = card(source, data)
    if croissant is not None:
        write_bytes(croissant, as_croissant(dataset_card, source.files(data)).encode())
    return Answer(page=lambda: _card(dataset_card), record=lambda: asdict(dataset_card))


def shard(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Directory or file of data, name of a dataset, or a recipe or sweep file that has one.",
        ),
    ],
    place: Annotated[str, typer.Argument(metavar="PLACE", help="Directory, or s3://, gs:// or az:// and a path.")],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="KEY=VALUE", help="Parameter of the dataset, as in a recipe; repeatable."),
    ] = None,
    data: options.Data = None,
    tokeniser: Annotated[
        Path | None, typer.Option("--tokeniser", metavar="FILE", help="Hugging Face `tokenizers` file for texts.")
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option("--vocabulary", min=257, max=2**20, metavar="N", help="Train a tokeniser of N tokens for texts."),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option("--context", min=8, max=2**16, metavar="T", help=f"Tokens of an example of text: {CONTEXT}."),
    ] = None,
    shard_bytes: Annotated[
        int, typer.Option("--shard-bytes", min=1_000, max=500_000_000, help="Bytes of examples in a shard.")
    ] = SHARD,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, max=64, help="That read, check and write. Default: the cores.")
    ] = None,
) -> Answer:
    """Write a dataset as shards: files that are read, verified and decoded while a run trains.

    Images stay encoded. Examples with provenance classes are kept apart by class. The same command continues after any
    interruption. Datasets in shards need no memory for their size, and may be in a bucket.

    Documents are lines of JSON, or rows of Parquet. They are packed into blocks of tokens; without a tokeniser, of
    bytes. --param text=KEY and --param tag=KEY name the keys or columns of the text and of its provenance class;
    tag=folders makes each folder one; config=NAME is one of several configurations of a card of the hub. With any of
    these options, text files and texts with labels are documents too.
    """
    _refuse_inside(source, place)
    workers = threads or os.cpu_count() or 1
    wanted = tokeniser is not None or vocabulary is not None or context is not None
    documents, objects = _documents_at(source, param or [], wanted=wanted), open_objects(place)
    if documents is None:
        material = material_of(*_at(source, param or [], data))
    else:
        file = _tokeniser(documents, objects, tokeniser, vocabulary)
        material = token_material(
            documents,
            file,
            trained=vocabulary is not None,
            context=context or CONTEXT,
            threads=workers,
            where=str(tokeniser),
        )
    index = write_shards(
        material,
        objects,
        shard_bytes=shard_bytes,
        threads=workers,
        watch=lambda rows: watched(rows, "writing shards", total=material.count),
    )
    return Answer(page=lambda: _shard_page(index, place), record=lambda: _shard_record(index, place))


def tags_dataset(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET|FILE", help="Name of a dataset, or a recipe or sweep file (YAML) that has one."
        ),
    ],
    out: options.TableOut,
    salts: options.SaltsOut,
    authority: Annotated[
        str, typer.Option("--authority", metavar="NAME", help="Authority that vouches for all records.")
    ],
    data: options.Data = None,
) -> Answer:
    """Make the tag table of a dataset's training examples from its own provenance.

    The table is valid once it is signed: its signer vouches for what the dataset declares.
    """
    return write_table(out, salts, records_of(dataset_of(dataset), data=data, authority=authority))


def _kind(name: str) -> type[DataSource]:
    """Return the dataset of a name. Raises `RecipeError` for another one; for that of data, with the way to a card."""
    try:
        return class_of(DATASETS, name, kind="dataset")
    except RecipeError as error:
        if not (path := Path(name)).exists():
            raise
        spec = specification_at(path)
        begin = "" if spec.exists() else f"`explorer init {shlex.quote(name)}`, then "
        above = shlex.quote(str(from_here(path.resolve().parent)))
        raise RecipeError(
            f"{name}: found data, expected the name of a dataset, or a recipe or sweep file (YAML): run {begin}"
            f"`explorer data {spec} --data {above}`"
        ) from error


def _chosen(name: str, written: list[str]) -> DataSource:
    """Return the dataset of a name and parameters, or of a file."""
    if name.endswith(FILES):
        if written:
            raise RecipeError(f"--param is for a dataset named directly; {name} has the parameters of its own")
        return dataset_of(name)
    return choose(DATASETS, {name: _parameters(written)}, kind="dataset", where="dataset", code=None)


def _parameters(written: list[str]) -> dict[str, Any]:
    """Return the parameters that are given by --param."""
    parameters: dict[str, Any] = {}
    for pair in written:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise RecipeError(f"--param: found {pair!r:.80}, expected KEY=VALUE, such as size=32")
        if key in parameters:
            raise RecipeError(f"--param: {key!r:.80} is given twice")
        # Values are read as in a recipe file, so that numbers and lists are not text.
        parameters[key] = parse_document(value, where=f"--param {key}").value
    return parameters


def _all() -> Answer:
    others, broken = offered_classes(DATASETS, kind="dataset")
    warn_broken(broken)
    classes = DATASETS | others
    datasets = [_described(classes[name]) for name in sorted(classes)]
    rows = [
        (dataset["name"], dataset["summary"], _defaults(dataset["parameters"]), dataset["licence"], dataset["origin"])
        for dataset in datasets
    ]
    page = listed(("dataset", "what it is", "parameters", "licence"), rows)
    return Answer(page=lambda: [page], record=lambda: datasets)


def _described(kind: type[DataSource]) -> dict[str, Any]:
    return {**describe(kind), "origin": origin_of(kind, kind="dataset")}


def _needed(described: dict[str, Any]) -> Iterator[Block | str]:
    """Yield a dataset's description and the parameters that its card needs."""
    yield f"{described['name']}: {described['summary']}\n\n{described['description']}\n"
    rows = [
        (p["name"], "required" if p["required"] else str(p["default"]), p["meaning"]) for p in described["parameters"]
    ]
    yield table(("parameter", "default", "meaning"), rows)
    required = " ".join(f"--param {p['name']}=..." for p in described["parameters"] if p["required"])
    yield f"to see its card: explorer data {described['name']} {required} --data DIR"


def _defaults(parameters: list[dict[str, Any]]) -> str:
    return ", ".join(p["name"] if p["required"] else f"{p['name']}={p['default']}" for p in parameters)


def _card(card: Card) -> Iterator[Block | str]:
    yield f"{card.name}: {card.summary}\n\n{card.description}\n"
    parameters = ", ".join(f"{key}={value}" for key, value in card.parameters.items())
    shape = "x".join(map(str, card.shape))
    rows = [
        ("parameters", parameters or "none"),
        ("kind", f"{card.modality}, {card.task}; measured by {', '.join(card.metrics)}"),
        ("examples", f"{card.train:,} train, {card.test:,} test, each {shape}, {card.bytes:,} bytes in memory"),
    ]
    if card.tokens is not None:
        train, test = card.tokens
        rows.append(("tokens", f"{train:,} train, {test:,} test, of {card.vocabulary} kinds"))
    if card.target is not None:
        mean, deviation = card.target
        rows.append(("target", f"mean {mean:g}, standard deviation {deviation:g} on the training side"))
    rows += [("source", card.source), ("licence", card.licence), ("digest", card.digest)]
    if not card.provenance:
        rows.append(("provenance", "none: the sources of the examples are unknown"))
    # Facts first, then tables: of classes, of provenance, of skipped examples.
    for key, value in rows:
        yield f"{key:<11} {value}"
    yield ""
    if card.classes:
        shown = card.classes[:MOST_CLASSES]
        yield table(
            ("class", f"train {card.counted}", f"test {card.counted}"),
            [(class_.name, f"{class_.train:,}", f"{class_.test:,}") for class_ in shown],
            right=(f"train {card.counted}", f"test {card.counted}"),
        )
        if len(card.classes) > len(shown):
            yield f"and {len(card.classes) - len(shown)} more classes: --json lists all\n"
    if card.columns:
        rows_ = [(column.name, _features(column), f"{column.missing:,}") for column in card.columns[:MOST_COLUMNS]]
        yield table(("column", "features", "missing values"), rows_, right=("missing values",))
        if len(card.columns) > MOST_COLUMNS:
            yield f"and {len(card.columns) - MOST_COLUMNS} more columns: --json lists all\n"
    if card.provenance:
        kind = "simulated provenance" if card.simulated else "provenance class"
        rows_ = [(class_.path, f"{class_.examples:,}") for class_ in card.provenance]
        yield table((kind, "train examples"), rows_, right=("train examples",))
    if card.skipped:
        rows_ = [(skipped.reason, f"{skipped.count:,}", ", ".join(skipped.names)) for skipped in card.skipped]
        yield table(("skipped because", "examples", "such as"), rows_, right=("examples",))


def _features(column: TableColumn) -> str:
    """Return the names of a column's features, the first few."""
    rest = len(column.features) - MOST_FEATURES
    return ", ".join(column.features[:MOST_FEATURES]) + (f" and {rest} more" if rest > 0 else "")


# --- shards ---


def _refuse_inside(source: str, place: str) -> None:
    """Raise `DataError` for a place in the folder of the source, whose next reader would find the shards there."""
    path = Path(source)
    if source not in DATASETS and path.is_dir() and Path(place).resolve().is_relative_to(path.resolve()):
        raise DataError(f"{place} is in {source}, which is read: expected a place outside of it")


def _documents_at(written: str, param: list[str], *, wanted: bool) -> Documents | None:
    """Return the documents at a path; None where it has other data, or is a dataset. Raises `DataError` where they are
    wanted, by their own options or by parameters."""
    path = Path(written)
    is_path = written not in DATASETS and path.exists() and path.suffix not in FILES
    if is_path:
        keys = _parameters(param)
        if Documents(path=path.resolve(), text=str(keys.get("text", "text"))).there(wanted=wanted or bool(param)):
            return check(Documents, {**keys, "path": str(path.resolve())}, where="--param")
    if wanted:
        raise DataError(
            f"--tokeniser, --vocabulary and --context are for documents: found {written}: expected a folder of text"
            " files, lines of JSON (.jsonl), or Parquet with a column of texts"
        )
    if is_path and param:
        raise DataError(f"--param is for documents and for a dataset by its name: found the path {written}")
    return None


def _tokeniser(documents: Documents, objects: Objects, tokeniser: Path | None, vocabulary: int | None) -> bytes | None:
    if tokeniser is not None and vocabulary is not None:
        raise DataError("--tokeniser and --vocabulary: expected one of them")
    if tokeniser is not None:
        return read_bytes(tokeniser, max_bytes=MAX_TOKENISER, error=DataError)
    if vocabulary is None:
        return None
    return trained_before(documents, objects, size=vocabulary) or trained_on(documents, size=vocabulary)


def _at(written: str, param: list[str], data: Path | None) -> tuple[DataSource, Path | None]:
    """Return the dataset, and the directory below which it is read."""
    path = Path(written)
    if written in DATASETS or not path.exists() or path.suffix in FILES:
        return _chosen(written, param), data
    return of_path(path), path.resolve().parent


def _shard_page(index: Index, place: str) -> Iterator[Block | str]:
    sides = (("training", index.train.shards), ("test", index.test.shards))
    yield table(("side", "examples", "shards", "size"), [(name, *_counts(shards)) for name, shards in sides])
    tags: dict[str, int] = {}
    for one in index.train.shards:
        if one.tag is not None:
            tags[one.tag] = tags.get(one.tag, 0) + one.rows
    if tags:
        yield table(("provenance", "training examples"), [(tag, f"{rows:,}") for tag, rows in sorted(tags.items())])
    for passed in index.skipped:
        yield f"skipped {passed.count:,}: {passed.reason}, such as {passed.names[0]}"
    yield "as a recipe has them, with --data at the directory above:" if "://" not in place else "as a recipe has them:"
    recipe: dict[str, object] = {"dataset": _written(index, place)}
    if (separator := separator_of(index)) is not None:
        recipe["model"] = {"gpt-tiny": {"document_mask": True, "separator": separator}}  # keeps documents apart
    yield yaml.safe_dump(recipe, default_flow_style=None, sort_keys=False).strip()


def _counts(shards: tuple[Shard, ...]) -> tuple[str, str, str]:
    size = sum(shard.bytes for shard in shards)
    return f"{sum(shard.rows for shard in shards):,}", f"{len(shards):,}", f"{size / 1e6:,.1f} MB"


def _written(index: Index, place: str) -> dict[str, dict[str, object]]:
    """Return the dataset as a recipe writes it."""
    name = f"{index.modality}_shards"
    kind = DATASETS[name]
    assert issubclass(kind, Shards)
    return {name: {"path": place.rstrip("/") if "://" in place else Path(place).name, **kind.parameters(index)}}


def _shard_record(index: Index, place: str) -> dict[str, object]:
    return {"place": place, "dataset": _written(index, place), "index": to_json(index)}
