"""`explorer policy`: sign a routing policy, check it, and explain what it does to every class and layer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.credentials import KeyFile, PassphraseFile, TrustFile
from explorer.cli.documents import Believe, SignedOut, open_believed, sign_to
from explorer.cli.output import print_json
from explorer.cli.settings import Json
from explorer.cli.trace import RunDirectory, Steps, steps_of
from explorer.errors import ProvenanceError

if TYPE_CHECKING:
    from explorer.provenance.layers import Layer

File = Annotated[Path, typer.Argument(metavar="FILE", help="A routing policy: a draft (YAML) or a signed file.")]
TaxonomyFile = Annotated[
    Path, typer.Option("--taxonomy", metavar="FILE", help="The taxonomy it was written for: a draft or a signed file.")
]
LayersFile = Annotated[
    Path | None,
    typer.Option("--layers", metavar="FILE", help="Layers of a model of your own; explorer.layers(...) writes them."),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="A model of the catalogue, whose layers to show."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the model; repeat for others.")
]
LayerNames = Annotated[list[str] | None, typer.Option("--layer", metavar="NAME", help="A layer name; repeat in order.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Which class may train which layer, and when.", no_args_is_help=True)
    group.command()(check)
    group.command()(sign)
    group.command()(simulate)
    app.add_typer(group, name="policy")


def check(
    file: File,
    taxonomy: TaxonomyFile,
    model: ModelName = None,
    set_: Settings = None,
    layers: LayersFile = None,
    layer: LayerNames = None,
    trust: Believe = None,
    json: Json = False,
) -> None:
    """Check a policy and print its class x layer matrix, phase by phase, with the rule that decided each cell.

    Fails if a rule or a sealed region fits none of the layers: no run of such a model starts with it.
    """
    from explorer.cli.matrix import matrix_json, print_matrix
    from explorer.provenance.findings import void
    from explorer.provenance.matrix import matrix
    from explorer.provenance.routing import bind, policy_for
    from explorer.provenance.taxonomy import TAXONOMY

    named = _layers(model, set_ or [], layers, layer or [])
    tree = open_believed(taxonomy, TAXONOMY, trust)
    policy = open_believed(file, policy_for(tree.value), trust)
    found = matrix(bind(policy.value, tree.value, where=str(file)), named)
    if json:
        print_json(matrix_json(policy, tree, found))
    else:
        print_matrix(policy, tree, found)
    if named and (misfits := void(found.routing, named)):
        raise ProvenanceError(f"{file}: does not fit the model: {misfits[0]}")


def sign(
    file: File,
    taxonomy: TaxonomyFile,
    key: KeyFile,
    trust: TrustFile,
    out: SignedOut,
    passphrase_file: PassphraseFile = None,
    json: Json = False,
) -> None:
    """Sign a policy that fits its taxonomy, or add a signature to a signed one. Takes a key of model risk."""
    from explorer.provenance.routing import policy_for
    from explorer.provenance.taxonomy import TAXONOMY

    tree = open_believed(taxonomy, TAXONOMY, trust)
    kind = policy_for(tree.value)
    sign_to(out, file, kind, key=key, passphrase_file=passphrase_file, trust=trust, as_json=json)


def simulate(
    run: RunDirectory,
    file: File,
    steps: Steps = None,
    trust: Believe = None,
    json: Json = False,
) -> None:
    """What a recorded run's numbers say its updates would have been under another policy, before training is paid for.

    Length and direction of every layer's gradient, and the shares of the classes in it, against what was recorded. What
    that cannot know is printed with it.
    """
    from dataclasses import asdict

    from explorer.audit.conform import total_steps
    from explorer.audit.simulate import LIMITS
    from explorer.audit.simulate import simulate as ask
    from explorer.cli.simulation import print_outcomes
    from explorer.provenance.routing import bind, policy_for
    from explorer.provenance.trust import read_trust
    from explorer.runlog.documents import read_basis, read_rules
    from explorer.runlog.run_ledger import RunLedger

    found = RunLedger(run)
    basis = read_basis(run, found.genesis, trust=None if trust is None else read_trust(trust))
    rules, planned = read_rules(run, found.genesis, basis), total_steps(found)
    if rules is None or planned is None:
        raise ProvenanceError(f"{run}: no policy, or no planned end: there is nothing to compare another one with")
    policy = open_believed(file, policy_for(basis.taxonomy), trust)
    other = bind(policy.value, basis.taxonomy, where=str(file))
    chosen = steps_of(found, steps)
    outcomes = ask(found, other, chosen, recorded=rules.routing, planned=planned)
    if json:
        print_json({"run": found.genesis.run, "limits": LIMITS, "outcomes": [asdict(each) for each in outcomes]})
    else:
        print_outcomes(outcomes, run=found.genesis.run, was=rules.routing.policy.name, would=policy.value.name)


def _layers(model: str | None, settings: list[str], file: Path | None, names: list[str]) -> "tuple[Layer, ...]":
    """The layers to ask about, evenly spaced in depth; none where none were named."""
    from explorer.provenance.layers import check_layers, read_layers

    if (model is not None) + (file is not None) + bool(names) > 1:
        raise ProvenanceError("layers come from --model NAME, --layers FILE or --layer NAME: from one of them")
    if settings and model is None:
        raise ProvenanceError("--set is for a parameter of --model NAME, which is not there")
    if model is not None:
        from explorer.training.model_layers import catalogue_layers  # brings torch

        return catalogue_layers(model, settings)
    if file is not None:
        return read_layers(file)
    return check_layers(names, where="--layer") if names else ()
