from pathlib import Path

import pandas as pd
import pytest

from explorer.store import frames
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
