"""The import contracts hold and can be broken; files and tables agree; what must be light is light."""

import importlib
import inspect
import pkgutil
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import explorer
from explorer import governance
from explorer.data.dataset import DataSource
from explorer.data.sources import DATASETS
from explorer.engine.method import Method
from explorer.methods import METHODS
from explorer.models.specification import ModelSpec
from explorer.models.table import MODELS

ROOT = Path(explorer.__file__).parents[1]
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None))"
COMMON = ("errors", "canonical", "note", "merkle", "document", "schema", "rundir", "costing", "run_files", "entries")
GOVERNING = ("provenance", "ledger")
READING = (
    *COMMON,
    *GOVERNING,
    "runlog",
    "project",
    "store",
    "page",
    "analysis",
    "audit",
    "deletion",
    "disclosure",
    "release",
    "views",
    "report",
)
HEAVY = ("torch", "numpy", "pandas", "duckdb", "altair", "pydantic", "papermill", "ipywidgets", "sklearn")


def python(code: str, *, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own that sees the package below `cwd`."""
    environment = {"PYTHONPATH": str(cwd), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def test_the_import_contracts_hold() -> None:
    found = python(LINT)
    assert found.returncode == 0, found.stdout + found.stderr


VIOLATIONS = {
    "the engine knows a method": ("engine/loop.py", "import explorer.methods.mixup"),
    "a method knows another": ("methods/sam.py", "import explorer.methods.ema"),
    "torch on the reading side": ("analysis/__init__.py", "import torch"),
    "a database on the training side": ("training/run.py", "import duckdb"),
    "hidden in a function": ("run_files.py", "def _hidden():\n    import torch"),
    "the verifier knows the writer": ("ledger/verify.py", "import explorer.ledger.log"),
    "the verifier knows what opens a ledger for writing": ("ledger/rebuild.py", "import explorer.ledger.log"),
    "credentials know the ledger": ("provenance/trust.py", "import explorer.ledger.verify"),
    "a database in the ledger": ("ledger/storage.py", "import duckdb"),
    "markup outside the page": ("report/negative.py", "import markupsafe"),
    "a page that knows a record": ("page/document.py", "import explorer.run_files"),
    "a new part without a place": ("novelty.py", ""),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its contracts, to be broken."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "explorer", root / "explorer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_breaks_them(copy: Path, name: str) -> None:
    path, code = VIOLATIONS[name]
    file = copy / "explorer" / path
    before = file.read_text() if file.exists() else None
    file.write_text(f"{before or ''}\n{code}\n")
    try:
        found = python(LINT, cwd=copy)
    finally:
        file.unlink() if before is None else file.write_text(before)
    assert found.returncode != 0 and ("BROKEN" in found.stdout or "novelty" in found.stdout), found.stdout


def classes_in(package: str, base: type, *, others: bool) -> dict[str, str]:
    """The concrete classes that the package's files define, by their names: the file of each. A file defines one, or
    none where there may be others."""
    found: dict[str, str] = {}
    for module in pkgutil.iter_modules([str(ROOT / "explorer" / package)]):
        contents = vars(importlib.import_module(f"explorer.{package.replace('/', '.')}.{module.name}"))
        own = [
            value
            for value in contents.values()
            if isinstance(value, type) and issubclass(value, base) and value.__module__.endswith(f".{module.name}")
            if not inspect.isabstract(value)
        ]
        if others and not own:
            continue
        assert len(own) == 1, f"{package}/{module.name}.py defines {len(own)} of {base.__name__}, expected one"
        found[vars(own[0])["name"]] = module.name
    return found


def test_every_part_but_the_page_leaves_markup_to_it() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rule,) = (one for one in contracts if one["name"] == "One way to show things")
    every = {module.name for module in pkgutil.iter_modules([str(ROOT / "explorer")])}
    parts = every - {"__main__", "deferred", "moved"}
    assert {f"explorer.{part}" for part in parts} == {*rule["source_modules"], "explorer.page"}


def test_a_file_for_every_method_and_a_line_for_every_file() -> None:
    files = classes_in("methods", Method, others=False)
    assert files == {name: name for name in METHODS}


def test_every_governed_method_is_in_the_table() -> None:
    for module in pkgutil.iter_modules([str(ROOT / "explorer" / "governance")]):
        importlib.import_module(f"explorer.governance.{module.name}")
    found = [one for one in Method.__subclasses__() if one.__module__.startswith("explorer.governance.")]
    assert {one.name for one in found} == set(governance.METHODS)


def test_a_file_for_every_dataset_and_a_line_for_every_file() -> None:
    folders = ("data", "data/shards")
    in_files = {name: file for folder in folders for name, file in classes_in(folder, DataSource, others=True).items()}
    assert in_files == {name: name for name in DATASETS}


def test_every_named_model_is_in_the_table() -> None:
    def named(base: type[ModelSpec]) -> set[str]:
        # Tests and plug-ins have models of their own.
        ours = [child for child in base.__subclasses__() if child.__module__.startswith("explorer.")]
        below = [name for child in ours for name in named(child)]
        return {*below, vars(base)["name"]} if "name" in vars(base) else set(below)

    assert named(ModelSpec) == set(MODELS)
    assert all(kind.name == name for name, kind in MODELS.items())


def modules_below(part: str) -> list[str]:
    """The part and every module in it."""
    root = ROOT / "explorer" / part
    if not root.is_dir():
        return [f"explorer.{part}"]
    return [f"explorer.{part}", *(m.name for m in pkgutil.walk_packages([str(root)], f"explorer.{part}."))]


def loaded_by(modules: list[str]) -> set[str]:
    found = python(f"import sys\nimport {', '.join(modules)}\nprint(*sys.modules)")
    assert found.returncode == 0, found.stderr
    return set(found.stdout.split())


def test_the_reading_side_loads_no_torch() -> None:
    modules = [module for part in READING for module in modules_below(part)]
    loaded = loaded_by(modules)
    assert set(modules) <= loaded
    assert "torch" not in loaded


def test_ledger_and_credentials_load_nothing_that_computes() -> None:
    modules = [module for part in (*COMMON, *GOVERNING) for module in modules_below(part)]
    assert not loaded_by(modules) & {"torch", "pandas", "duckdb", "altair", "papermill", "sklearn"}


def test_a_verification_needs_neither_numpy_nor_pydantic() -> None:
    """What an auditor starts with is light: the ledger, its notes, and the blobs that its entries name. What kinds of
    entries hold, which `--contents` asks, needs their records."""
    modules = ["explorer.audit.named_blobs", *modules_below("ledger"), "explorer.note", "explorer.merkle"]
    assert not loaded_by(modules) & {"numpy", "pyarrow", "pydantic", "torch"}


def test_the_training_side_does() -> None:
    """The control: the same question, another answer."""
    assert "torch" in loaded_by(["explorer.engine.loop"])


def test_the_package_alone_loads_nothing_heavy() -> None:
    assert not loaded_by(["explorer"]) & set(HEAVY)


def test_package_files_hold_nothing_but_words() -> None:
    """`__init__` stays light; the exceptions are the tables of methods, and what gathers the parts of `costing`."""
    for path in sorted((ROOT / "explorer").rglob("__init__.py")):
        if path.parent.name in ("explorer", "methods", "governance", "costing"):
            continue
        assert path.read_text().count('"""') == 2 and "import" not in path.read_text().split('"""')[2], path


def test_the_public_names_complete_without_loading_anything() -> None:
    """In a process of its own: `dir(explorer)` names them, and torch stays where it is."""
    code = "import sys, explorer; names = dir(explorer); print('torch' in sys.modules, *names)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, *names = done.stdout.split()
    assert loaded == "False"
    assert {"Governed", "Metric", "Place", "govern", "load_model", "train", "__version__"} <= {*names}
    assert "import_module" not in names
