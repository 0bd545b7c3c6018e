"""`explorer init`: a project for data of one's own, with a specification that runs at once, governed if asked."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
import yaml

from explorer import rundir
from explorer.bundled import notebook_directory
from explorer.cli import options
from explorer.data.dataset import Dataset, DataSource
from explorer.data.image_table import ImageTable
from explorer.data.labelled_text import LabelledText
from explorer.data.shards.shards import Shards
from explorer.data.sources import EMBEDDED, TABLES, load, of_path
from explorer.data.table_file import TARGETS, read_table
from explorer.data.tabular import Tabular
from explorer.data.targets import Predict
from explorer.errors import DataError, RecipeError
from explorer.page.terminal import Answer, from_here
from explorer.training.governed_project import GovernedProject, begin_governed
from explorer.yaml_document import parse_document

PREDICTED = {
    "classification": ", {classes} labels",
    "multilabel": ", any of {classes} labels each",
    "regression": ", a number each",
}
STEPS = 300  # of a run at full budget, so that a sweep takes minutes on two cores
MAX_EPOCHS = 20
MOST_COLUMNS = 20  # in a message
IGNORED = """\
# runs are large, and keys are private
/runs/*
!/runs/README.md
/exports/
.ipynb_checkpoints/
*.pem
*.pem.cosigned/
salts
"""
RUNS = """\
# runs

`explorer sweep run SPEC` and `explorer run RECIPE` write every run here, and everything else is computed from them.
`explorer open explore` shows them, `explorer results SWEEP` prints the comparison.
"""


def init(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PATH]",
            help="A folder of images by class, of Parquet files or of texts, a table (CSV), or a text file. Default:"
            " embedded digits.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="COLUMN", help="Column of a table to predict. Default: by its name, or the last."
        ),
    ] = None,
    governed: Annotated[
        bool,
        typer.Option("--governed", help="Also write a recipe under a policy, with keys and documents to demonstrate."),
    ] = False,
) -> Answer:
    """Begin a project with your own data: look at a folder, and write a specification that runs at once.

    The project is the working directory. It gets the specification of a sweep, `runs/README.md` and `.gitignore`, and
    with --governed also a recipe, its policy to edit, its signed documents and the keys that signed them, all of one
    party. Nothing is overwritten, and the data stay as they are.

    Documents in lines of JSON (.jsonl) become shards first: `explorer data shard FILE shards --context 128`, then
    `explorer init shards`.
    """
    data = None if path is None else path.resolve().parent
    if path is None and target is not None:
        raise RecipeError(f"--target: found {target!r:.80} without PATH: expected the table of which it is a column")
    source = EMBEDDED if path is None else of_path(path.resolve(), target=target)
    spec = Path(f"{source.name}.yaml") if path is None else specification_at(path)
    name = spec.stem
    if spec.exists():
        raise RecipeError(
            f"{spec}: exists already, and nothing is overwritten; remove it, or work in another directory"
        )
    try:
        text = specification(source, name, data)
    except DataError as error:
        if isinstance(source, TABLES) and data is not None:
            raise DataError(f"{error}; {_others(source, data)}") from error
        raise
    dataset = load(source, data)
    content = parse_document(text, where=str(spec)).value
    made: GovernedProject | None = None
    if governed:
        made = begin_governed(Path(), content["task"], content["train"], data=data, now=options.clock())
    written = [spec]
    rundir.write_bytes(spec, text.encode())
    for place, words in ((Path("runs") / "README.md", RUNS), (Path(".gitignore"), IGNORED)):
        if not place.exists():
            rundir.write_bytes(place, words.encode())
            written.append(place)
    given = "" if data is None else f" --data {shlex.quote(str(from_here(data)))}"
    commands = [f"explorer sweep run {spec}{given}"]
    if made is not None:
        commands.insert(0, f"explorer run {made.recipe}{given}")
    return Answer(
        page=lambda: [
            *_seen(source, dataset, f"explorer data {spec}{given}", spec=spec, asked=target is not None),
            *(f"{place}: written" for place in written),
            *(made.lines if made else ()),
            "\nnext",
            *(f"  {command}" for command in commands),
        ],
        record=lambda: {
            "specification": str(spec),
            "written": [str(place) for place in written],
            "governed": None if made is None else {"recipe": str(made.recipe), "classes": dict(made.classes)},
            "simulated": made is not None and made.simulated,
            "next": commands,
        },
    )


def specification_at(path: Path) -> Path:
    """Return the specification that is written for data at a path; it is called like the sweep."""
    place = path.resolve()
    name = place.stem if place.is_file() else place.name
    return Path(f"{re.sub(r'[^a-z0-9_-]+', '-', name.lower()).strip('-')[:40] or 'mine'}.yaml")


def _others(source: ImageTable | LabelledText | Tabular, data: Path) -> str:
    """Return how another column of a table is chosen."""
    names = read_table(data / source.path, dataset=source.name).column_names
    more = f", and {len(names) - MOST_COLUMNS} more" if len(names) > MOST_COLUMNS else ""
    return (
        f"choose the column to predict by --target, now {source.target!r}, of: {', '.join(names[:MOST_COLUMNS])}{more}"
    )


def _seen(source: DataSource, dataset: Dataset, card: str, *, spec: Path, asked: bool) -> Iterator[str]:
    """Yield what was found at the path; `card` is the command that shows all of it, and a target was `asked` for or
    guessed."""
    labels = PREDICTED.get(dataset.task, "").format(classes=dataset.classes)
    column = getattr(source, "target", getattr(source, "label", None))
    labels += f" in column {column!r}" if column is not None else ""
    yield f"found {len(dataset.train):,} examples to train with and {len(dataset.test):,} for the test{labels}"
    if (predict := getattr(source, "predict", None)) is not None and not isinstance(source, Shards):
        others = ", ".join(other for other in get_args(Predict) if other != predict)
        yield f"predict: {predict} is a guess by the values of that column ({others}: other tasks)"
    if isinstance(source, TABLES) and not asked and source.target.lower() not in TARGETS:
        yield f"target: {source.target} is a guess, the last column (change target: in {spec}, or give --target COLUMN)"
    if dataset.skipped:
        what = "; ".join(f"{skipped.count:,}: {skipped.reason}" for skipped in dataset.skipped)
        yield f"left out {what} ({card})"


def specification(source: DataSource, name: str, data: Path | None) -> str:
    """Return the text of a specification for a dataset, from the example of its kind, with as many epochs as take a
    few minutes."""
    names = (f"{source.modality}-{source.aim}.yaml", f"{source.modality}.yaml")
    template = next((place for name in names if (place := notebook_directory() / "projects" / name).exists()), None)
    if template is None:
        raise DataError(f"dataset {source.name!r}: no example of a specification for {source.modality}, {source.aim}")
    dataset = load(source, data)
    text = template.read_text()
    batch = parse_document(text, where=str(template)).value["train"]["batch_size"]
    epochs = max(0.01, min(MAX_EPOCHS, STEPS * batch / len(dataset.train)))
    ends = dataset.separator  # attention is kept within documents, where there are some
    model = "gpt-tiny" if ends is None else f"{{gpt-tiny: {{document_mask: true, separator: {ends}}}}}"
    filled = {"NAME": name, "DATASET": _flow(source), "MODEL": model, "EPOCHS": f"{epochs:.2g}"}
    return re.sub("|".join(filled), lambda word: filled[word[0]], text)


def _flow(source: DataSource) -> str:
    """Return a dataset on one line of YAML, with the parameters that differ from their defaults or have none."""
    fields = type(source).__dataclass_fields__
    given: dict[str, Any] = {key: value for key, value in asdict(source).items() if fields[key].default != value}
    return yaml.safe_dump({source.name: given}, default_flow_style=True, sort_keys=False, width=10_000).strip()
