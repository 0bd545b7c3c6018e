"""Commitments of profiles and decisions, opened: the numbers in their blobs are those that the entries committed to.

Those of steps stand a segment at a time and are opened in `segments`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from explorer.entries.run import Decision, Profile
from explorer.provenance.commitments import commit
from explorer.provenance.encryption import salt_of
from explorer.runlog.run_keys import JOINT, Keys
from explorer.runlog.run_ledger import Missing, Placed, RunLedger

MAX_BYTES = 2**24


def open_entries(run: RunLedger, keys: Keys, *, sealed: Callable[[str], None]) -> Iterator[tuple[int, str, str, str]]:
    """Entry, class path, what was committed, what was found; of every content that is here and has a key. `sealed` is
    told the name of each blob that does not open.

    Raises `LedgerError` for a blob that is damaged or sealed with another key.
    """
    for placed in run.read(sorted((*run.outline.profiles, *run.outline.past_profiles)), Profile):
        contents = {path: (f"numbers/{path}", committed) for path, committed in placed.entry.classes.items()}
        contents[JOINT] = ("joint", placed.entry.joint)
        yield from _opened(run, placed, contents, keys, sealed)
    for placed in run.read(run.outline.decisions, Decision):
        contents = {path: (f"evidence/{path}", committed) for path, committed in placed.entry.evidence.items()}
        yield from _opened(run, placed, contents, keys, sealed)


def _opened(
    run: RunLedger,
    placed: Placed[Any],
    contents: dict[str, tuple[str, str]],
    keys: Keys,
    sealed: Callable[[str], None],
) -> Iterator[tuple[int, str, str, str]]:
    step = placed.entry.step
    for path, (name, committed) in contents.items():
        content, key = run.find(placed, name, max_bytes=MAX_BYTES), keys.of(path, placed.entry.KIND, step)
        if content is Missing.SEALED:
            sealed(name)
        elif key is not None and not isinstance(content, Missing):
            yield placed.index, path, committed, commit(salt_of(key, step), content).hex()
