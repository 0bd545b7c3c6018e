"""`explorer ledger show`: the entries of a ledger, a line each, whether their kind is known here or not."""

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

WIDTH = 100  # characters of an entry's content on a line


def show(
    directory: options.Directory,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only entries of this kind.")] = None,
    start: Annotated[int, typer.Option("--from", metavar="INDEX", help="The first entry.")] = 0,
    stop: Annotated[
        int | None, typer.Option("--to", metavar="INDEX", help="The entry before which to stop. Default: the end.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Print entries, one a line.

    The line is index, kind, version and content; with --json a JSON object. A kind or version that is not known here
    is marked and not left out. Nothing is verified here; `explorer ledger verify` does that.
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
    """Print entries [start, stop), those of one kind where it is named; none is dropped for not being understood.

    Raises `LedgerError` for a kind that is neither known nor there.
    """
    any_shown = False
    for each in _read(ledger.entries(start, stop), start):
        if kind is None or (each.head and each.head.kind == kind):
            any_shown = True
            print(_json_line(each) if as_json else _line(each))
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
        return "kind or version is not known here" if isinstance(decode(leaf), Unknown) else None
    except LedgerError as error:
        return str(error)


def _line(each: _Shown) -> str:
    if each.head is None:
        what, content = "?", repr(each.leaf[:WIDTH])
    else:
        what = f"{each.head.kind} v{each.head.version}"
        content = jsonlib.dumps(dict(each.head.fields), ensure_ascii=True)
    cut = content if len(content) <= WIDTH else f"{content[: WIDTH - 3]}..."
    return f"{each.index:>8}  {what:<14}  {cut}{f'  [{each.fault}]' if each.fault else ''}"


def _json_line(each: _Shown) -> str:
    value: dict[str, Any] = {"index": each.index, "known": each.known, "fault": each.fault}
    if each.head is None:
        value |= {"kind": None, "version": None}
        value["base64"] = base64.b64encode(each.leaf).decode()
    else:
        value |= {"kind": each.head.kind, "version": each.head.version, "entry": jsonlib.loads(each.leaf)}
    return jsonlib.dumps(value)
