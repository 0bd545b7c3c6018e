"""The rows of a table in groups, found for all groups at once: a table has thousands of rows and hundreds of groups.

Shapes: N rows, G groups; B budgets and S seeds of one group.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """Which group each row belongs to. Groups are numbered in the order in which they come in the table."""

    of_N: np.ndarray
    first_G: np.ndarray  # each group's first row

    def __len__(self) -> int:
        return self.first_G.size


def grouped(frame: pd.DataFrame, columns: Sequence[str]) -> Groups:
    """The rows that agree in all of the columns; what is absent agrees with what is absent."""
    of_N = np.asarray(frame.groupby(list(columns), sort=False, dropna=False).ngroup())
    _, first_G = np.unique(of_N, return_index=True)
    return Groups(of_N=of_N, first_G=first_G)


def texts(groups: Groups, column: pd.Series, *, where_N: np.ndarray) -> list[tuple[str, ...]]:
    """The different texts of each group among the rows `where_N`, in order; what is no text is left out."""
    code_N, values = pd.factorize(column)
    is_text = np.array([isinstance(value, str) for value in values], dtype=bool)
    rows = np.flatnonzero(where_N & (code_N >= 0))
    rows = rows[is_text[code_N[rows]]]
    key, first = np.unique(groups.of_N[rows] * max(len(values), 1) + code_N[rows], return_index=True)
    found: list[list[str]] = [[] for _ in range(len(groups))]
    for each in key[np.argsort(first, kind="stable")]:
        found[each // len(values)].append(values[each % len(values)])
    return [tuple(names) for names in found]


def medians(groups: Groups, values_N: np.ndarray, *, where_N: np.ndarray) -> np.ndarray:
    """The median of each group's finite values among the rows `where_N`; NaN for none."""
    rows = np.flatnonzero(where_N & np.isfinite(values_N))
    rows = rows[np.lexsort((values_N[rows], groups.of_N[rows]))]
    edge = np.searchsorted(groups.of_N[rows], np.arange(len(groups) + 1))
    start, count = edge[:-1], np.diff(edge)
    some = count > 0
    found = np.full(len(groups), np.nan)
    lower, upper = rows[(start + (count - 1) // 2)[some]], rows[(start + count // 2)[some]]
    found[some] = (values_N[lower] + values_N[upper]) / 2
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """A group's rows by budget and seed, which ascend. NaN where there is no row, the mean where there are several."""

    ssr_B: np.ndarray
    seeds_S: np.ndarray
    values: tuple[np.ndarray, ...]  # each B x S


def grids(
    groups: Groups, *, ssr_N: np.ndarray, seed_N: np.ndarray, values: Sequence[np.ndarray], where_N: np.ndarray
) -> list[Grid]:
    """The grid of each group, with the rows `where_N`, for each of some columns of values."""
    of_N = groups.of_N[where_N]
    ssr_N, budgets, b = _ranked(of_N, ssr_N[where_N], len(groups))
    seed_N, seeds, s = _ranked(of_N, seed_N[where_N], len(groups))
    width_G = np.diff(s)
    end_G = np.cumsum(np.diff(b) * width_G)
    start_G = end_G - np.diff(b) * width_G
    place_N = start_G[of_N] + ssr_N * width_G[of_N] + seed_N
    count = np.bincount(place_N, minlength=end_G[-1])
    means = []
    for column in values:
        total = np.bincount(place_N, weights=column[where_N], minlength=end_G[-1])
        means.append(np.divide(total, count, out=np.full(count.size, np.nan), where=count > 0))
    return [
        Grid(
            ssr_B=budgets[b[g] : b[g + 1]],
            seeds_S=seeds[s[g] : s[g + 1]],
            values=tuple(mean[start_G[g] : end_G[g]].reshape(b[g + 1] - b[g], width_G[g]) for mean in means),
        )
        for g in range(len(groups))
    ]


def _ranked(of_N: np.ndarray, values_N: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each value's rank among the different values of its group; these values, group by group; where each begins."""
    different, code_N = np.unique(values_N, return_inverse=True)
    key_N = of_N * different.size + code_N
    present = np.unique(key_N)
    edge = np.searchsorted(present, np.arange(groups + 1) * different.size)
    return np.searchsorted(present, key_N) - edge[of_N], different[present % different.size], edge
