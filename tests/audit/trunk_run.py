"""A governed run whose ledger names the one next to it as the one that made its first steps, true and forged."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from explorer import rundir
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Entry, Genesis, State, Trunk, decode, encode
from explorer.ledger.storage import LedgerDirectory
from explorer.merkle import leaf_hash, root_of
from tests.audit import governed_run
from tests.audit.governed_run import rewrite, sign_again

AT, SHORTER = 5, "shorter"  # steps that the two have in common, and the run that made them


def write_branched(runs: Path, scratch: Path) -> Path:
    """A run whose ledger names the one next to it, which has other commitments."""
    run = governed_run.write_governed_run(runs)
    other = governed_run.write_governed_run(scratch)
    shutil.copytree(other, run.parent / SHORTER)
    sign_again(run.parent / SHORTER, lambda _, entry: renamed(entry))
    named(run)
    return run


def renamed(entry: Entry, name: str = SHORTER) -> Entry:
    return replace(entry, run=name) if isinstance(entry, Genesis) else entry


def true_entry(run: Path) -> Trunk:
    """The entry about the run next to this one."""
    ledger = LedgerDirectory(run.parent / SHORTER / rundir.LEDGER)
    leaves = list(ledger.entries())
    states = [(at, entry) for at, entry in enumerate(map(decode, leaves)) if isinstance(entry, State)]
    at, state = next((at, entry) for at, entry in states if entry.step == AT)
    head = LedgerState(
        origin=ledger.checkpoint().origin, size=at + 1, root=root_of(map(leaf_hash, leaves[: at + 1])).hex()
    )
    return Trunk(step=AT, run=SHORTER, ledger=head, state=state.state, blobs={})


def named(run: Path, /, **changes: Any) -> None:
    """Sign the ledger again with the entry, in place of one that it has."""
    entry = replace(true_entry(run), **changes)

    def change(leaves: list[bytes]) -> list[bytes]:
        kept = [leaf for leaf in leaves if not isinstance(decode(leaf), Trunk)]
        at = next(at for at, leaf in enumerate(kept) if isinstance(e := decode(leaf), State) and e.step == AT)
        return [*kept[: at + 1], encode(entry), *kept[at + 1 :]]

    rewrite(run, change)


def other(change: Callable[[Entry], Entry]) -> Callable[[Path], None]:
    """Change entries of the other run, and sign its ledger again."""
    return lambda run: sign_again(run.parent / SHORTER, lambda _, entry: change(entry))
