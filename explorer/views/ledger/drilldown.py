"""Entries behind a cell of the heat map: their commitments, and proofs of their inclusion."""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.errors import ProvenanceError
from explorer.ledger.proof import SUFFIX, make_proof
from explorer.merkle import leaf_hash
from explorer.page import amounts
from explorer.page.document import Block, Code, Column, Row, Span, Table
from explorer.runlog.run_keys import Keys, NoKeys
from explorer.runlog.run_ledger import Missing, RunLedger
from explorer.runlog.segments import open_commitments, read_numbers
from explorer.views.ledger.open_run import Steps
from explorer.views.ledger.pane import heading, note

MAX_ENTRIES = 8
ABOUT = "~"
OPENED = "A commitment opens if the numbers are those that the entry committed to."

OPENS = "opens"
DIFFERS = "does not open"
UNREAD = "not opened: the secret of the class is not here"
GONE = "not opened: the numbers are not here"
SEALED = "not opened: the numbers are sealed"

COLUMNS = (
    Column(title="Entry"),
    Column(title="Step", number=True),
    Column(title="Examples", number=True),
    Column(title="Weight", number=True),
    Column(title="Gradient norm", number=True),
    Column(title="Commitment"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EntryLine:
    """Entry of one step, as far as it concerns a class in a layer."""

    index: int
    step: int
    examples: int
    weight: float | None  # None, like the norm: the numbers are not here
    norm: float | None
    estimated: bool  # the norm is that of a sketch
    commitment: str
    leaf: str  # the entry's hash in the tree, hexadecimal


def drilled(run: RunLedger, recorded: Steps, *, layer: str, class_: str, steps: range) -> Iterator[Block]:
    """Yield the entries behind one cell and a proof of each. Raises as `entry_lines` does."""
    lines, total = entry_lines(run, recorded, layer=layer, class_=class_, steps=steps)
    yield heading(f"Entries behind {class_} in {layer}, steps {steps.start:,} to {steps.stop - 1:,}")
    if not lines:
        yield note(no_numbers(recorded, run.class_(class_), steps))
        return
    yield from entries_table(lines, total)
    yield from proofs(run, [line.index for line in lines], here=Path.cwd())


def no_numbers(recorded: Steps, class_: int, steps: range) -> str:
    """Return the reason why a class has no numbers in these steps."""
    examples = int(recorded.examples[steps.start : steps.stop, class_].sum())
    if not examples:
        return "It had no examples in these steps."
    had = f"It had {amounts.count(examples, 'example')} in the batches and no numbers"
    if recorded.weights(steps)[class_].any():
        return f"{had}: its contribution was not measured, or it was left out of training."
    return f"{had}: it was denied to every layer."


def entry_lines(
    run: RunLedger, recorded: Steps, *, layer: str, class_: str, steps: range, most: int = MAX_ENTRIES
) -> tuple[tuple[EntryLine, ...], int]:
    """Return the first `most` entries that hold numbers of a class in these steps, and the number of all such entries.

    Raises `LedgerError` for entries or blobs that are damaged.
    """
    index, place = run.class_(class_), run.layer(layer)
    # Numbers lie in one blob a segment: only the segments of the wanted steps are read.
    having = [step for step in steps if recorded.numbers[step, index]]
    wanted = having[:most]
    keys, unread = _keys(run)
    lines: list[EntryLine] = []
    for segment in run.segments(range(wanted[0], wanted[-1] + 1)) if wanted else ():
        numbers_read = read_numbers(run, segment)
        rows, status = numbers_read.of_class(index), dict[int, str]()
        opened = open_commitments(numbers_read, keys)
        status = {
            entry: OPENS if committed == computed else DIFFERS
            for entry, path, committed, computed in opened
            if path == class_
        }
        gone = SEALED if numbers_read.missing.get(f"numbers/{class_}") is Missing.SEALED else GONE
        for placed in numbers_read.steps:
            step = placed.entry.step
            if step not in wanted:
                continue
            numbers = rows[step][place] if step in rows else None
            (leaf,) = run.ledger.entries(placed.index, placed.index + 1)
            lines.append(
                EntryLine(
                    index=placed.index,
                    step=step,
                    examples=placed.entry.examples[index],
                    weight=None if numbers is None else float(numbers[0]),
                    norm=None if numbers is None else float(numbers[1]),
                    estimated=placed.entry.estimated,
                    commitment=gone if numbers is None else status.get(placed.index, unread),
                    leaf=leaf_hash(leaf).hex(),
                )
            )
    return tuple(lines), len(having)


def entries_table(lines: Sequence[EntryLine], total: int) -> Iterator[Block]:
    """Yield the entries as a table, and the number of entries that are left out."""
    rows = [
        Row(
            (
                str(line.index),
                f"{line.step:,}",
                f"{line.examples:,}",
                amounts.MISSING if line.weight is None else f"{line.weight:.4g}",
                amounts.MISSING if line.norm is None else f"{ABOUT if line.estimated else ''}{line.norm:.4g}",
                (Span(line.commitment, "warn" if line.commitment == DIFFERS else "plain"),),
            )
        )
        for line in lines
    ]
    rest = total - len(lines)
    more = f"And {amounts.count(rest, 'more entry', 'more entries')} in these steps. " if rest else ""
    yield Table(COLUMNS, rows)
    about = f" {ABOUT}: an estimate, from a sketch of the gradient." if any(line.estimated for line in lines) else ""
    yield note(f"{more}{OPENED}{about}")


def proofs(run: RunLedger, entries: Sequence[int], *, here: Path) -> Iterator[Block]:
    """Yield a proof of each entry, to copy, and the commands that write and check one, for a shell in `here`.

    Raises `LedgerError` for a ledger that is damaged.
    """
    size = amounts.count(run.ledger.checkpoint().size, "entry", "entries")
    yield note(
        f"A proof shows anyone who trusts the signer that the entry is in this ledger of {size}. These commands write a"
        " proof and check it; the text below is the same proof:"
    )
    yield Code(prove_commands(run.run / rundir.LEDGER, entries[0], here=here))
    for entry in entries:
        yield Code(make_proof(run.ledger, entry).content.decode(errors="backslashreplace"), f"Proof of entry {entry}")


def prove_commands(ledger: Path, entry: int, *, here: Path) -> str:
    """Return the commands, for a shell in `here`, that write the proof of an entry and check it."""
    directory = shlex.quote(Path(os.path.relpath(ledger, here)).as_posix())
    file = f"entry-{entry}{SUFFIX}"
    return f"explorer ledger prove {directory} {entry} --out {file}\nexplorer ledger check {file} --trust TRUST.json"


def _keys(run: RunLedger) -> tuple[Keys, str]:
    """Return the keys, or none and the reason: an auditor reads the entries without them."""
    try:
        return run.keys, UNREAD
    except ProvenanceError as error:
        return NoKeys(), f"not opened: {error}"
