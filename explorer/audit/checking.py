"""The spool held against the ledger: sums of contributions, recomputed from the blobs that the states name."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from explorer import rundir
from explorer.entries.numbers import share_terms
from explorer.runlog.run_ledger import RunLedger, Segment
from explorer.runlog.segments import missing_words, read_numbers
from explorer.store.spool import segment_sums

COLUMNS = ("steps", "examples", "share_num", "share_den", "update_num", "update_sq", "exact_num")
OF_ONE = 2  # of these: what a class has by itself
TOLERANCE = 1e-6  # of the sum of absolute terms: the spool's terms are rounded to single precision
MAX_DIFFERENCES = 20

Sums = dict[tuple[str, str], np.ndarray]  # by layer and class: the columns
Spooled = dict[tuple[str, str], list[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """What came of holding sums against the ledger."""

    segments: int  # recomputed
    of: int  # segments that the steps lie in
    differences: tuple[str, ...]  # the first ones
    unread: tuple[str, ...]  # segments whose numbers are not all here, and why not
    spooled: bool = True  # False: there is no spool, and sums come from the ledger itself

    @property
    def agrees(self) -> bool:
        """Whether everything that was recomputed came out the same."""
        return not self.differences

    def __str__(self) -> str:
        if not self.spooled:
            return "there are no files beside it that they could be held against"
        if not self.segments:
            return f"not held against the ledger: none of {self.of} segments was recomputed"
        if self.differences:
            return f"NOT what the ledger says: {self.differences[0]}"
        return f"recomputed from the ledger: {self.segments} of {self.of} segments, and equal"


def unchecked(segments: int) -> Check:
    """Nothing was recomputed, of so many segments."""
    return Check(segments=0, of=segments, differences=(), unread=())


def check_sums(run: RunLedger, segments: Sequence[Segment]) -> Check:
    """Recompute whole segments. Raises `LedgerError` for a damaged ledger, `StoreError` for a damaged spool."""
    if not (run.run / rundir.CONTRIBUTIONS).is_dir():
        return Check(segments=0, of=len(segments), differences=(), unread=(), spooled=False)
    differences: list[str] = []
    unread: list[str] = []
    spooled = _spooled(run, segments)
    for segment in segments:
        steps = f"steps {segment.first} to {segment.stop - 1}"
        numbers = read_numbers(run, segment)
        if numbers.missing or numbers.joint is None:
            unread.append(f"{steps}: {missing_words(numbers.missing) or 'nothing was measured'}")
            continue
        sums, scales = _sums(run, segment)
        mine = spooled.get(segment.first, {})
        if run.is_sealed(segment.state, "joint"):  # the spool has what one class made, and of no confidential one
            own = [key for key in sums if not run.is_sealed(segment.state, f"numbers/{key[1]}")]
            sums = {key: sums[key][:OF_ONE] for key in own}
            scales = {key: value[:OF_ONE] for key, value in scales.items()}
            mine = {key: value[:OF_ONE] for key, value in mine.items()}
        for key in sorted(sums.keys() | mine.keys()):
            fault = _difference(sums.get(key), mine.get(key), scales.get(key))
            if fault and len(differences) < MAX_DIFFERENCES:
                differences.append(f"{steps}: {key[1]} in {key[0]}: {fault}")
    return Check(
        segments=len(segments) - len(unread),
        of=len(segments),
        differences=tuple(differences),
        unread=tuple(unread),
    )


def _spooled(run: RunLedger, segments: Sequence[Segment]) -> dict[int, Spooled]:
    """The sums of the spool, by the first step of their segment."""
    if not segments:
        return {}
    steps = range(segments[0].first, segments[-1].stop)
    firsts = np.array([segment.first for segment in segments])
    found: dict[int, Spooled] = {}
    for first, _, layer, class_, *sums in segment_sums(run.run, steps):
        segment = int(firsts[np.searchsorted(firsts, first, side="right") - 1])
        values = [math.nan if value is None else float(value) for value in sums]
        held = found.setdefault(segment, {}).setdefault((layer, class_), [0.0] * len(COLUMNS))
        found[segment][layer, class_] = [a + b for a, b in zip(held, values, strict=True)]
    return found


def _sums(run: RunLedger, segment: Segment) -> tuple[Sums, Sums]:
    """The same from the ledger, and the sums of absolute terms."""
    classes, layers = run.genesis.classes, run.genesis.layers
    total = np.zeros((len(classes), len(layers), len(COLUMNS)))
    scale = np.zeros_like(total)
    seen = np.zeros(len(classes), bool)
    for placed, numbers in read_numbers(run, segment).by_step():
        here = list(numbers.classes)
        shares, whole = share_terms(numbers.gram)
        examples = np.array([placed.entry.examples[index] for index in here], float)
        exact = np.full_like(shares, np.nan) if numbers.exact is None else numbers.exact
        terms = (1.0, examples[:, None], shares, whole, numbers.dots, numbers.updates, exact)
        stacked = np.stack([np.broadcast_to(each, shares.shape) for each in terms], axis=-1).astype(np.float64)
        total[here] += stacked
        scale[here] += np.abs(stacked)
        seen[here] = True
    keys = [(place, at) for place in np.flatnonzero(seen) for at in range(len(layers))]
    return (
        {(layers[at], classes[place]): total[place, at] for place, at in keys},
        {(layers[at], classes[place]): scale[place, at] for place, at in keys},
    )


def _difference(expected: np.ndarray | None, found: list[float] | None, scale: np.ndarray | None) -> str | None:
    """In words, the first column that differs."""
    if expected is None or scale is None:
        return "in the spool, and not in the ledger"
    if found is None:
        return "in the ledger, and not in the spool"
    close = np.isclose(found, expected, rtol=0, atol=TOLERANCE * np.nan_to_num(scale) + 1e-30, equal_nan=True)
    close |= ~np.isfinite(expected) & ~np.isfinite(found)
    if close.all():
        return None
    at = int(np.flatnonzero(~close)[0])
    return f"{COLUMNS[at]} is {found[at]:.6g} in the spool, and {expected[at]:.6g} in the ledger"
