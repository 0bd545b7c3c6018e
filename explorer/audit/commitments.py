"""Commitments of profiles and decisions, opened: the numbers in their blobs are those that the entries committed to.

Those of steps stand a segment at a time and are opened in `segments`.
"""

from collections.abc import Iterator
from typing import Any

from explorer.entries.run import Decision, Profile
from explorer.provenance.commitments import commit, derived_salt
from explorer.provenance.salts import Salts
from explorer.recorded.run_ledger import Placed, RunLedger
from explorer.recorded.segments import JOINT

MAX_BYTES = 2**24


def open_entries(run: RunLedger, secrets: Salts) -> Iterator[tuple[int, str, str, str]]:
    """Entry, class path, what was committed, what was found; of every content that is here and has a secret still.

    Raises `LedgerError` for a blob that is damaged.
    """
    for placed in run.read(run.outline.profiles, Profile):
        contents = {path: (f"numbers/{path}", committed) for path, committed in placed.entry.classes.items()}
        contents[JOINT] = ("joint", placed.entry.joint)
        yield from _opened(run, placed, contents, secrets)
    for placed in run.read(run.outline.decisions, Decision):
        contents = {path: (f"evidence/{path}", committed) for path, committed in placed.entry.evidence.items()}
        yield from _opened(run, placed, contents, secrets)


def _opened(
    run: RunLedger,
    placed: Placed[Any],
    contents: dict[str, tuple[str, str]],
    secrets: Salts,
) -> Iterator[tuple[int, str, str, str]]:
    names = (*run.genesis.classes, JOINT)
    for path, (name, committed) in contents.items():
        secret = secrets.of(names.index(path)) if path in names else None
        content = run.blob(placed, name, max_bytes=MAX_BYTES)
        if secret is not None and content is not None:
            salt = derived_salt(secret, kind=placed.entry.KIND, class_path=path, step=placed.entry.step)
            yield placed.index, path, committed, commit(salt, content).hex()
