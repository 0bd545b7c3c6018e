"""Facts about a method, a dataset or a metric are in its own file: no other part names it in a string."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from explorer import governance, methods
from explorer.data.sources import DATASETS
from explorer.run_files import METRICS

ROOT = Path(__file__).parents[1]
OWN = {  # the parts that declare the names: what defines a thing, and what reports it
    "method": ("explorer/methods/", "explorer/governance/", "explorer/functional.py"),
    "dataset": ("explorer/data/",),
    "metric": (
        *("explorer/run_files.py", "explorer/data/"),
        *("explorer/engine/task.py", "explorer/engine/fit.py", "explorer/governance/recorder.py"),
    ),
}
NAMES = {
    **dict.fromkeys([*methods.METHODS, *governance.METHODS], "method"),
    **dict.fromkeys(DATASETS, "dataset"),
    **dict.fromkeys(METRICS, "metric"),
}
WORDS = {  # names that are also words: a string with one of them says nothing about the thing
    "compile": "a part of a run that its clock sets aside",
    "contributions": "a table of the store and a file of the spool",
    "entropy": "a number of an entropy profile, a score of examples, and a table of the store",
    "lr": "the learning rate in an optimizer's parameter groups",
    "parquet": "a file format of exports",
    "source": "a column of tag tables and price lists, and a field of descriptions",
    "tabular": "a modality",
    "text": "a modality, and a key of pages and charts",
}
ALLOWED = {
    ("explorer/adapters/lightning.py", "train_loss"): "the name under which modules of that library log it",
    ("explorer/cli/run.py", "routing"): "a line of what `explorer methods NAME` prints",
    ("explorer/engine/architectures.py", "stochastic_depth"): "the name of a module in blocks of torchvision",
    ("explorer/entries/entry_schemas.py", "accuracy"): "an example in the published specification",
    **{
        ("explorer/imports/mapping.py", name): "what columns of other tools are called"
        for name in ("accuracy", "dice", "mean_iou", "bits_per_byte", "nll", "rmse", "mae", "r2")
    },
    ("explorer/models/gpt.py", "alibi"): "a value of the model's own parameter `positions`",
    ("explorer/planned.py", "cifar10"): "read from a plan, without the part that reads its files",
    ("explorer/recipes/catalogue.py", "routing"): "a line of what `explorer methods NAME` prints",
    ("explorer/testing.py", "routing"): "a declaration of a method",
    ("explorer/testing.py", "digits"): "the data of a contract that names none",
    ("explorer/report/sweep/reported_sweep.py", "train_loss"): "one of the two metrics that are measured on the way",
    ("explorer/runlog/forecast.py", "ledger_seconds_per_step"): "read from records, without the part that measures it",
    ("explorer/runlog/target.py", "routing"): "read from records, without the part that trains",
    ("explorer/training/deletion.py", "train_loss"): "not measured where nothing was trained",
    ("explorer/views/explorer/curves_chart.py", "train_loss"): "the curve that is shown first",
    ("explorer/views/sweep/run_notebook.py", "train_loss"): "the live curve of a run",
    ("explorer/views/sweep/sweep_panel.py", "train_loss"): "the live curves of a sweep",
}


def strings(path: Path) -> Iterator[str]:
    """Yield the strings of a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def elsewhere(root: Path) -> set[tuple[str, str]]:
    """Return files and the names in them that belong to another part."""
    return {
        (str(path.relative_to(root)), text)
        for path in sorted((root / "explorer").rglob("*.py"))
        for text in strings(path)
        if text in NAMES.keys() - WORDS.keys() and not str(path.relative_to(root)).startswith(OWN[NAMES[text]])
    }


def test_no_other_part_names_a_method_a_dataset_or_a_metric() -> None:
    assert elsewhere(ROOT) <= ALLOWED.keys()


def test_words_are_names_too() -> None:
    assert WORDS.keys() <= NAMES.keys()


@pytest.mark.parametrize(("text", "named"), [("mixup", True), ("digits", True), ("nll", True), ("text", False)])
def test_a_name_in_another_part_is_seen(tmp_path: Path, text: str, named: bool) -> None:
    path = tmp_path / "explorer" / "report" / "new.py"
    path.parent.mkdir(parents=True)
    path.write_text(f'def f(x):\n    return x == "{text}"\n')
    assert elsewhere(tmp_path) == ({("explorer/report/new.py", text)} if named else set())
