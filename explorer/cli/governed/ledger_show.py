"""`explorer ledger show`: the entries of a ledger, one a line, of known and unknown kinds."""

import base64
import json as jsonlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from explorer.cli import options
from explorer.entries.heads import Head, read_head
from explorer.entries.kinds import KINDS, Unknown, decode
from explorer.errors import LedgerError, unknown
from explorer.ledger.storage import LedgerDirectory

WIDTH = 100  # most characters of an entry's content on a line


def show(
    directory: options.Directory,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Show only entries of this kind.")] = None,
    start: Annotated[int, typer.Option("--from", metavar="INDEX", help="First entry to show.")] = 0,
    stop: Annotated[
        int | None, typer.Option("--to", metavar="INDEX", help="Entry before which to stop. Default: the end.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Print entries, one a line.

    A line is index, kind, version and content; with --json, a JSON object. An entry of unknown kind or version is
    marked and not left out. Nothing is verified: that is what `explorer ledger verify` is for.
    """
    print_entries(LedgerDirectory(directory), start, stop, kind=kind, as_json=json)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shown:
    """An entry, as far as it can be read."""

    index: int
    leaf: bytes
    head: Head | None
    fault: str | None  # why it is not an entry of a known kind and version, or None

    @property
    def known(self) -> bool:
        return self.head is not None and (self.head.kind, self.head.version) in KINDS


def print_entries(ledger: LedgerDirectory, start: int, stop: int | None, *, kind: str | None, as_json: bool) -> None:
    """Print entries [start, stop), or those of one kind. None is left out because its kind is unknown.

    Raises `LedgerError` for a kind that is neither known nor there.
    """
    any_shown = False
    for entry in _read(ledger.entries(start, stop), start):
        if kind is None or (entry.head and entry.head.kind == kind):
            any_shown = True
            print(_json_line(entry) if as_json else _line(entry))
    # A ledger may hold kinds of later versions, so an unknown kind is a mistake only where no entry has it.
    kinds = {name for name, _ in KINDS}
    if kind is not None and not any_shown and kind not in kinds:
        raise LedgerError(unknown("kind of entry", kind, kinds))


def _read(leaves: Iterable[bytes], start: int) -> Iterator[_Shown]:
    for index, leaf in enumerate(leaves, start):
        try:
            head = read_head(leaf)
        except LedgerError as error:
            yield _Shown(index=index, leaf=leaf, head=None, fault=str(error).removeprefix("entry: "))
            continue
        yield _Shown(index=index, leaf=leaf, head=head, fault=_fault(leaf))


def _fault(leaf: bytes) -> str | None:
    """Return the fault of an entry that can be read: an unknown kind, or fields that do not fit the kind."""
    try:
        return "unknown kind or version" if isinstance(decode(leaf), Unknown) else None
    except LedgerError as error:
        return str(error)


def _line(entry: _Shown) -> str:
    if entry.head is None:
        what, content = "?", repr(entry.leaf[:WIDTH])
    else:
        what = f"{entry.head.kind} v{entry.head.version}"
        content = jsonlib.dumps(dict(entry.head.fields), ensure_ascii=True)
    cut = content if len(content) <= WIDTH else f"{content[: WIDTH - 3]}..."
    return f"{entry.index:>8}  {what:<14}  {cut}{f'  [{entry.fault}]' if entry.fault else ''}"


def _json_line(entry: _Shown) -> str:
    value: dict[str, Any] = {"index": entry.index, "known": entry.known, "fault": entry.fault}
    if entry.head is None:
        value |= {"kind": None, "version": None}
        value["base64"] = base64.b64encode(entry.leaf).decode()
    else:
        value |= {"kind": entry.head.kind, "version": entry.head.version, "entry": jsonlib.loads(entry.leaf)}
    return jsonlib.dumps(value)
