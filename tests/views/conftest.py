import shutil
from pathlib import Path

import pandas as pd
import pytest

from explorer.store import frames
from tests.governed_sample import write_governed_run
from tests.sample import write_sample


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of runs with one finished, ingested sweep. Tests read it and leave it as it is."""
    directory = tmp_path_factory.mktemp("sample") / "runs"
    write_sample(directory)
    return directory


@pytest.fixture(scope="session")
def results(runs: Path) -> pd.DataFrame:
    return frames.results(runs / "explorer.duckdb")


@pytest.fixture(scope="session")
def governed_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of runs with one governed run. Tests read it and leave it as it is."""
    directory = tmp_path_factory.mktemp("governed") / "runs"
    write_governed_run(directory)
    return directory


@pytest.fixture
def governed(governed_runs: Path) -> Path:
    """The directory of the governed run."""
    return next((governed_runs / "single").iterdir())


@pytest.fixture
def governed_copy(governed: Path, tmp_path: Path) -> Path:
    """A governed run to be damaged."""
    return Path(shutil.copytree(governed, tmp_path / "runs" / "single" / governed.name))
