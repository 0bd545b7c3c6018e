"""What somebody who wants the numbers of one class can try, with the files of a project and the keys they have."""

import hashlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from explorer import rundir
from explorer.entries.heads import read_head
from explorer.entries.numbers import decode_joint, split_joint
from explorer.errors import LedgerError, ProvenanceError
from explorer.provenance.encryption import is_sealed, open_sealed
from explorer.runlog.run_keys import Keys
from explorer.runlog.run_ledger import RunLedger, class_of
from explorer.runlog.segments import having, read_numbers
from explorer.store import queries
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.store.queries import Question
from tests.audit.governed_run import CLASSES, LAYERS

RATE = 0.1  # of the descent in these runs: update = -RATE * gradient. It stands in the recipe.
KINDS = ("step", "profile", "decision")

Numbers = dict[tuple[int, str], float]
"""By step and layer."""


def truth(run: Path, path: str) -> Numbers:
    """The gradient norms of a class that are not 0, as its owner knows them."""
    ledger, found = RunLedger(run), {}
    for segment in ledger.segments():
        for step, rows in read_numbers(ledger, segment).of_class(ledger.class_(path)).items():
            found |= {(step, layer): float(row[1]) for layer, row in zip(LAYERS, rows, strict=True) if row[1]}
    return found


def in_files(run: Path, path: str) -> set[str]:
    """The files below the project, but the owner's, in which a number of the class stands as it is."""
    needles = [np.array([1.0, each], "<f4").tobytes() for each in truth(run, path).values()]  # weight, norm
    files = [each for each in run.parents[1].rglob("*") if each.is_file() and rundir.PRIVATE not in each.parts]
    return {str(each.relative_to(run)) for each in files if any(needle in each.read_bytes() for needle in needles)}


def spool_rows(run: Path) -> list[dict[str, Any]]:
    """The spool's rows of steps."""
    files = sorted((run / rundir.CONTRIBUTIONS).glob("*.parquet"))
    return [row for each in files for row in pq.read_table(each).to_pylist()]


def in_spool(run: Path, path: str) -> int:
    """How many of its numbers stand anywhere in the spool."""
    seen = {float(cell) for row in spool_rows(run) for cell in row.values() if isinstance(cell, int | float)}
    return sum(each in seen for each in truth(run, path).values())


def in_database(run: Path, path: str) -> int:
    """How many rows of the database are about the class, in any table that has classes."""
    runs = run.parents[1]
    assert ingest(runs).problems == ()
    asked = [f"SELECT count(*) FROM {table} WHERE class = '{path}'" for table in ("contributions", "entropy")]
    return sum(queries.select(database(runs), Question(sql=sql)).rows[0][0] for sql in asked)


def opened_blobs(run: Path, keys: Keys) -> set[str]:
    """The classes of sealed blobs that open with any key there is, as any blob, whatever it is said to be of."""
    ledger = RunLedger(run, keys=keys)
    every = product((*CLASSES, "*"), KINDS, range(ledger.steps + 1))
    have = {(key, kind, first) for path, kind, first in every if (key := keys.of(path, kind, first)) is not None}
    names = {name for _, name in _blobs(ledger)}
    found: set[str] = set()
    for (content, name), (key, kind, first) in product(_blobs(ledger), have):
        for said in names if is_sealed(content) else ():
            try:
                open_sealed(key, content, kind=kind, name=said, first=first)
            except ProvenanceError:
                continue
            found.add(class_of(name) or name)
    return found


def by_subtraction(run: Path, path: str, keys: Keys) -> Numbers:
    """The class's |weight gradient| from the joint numbers less those of the others: under plain descent

    |update|^2 / RATE^2 = sum over classes of |w_c G_c|^2 + 2 sum over pairs of <w_c G_c, w_d G_d>
    """
    ledger, found = RunLedger(run, keys=keys), {}
    mine = ledger.class_(path)
    for segment in ledger.segments():
        numbers = read_numbers(ledger, segment)
        others = {index: numbers.of_class(index) for index in range(len(CLASSES)) if index != mine}
        if numbers.joint is None:
            continue
        steps = [each.entry for each in numbers.steps if each.entry.joint is not None]
        counts = [len(having(step)) for step in steps]
        parts = split_joint(numbers.joint, layers=len(LAYERS), counts=counts)
        for step, part, count in zip(steps, parts, counts, strict=True):
            rest = [index for index in having(step) if index != mine]
            if len(rest) == count or any(step.step not in others[index] for index in rest):
                continue
            joint = decode_joint(part, layers=len(LAYERS), classes=count)
            known = sum(np.square(np.prod(others[index][step.step], axis=1, dtype=np.float64)) for index in rest)
            left = joint.updates / RATE**2 - 2 * joint.products.astype(np.float64).sum(axis=1) - known
            found |= {
                (step.step, layer): float(np.sqrt(max(each, 0))) for layer, each in zip(LAYERS, left, strict=True)
            }
    return found


def shares_by_subtraction(run: Path, path: str) -> Numbers:
    """The class's share of each step and layer from the spool: the whole less what all others have."""
    whole: Numbers = {}
    rest: Numbers = {}
    for row in spool_rows(run):
        of = row["step"], row["layer"]
        if row["share_den"] is not None and row["class"] != path:
            whole[of] = row["share_den"]
            rest[of] = rest.get(of, 0.0) + row["share_num"]
    return {of: whole[of] - rest[of] for of in whole}


def _blobs(ledger: RunLedger) -> Iterator[tuple[bytes, str]]:
    """Every blob that an entry names, and the name."""
    for leaf in ledger.ledger.entries():
        for name, blob in read_head(leaf).blobs.items():
            try:
                content = ledger.ledger.blob(blob.sha256)
            except LedgerError:
                continue
            assert hashlib.sha256(content).hexdigest() == blob.sha256
            yield content, name
