"""How a policy's matrix reads: a table for each phase, the rules that its cells name, and what was found.

1 r3        weight 1, decided by rules[3]
0 r0        weight 0, decided by rules[0]
0 -         weight 0, because no rule matches
0.25~ r2    attenuation, which guarantees nothing
1 s:news    in the sealed region `news`

A class whose examples the rules tell apart has a row for each band of them: `open/mit; loss [0.5, 1]`.
"""

import itertools
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from explorer.cli.documents import signed_words
from explorer.cli.output import GAP
from explorer.document import Key, spell
from explorer.provenance.drafts import Opened
from explorer.provenance.findings import Finding, of_matrix, of_policy
from explorer.provenance.intervals import exact
from explorer.provenance.matrix import Matrix, Table
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.routing import Decision
from explorer.provenance.taxonomy import Taxonomy
from explorer.provenance.words import QUARANTINE, confidential_words, region_words, rule_words
from explorer.schema import to_json


def print_matrix(policy: Opened[RoutingPolicy], taxonomy: Opened[Taxonomy], matrix: Matrix) -> None:
    """Everything there is to say about a policy, for people."""
    for what, opened in (("policy", policy), ("taxonomy", taxonomy)):
        value = opened.value
        print(f"{what} {value.name} version {value.version}: {signed_words(opened)}, sha256 {value.digest}")
    print(f"quarantine: {QUARANTINE[policy.value.quarantine]}; it never trains")
    if policy.value.confidential:
        print(f"confidential: {confidential_words(policy.value.confidential)}")
    print("a weight of 0 or 1 is a guarantee; a fraction (~) is attenuation and guarantees nothing\n")
    if matrix.layers:
        _print_tables(matrix)
        for layer in matrix.layers:
            if layer.also:
                print(f"{layer.name} is also {', '.join(layer.also)}: the strictest of these names decides\n")
    else:
        print("no layers named: --model NAME, --layers FILE or --layer NAME prints the matrix\n")
    _print_rules(policy)
    found = _findings(matrix)
    print("findings" if found else "no findings")
    for each in found:
        print(f"  {_place(policy, each.key)}: {each.message}")


def matrix_json(policy: Opened[RoutingPolicy], taxonomy: Opened[Taxonomy], matrix: Matrix) -> dict[str, Any]:
    """The same for programs."""
    return {
        **{
            what: {
                "name": opened.value.name,
                "version": opened.value.version,
                "digest": opened.value.digest,
                "signed_by": [authority.name for authority in opened.authorities],
            }
            for what, opened in (("policy", policy), ("taxonomy", taxonomy))
        },
        "quarantine": policy.value.quarantine.value,
        "rules": [
            {"line": _line(policy, ("rules", at)), **to_json(rule)} for at, rule in enumerate(policy.value.rules)
        ],
        "confidential": list(policy.value.confidential),
        "sealed": [to_json(region) for region in policy.value.sealed],
        "layers": [layer._asdict() for layer in matrix.layers],
        "phases": [_table_json(matrix, table) for table in matrix.tables],
        "findings": [
            {"key": spell(each.key), "line": _line(policy, each.key), "message": each.message}
            for each in _findings(matrix)
        ],
    }


def _findings(matrix: Matrix) -> tuple[Finding, ...]:
    return (*of_policy(matrix.routing), *(of_matrix(matrix) if matrix.layers else ()))


def _table_json(matrix: Matrix, table: Table) -> dict[str, Any]:
    return {
        "progress": table.phase.progress,
        "conditions": sorted(table.phase.conditions),
        "classes": {
            name: [{**to_json(cell), "guaranteed": cell.guaranteed} for cell in row]
            for name, row in zip(_names(matrix), table.rows, strict=True)
        },
    }


def _print_tables(matrix: Matrix) -> None:
    """A table a phase; one that repeats an earlier one says so."""
    seen: dict[tuple[tuple[Decision, ...], ...], str] = {}
    for table in matrix.tables:
        if table.rows in seen:
            print(f"{table.phase}: as in {seen[table.rows]}\n")
            continue
        seen[table.rows] = str(table.phase)
        print(table.phase)
        for page in _pages(_names(matrix), _columns(matrix, table)):
            print(*_drawn([_Column(head=("", "class"), cells=_names(matrix)), *page]), "", sep="\n")


def _names(matrix: Matrix) -> tuple[str, ...]:
    """What each row is about: a class, or those of its examples that the rules tell apart."""
    rows = zip(matrix.classes, matrix.bands, strict=True)
    return tuple(f"{path}; {band.words}" if band.words else path for path, band in rows)


class _Column(NamedTuple):
    """Neighbouring layers that are treated alike: the first and the last of them, and the cell of each class."""

    head: tuple[str, str]
    cells: Sequence[str]

    @property
    def width(self) -> int:
        return max(map(len, (*self.head, *self.cells)))


def _columns(matrix: Matrix, table: Table) -> Iterator[_Column]:
    """The layers from input to output; neighbours that are treated alike share a column."""
    cells = [tuple(_cell(row[at]) for row in table.rows) for at in range(len(matrix.layers))]
    for alike, group in itertools.groupby(zip(cells, matrix.layers, strict=True), key=lambda pair: pair[0]):
        names = [layer.name for _, layer in group]
        yield _Column(head=(f"{names[0]} .." if len(names) > 1 else "", names[-1]), cells=alike)


def _pages(classes: Sequence[str], columns: Iterable[_Column]) -> Iterator[list[_Column]]:
    """As many columns side by side as the terminal is wide beside the classes, and at least one."""
    room = shutil.get_terminal_size().columns - max(map(len, ("class", *classes)))
    page: list[_Column] = []
    for column in columns:
        if page and sum(GAP + each.width for each in (*page, column)) > room:
            yield page
            page = []
        page.append(column)
    yield page


def _drawn(columns: Sequence[_Column]) -> Iterator[str]:
    """The lines of a table."""
    rules = ["\u2500" * column.width for column in columns]
    heads = zip(*(column.head for column in columns), strict=True)
    for row in (*heads, rules, *zip(*(column.cells for column in columns), strict=True)):
        cells = (cell.ljust(column.width) for cell, column in zip(row, columns, strict=True))
        yield (" " * GAP).join(cells).rstrip()


def _cell(cell: Decision) -> str:
    by = "-" if cell.rule is None else f"r{cell.rule}"
    attenuated = "" if cell.guaranteed else "~"
    return f"{exact(cell.weight)}{attenuated} {by if cell.region is None else f's:{cell.region}'}"


def _print_rules(policy: Opened[RoutingPolicy]) -> None:
    print("rules, read from the top: the first that matches decides, and where none matches (-) the weight is 0")
    for at, rule in enumerate(policy.value.rules):
        print(f"  r{at}  {_place(policy, ('rules', at))}: {rule_words(rule)}")
    for at, region in enumerate(policy.value.sealed):
        print(f"  s:{region.name}  {_place(policy, ('sealed', at))}: {region_words(region)}")
    print()


def _place(policy: Opened[RoutingPolicy], key: Key) -> str:
    return f"{policy.where}: {spell(key)}" if policy.draft is None else policy.draft.place(key)


def _line(policy: Opened[RoutingPolicy], key: Key) -> int | None:
    if policy.draft is None:
        return None
    lines = policy.draft.lines
    return next((lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in lines), None)
