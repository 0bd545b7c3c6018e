"""`explorer policy`: check a routing policy and explain its effect on every class and layer, sign it, simulate it."""

import itertools
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from explorer.audit.conform import total_steps
from explorer.audit.shares import estimates
from explorer.audit.simulate import LIMITS, Outcome
from explorer.audit.simulate import simulate as ask
from explorer.cli import options
from explorer.cli.signing import open_trusted, sign_to, signed_words
from explorer.cli.verbs import part
from explorer.errors import ProvenanceError
from explorer.page.document import Block
from explorer.page.terminal import GAP, Answer, table
from explorer.provenance.findings import Finding, of_matrix, of_policy, void
from explorer.provenance.policy import QUARANTINE_WORDS, RoutingPolicy, confidential_words, region_words, rule_words
from explorer.provenance.regions import Layer, check_layers, exact, read_layers
from explorer.provenance.routing_weights import Decision, Matrix, Table, bind, matrix, policy_for
from explorer.provenance.signing import Opened
from explorer.provenance.taxonomy import TAXONOMY, Taxonomy
from explorer.provenance.trust import read_trust
from explorer.runlog.documents import read_basis, read_rules
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import to_json
from explorer.yaml_document import Key, spell

File = Annotated[Path, typer.Argument(metavar="FILE", help="A routing policy: a draft (YAML) or a signed file.")]
TaxonomyFile = Annotated[
    Path,
    typer.Option(
        "--taxonomy", metavar="FILE", help="Taxonomy that the policy was written for: a draft or a signed file."
    ),
]
LayersFile = Annotated[
    Path | None,
    typer.Option(
        "--layers", metavar="FILE", help="File with the layers of your own model, as written by explorer.layers(...)."
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="Model of the catalogue whose layers are shown."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Parameter of the model; repeatable.")
]
LayerNames = Annotated[
    list[str] | None, typer.Option("--layer", metavar="NAME", help="Name of a layer; repeatable, from input to output.")
]


def check(
    file: File,
    taxonomy: TaxonomyFile,
    model: ModelName = None,
    set_: Settings = None,
    layers: LayersFile = None,
    layer: LayerNames = None,
    trust: options.OptionalTrust = None,
) -> Answer:
    """Check a policy and print its class x layer matrix, phase by phase, with the rule that decided each cell.

    The exit status is 1 if a rule or a sealed region fits none of the layers: no run of such a model would start.
    """
    named = _layers(model, set_ or [], layers, layer or [])
    tree = open_trusted(taxonomy, TAXONOMY, trust)
    policy = open_trusted(file, policy_for(tree.value), trust)
    weights = matrix(bind(policy.value, tree.value, where=str(file)), named)
    misfits = void(weights.routing, named) if named else ()
    return Answer(
        page=lambda: _matrix_lines(policy, tree, weights),
        record=lambda: matrix_json(policy, tree, weights),
        holds=not misfits,
        remark=f"explorer: {file}: does not fit the model: {misfits[0]}" if misfits else "",
    )


def sign(
    file: File,
    taxonomy: TaxonomyFile,
    key: options.KeyFile,
    trust: options.TrustFile,
    out: options.SignedOut,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """Sign a policy that fits its taxonomy, or add a signature to a signed one. This takes a key of model risk."""
    tree = open_trusted(taxonomy, TAXONOMY, trust)
    kind = policy_for(tree.value)
    return sign_to(out, file, kind, key=key, passphrase_file=passphrase_file, trust=trust)


def simulate(
    run: options.RunDirectory,
    file: File,
    steps: options.Steps = None,
    trust: options.OptionalTrust = None,
) -> Answer:
    """Estimate the updates of a recorded run under another policy, before paying for training.

    For every layer it compares the length and direction of the gradient, and the shares of the classes in it, with the
    recorded ones. The limits of the estimate are printed with it.
    """
    ledger = RunLedger(run)
    # The documents of the run say what was recorded; a trust file checks them, and the other policy too.
    basis = read_basis(run, ledger.genesis, trust=None if trust is None else read_trust(trust))
    rules, planned = read_rules(run, ledger.genesis, basis), total_steps(ledger)
    if rules is None or planned is None:
        raise ProvenanceError(
            f"{run}: found no policy or no planned end; expected both, to compare another policy with"
        )
    policy = open_trusted(file, policy_for(basis.taxonomy), trust)
    other = bind(policy.value, basis.taxonomy, where=str(file))
    chosen = ledger.range_of(*options.span_of(steps))
    outcomes = ask(ledger, other, chosen, recorded=rules.routing, planned=planned)
    names = {"was": rules.routing.policy.name, "would": policy.value.name}
    limits = [*LIMITS, *filter(None, (estimates(ledger, chosen),))]
    return Answer(
        page=lambda: _outcome_blocks(outcomes, limits, run=ledger.genesis.run, **names),
        record=lambda: {
            "run": ledger.genesis.run,
            "limits": limits,
            "outcomes": [asdict(outcome) for outcome in outcomes],
        },
    )


def _layers(model: str | None, settings: list[str], file: Path | None, names: list[str]) -> tuple[Layer, ...]:
    """Return the layers that the options name, evenly spaced in depth; none where no option does."""
    if (model is not None) + (file is not None) + bool(names) > 1:
        raise ProvenanceError(
            "name layers in one way: expected only one of --model NAME, --layers FILE and --layer NAME"
        )
    if settings and model is None:
        raise ProvenanceError("--set: found without --model NAME, whose parameter it would be")
    if model is not None:
        return part("policy check --model")(model, settings)
    if file is not None:
        return read_layers(file)
    return check_layers(names, where="--layer") if names else ()


def _matrix_lines(policy: Opened[RoutingPolicy], taxonomy: Opened[Taxonomy], matrix: Matrix) -> Iterator[str]:
    for kind, opened in (("policy", policy), ("taxonomy", taxonomy)):
        value = opened.value
        yield f"{kind} {value.name} version {value.version}: {signed_words(opened)}, sha256 {value.digest}"
    yield f"quarantine: {QUARANTINE_WORDS[policy.value.quarantine]}; it never trains"
    if policy.value.confidential:
        yield f"confidential: {confidential_words(policy.value.confidential)}"
    yield "a weight of 0 or 1 is a guarantee; a fraction (~) is attenuation and guarantees nothing\n"
    if matrix.layers:
        yield from _table_lines(matrix)
        for layer in matrix.layers:
            if layer.also:
                yield f"{layer.name} is also {', '.join(layer.also)}: the strictest of these names decides\n"
    else:
        yield "no layers named: --model NAME, --layers FILE or --layer NAME prints the matrix\n"
    yield from _rule_lines(policy)
    findings = _findings(matrix)
    yield "findings" if findings else "no findings"
    for finding in findings:
        yield f"  {_place(policy, finding.key)}: {finding.message}"


def matrix_json(policy: Opened[RoutingPolicy], taxonomy: Opened[Taxonomy], matrix: Matrix) -> dict[str, Any]:
    """Return the record of a policy and its matrix."""
    return {
        **{
            kind: {
                "name": opened.value.name,
                "version": opened.value.version,
                "digest": opened.value.digest,
                "signed_by": [authority.name for authority in opened.authorities],
            }
            for kind, opened in (("policy", policy), ("taxonomy", taxonomy))
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
            {"key": spell(finding.key), "line": _line(policy, finding.key), "message": finding.message}
            for finding in _findings(matrix)
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


def _table_lines(matrix: Matrix) -> Iterator[str]:
    """Yield a table per phase; one that repeats an earlier table is a reference to it."""
    seen: dict[tuple[tuple[Decision, ...], ...], str] = {}
    for phase_table in matrix.tables:
        if phase_table.rows in seen:
            yield f"{phase_table.phase}: as in {seen[phase_table.rows]}\n"
            continue
        seen[phase_table.rows] = str(phase_table.phase)
        yield str(phase_table.phase)
        for page in _pages(_names(matrix), _columns(matrix, phase_table)):
            yield from (*_drawn([_Column(head=("", "class"), cells=_names(matrix)), *page]), "")


def _names(matrix: Matrix) -> tuple[str, ...]:
    """Return the name of each row: a class, or the part of its examples that the rules set apart."""
    rows = zip(matrix.classes, matrix.bands, strict=True)
    return tuple(f"{path}; {band.words}" if band.words else path for path, band in rows)


class _Column(NamedTuple):
    """Neighbouring layers with equal cells: the first and the last of them, and the cell of each class."""

    head: tuple[str, str]
    cells: Sequence[str]

    @property
    def width(self) -> int:
        return max(map(len, (*self.head, *self.cells)))


def _columns(matrix: Matrix, table: Table) -> Iterator[_Column]:
    """Yield a column for each group of neighbouring layers with equal cells, from input to output."""
    cells = [tuple(_cell(row[at]) for row in table.rows) for at in range(len(matrix.layers))]
    for alike, group in itertools.groupby(zip(cells, matrix.layers, strict=True), key=lambda pair: pair[0]):
        names = [layer.name for _, layer in group]
        yield _Column(head=(f"{names[0]} .." if len(names) > 1 else "", names[-1]), cells=alike)


def _pages(classes: Sequence[str], columns: Iterable[_Column]) -> Iterator[list[_Column]]:
    """Group columns into pages as wide as the terminal, at least one column each."""
    room = shutil.get_terminal_size().columns - max(map(len, ("class", *classes)))
    page: list[_Column] = []
    for column in columns:
        # A column wider than the terminal still gets a page of its own.
        if page and sum(GAP + shown.width for shown in (*page, column)) > room:
            yield page
            page = []
        page.append(column)
    yield page


def _drawn(columns: Sequence[_Column]) -> Iterator[str]:
    rules = ["\u2500" * column.width for column in columns]
    heads = zip(*(column.head for column in columns), strict=True)
    for row in (*heads, rules, *zip(*(column.cells for column in columns), strict=True)):
        cells = (cell.ljust(column.width) for cell, column in zip(row, columns, strict=True))
        yield (" " * GAP).join(cells).rstrip()


def _cell(cell: Decision) -> str:
    by = "-" if cell.rule is None else f"r{cell.rule}"
    attenuated = "" if cell.guaranteed else "~"
    return f"{exact(cell.weight)}{attenuated} {by if cell.region is None else f's:{cell.region}'}"


def _rule_lines(policy: Opened[RoutingPolicy]) -> Iterator[str]:
    yield "rules, read from the top: the first that matches decides, and where none matches (-) the weight is 0"
    for at, rule in enumerate(policy.value.rules):
        yield f"  r{at}  {_place(policy, ('rules', at))}: {rule_words(rule)}"
    for at, region in enumerate(policy.value.sealed):
        yield f"  s:{region.name}  {_place(policy, ('sealed', at))}: {region_words(region)}"
    yield ""


def _place(policy: Opened[RoutingPolicy], key: Key) -> str:
    return f"{policy.where}: {spell(key)}" if policy.draft is None else policy.draft.place(key)


def _line(policy: Opened[RoutingPolicy], key: Key) -> int | None:
    if policy.draft is None:
        return None
    # A key that the draft leaves out has no line of its own: the line of the nearest key above it is the place to look.
    lines = policy.draft.lines
    return next((lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in lines), None)


# --- explorer policy simulate ---

WIDTH = 100  # characters of a line of the limits
COLUMNS = ("layer", "unknown", "length", "cosine", "share that changes most")


def _outcome_blocks(
    outcomes: Sequence[Outcome], limits: Sequence[str], *, run: str, was: str, would: str
) -> Iterator[Block | str]:
    yield f"{run}: recorded under {was}, simulated under {would}\n"
    for phase in dict.fromkeys(outcome.phase for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.phase == phase]
        yield f"{phase}: {mine[0].steps} steps"
        rows = [
            (layer.layer, layer.unknown, _number(layer.length), _number(layer.cosine), _change(layer)) for layer in mine
        ]
        yield table(COLUMNS, rows, right=COLUMNS[1:4])
    yield "unknown: steps left out; length: of the gradient, relative to the recorded one; all shares: --json"
    yield "Limits of this estimate:"
    for limit in limits:
        yield textwrap.fill(limit, WIDTH, initial_indent="- ", subsequent_indent="  ")


def _change(outcome: Outcome) -> str:
    """Return the class whose share of the gradient changes most, with the share before and after."""
    changes = {
        path: abs(would - was)
        for (path, was), would in zip(outcome.was.items(), outcome.would.values(), strict=True)
        if was is not None and would is not None
    }
    path = max(changes, key=lambda class_: changes[class_], default="")
    if not changes.get(path):
        return "none" if changes else "-"
    return f"{path}: {outcome.was[path]:.1%} > {outcome.would[path]:.1%}"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
