"""Recorded landscapes, and searchers replayed in them: the small form of benchmarks/searchers.py."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow.parquet as pq
import pytest

from explorer.search.effects import Effects
from explorer.search.random_search import RandomSearch
from explorer.search.searcher import Trial

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FILES = sorted((BENCHMARKS / "landscapes").glob("*.parquet"))
LARGEST = 200_000  # bytes of a file


@pytest.fixture(scope="module")
def searchers() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import searchers  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.remove(str(BENCHMARKS))
    return searchers


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_landscapes_are_whole_and_small(searchers: ModuleType, path: Path) -> None:
    landscape = searchers.read(path)
    assert path.stat().st_size <= LARGEST
    assert landscape.recipes[0] == frozenset() and len(set(landscape.recipes)) == 2 ** len(landscape.about["methods"])
    assert (landscape.seconds_RB > 0).all() and (np.diff(landscape.seconds_RB, axis=1) > 0).all()
    assert landscape.loss(landscape.seeds)[0] == landscape.seconds_RB[0, -1]
    last = landscape.recipes[-1]
    assert landscape.seen(Trial(last, 1.0, 1)).quality == pytest.approx(landscape.quality_RBS[-1, -1, 1])


def test_a_landscape_that_is_not_whole_is_refused(searchers: ModuleType, tmp_path: Path) -> None:
    table = pq.read_table(FILES[0])
    pq.write_table(table.slice(1), tmp_path / "cut.parquet")
    with pytest.raises(SystemExit, match=f"found {len(table) - 1} runs, expected {len(table)}"):
        searchers.read(tmp_path / "cut.parquet")


@pytest.mark.slow
def test_ours_loses_less_than_random_search_where_there_is_something_to_find(searchers: ModuleType) -> None:
    digits = searchers.read(BENCHMARKS / "landscapes" / "digits.parquet")
    ours, chance = (searchers.regrets(digits, kind.name, 12, [0.05]).mean() for kind in (Effects, RandomSearch))
    assert ours < 0.75 * chance
    # Where qualities are shuffled there is nothing, and the same code must not see anything.
    ours, chance = (searchers.control(digits, kind.name, 12, 0.05) for kind in (Effects, RandomSearch))
    less = ours - chance
    assert less.mean() > -3 * less.std(ddof=1) / np.sqrt(len(less))
