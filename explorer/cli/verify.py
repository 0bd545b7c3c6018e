"""`explorer verify`: whether a model may pass a deployment gate."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.credentials import TrustFile, clock
from explorer.cli.output import print_json, visible
from explorer.cli.settings import Json

if TYPE_CHECKING:
    from explorer.release.shipped import Shipped
    from explorer.release.verify import Verdict

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model's directory, or the safetensors file in it.")]


def register(app: typer.Typer) -> None:
    app.command()(verify)


def verify(
    model: Model,
    gate: Annotated[Path, typer.Option("--gate", metavar="FILE", help="What has to hold of it (YAML).")],
    trust: TrustFile,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="DIR", help="The run that made it, for a gate that asks for it.")
    ] = None,
    json: Json = False,
) -> None:
    """Judge a model before it is let run: signatures, digests, ledger, and the gate's own rules, one by one.

    The exit status is 0 only if all of them hold. Whatever the gate speaks of and the model does not know fails it.
    """
    from explorer.provenance.trust import read_trust
    from explorer.release.gate import read_gate
    from explorer.release.verify import verify_model

    found = verify_model(model, read_gate(gate), trust=read_trust(trust), ledger=ledger, now=clock())
    if json:
        print_json(_json(found))
    else:
        _print(found)
    if not found.passes:
        raise typer.Exit(1)


def _json(found: "Verdict") -> dict[str, Any]:
    observations = [{**asdict(each), "value": None} for each in found.observations]
    for each, weighed in zip(observations, found.observations, strict=True):
        each["value"] = None if weighed.value is None else asdict(weighed.value)
    return {
        "passes": found.passes,
        "gate": found.gate,
        "model": str(found.model),
        "sha256": found.shipped.attested.model if found.shipped else None,
        "checks": [asdict(each) for each in found.checks],
        "rules": [asdict(each) for each in found.rules],
        "lineage": _lineage(found.shipped),
        "observations": observations,
        "not_looked_at": list(found.unseen),
    }


def _lineage(shipped: "Shipped | None") -> dict[str, Any] | None:
    """Where a model comes from, the nearest first."""
    if shipped is None:
        return None
    from explorer.schema import to_json

    signed = shipped.attested.value
    models = [{"run": each.value.run, "model": each.model, "attestation": each.digest} for each in shipped.ancestors]
    return {
        "run": signed.run,
        "ledger": asdict(signed.ledger),
        "attestation": shipped.attested.digest,
        "attested_by": [one.name for one in shipped.attested.authorities],
        "deletions": [asdict(each) for each in signed.deletions],
        "parents": to_json(signed)["parents"],
        "models": models,
    }


def _print(found: "Verdict") -> None:
    """On standard error where it does not pass, as the messages of other verbs are."""
    out = sys.stdout if found.passes else sys.stderr
    for line in _lines(found):
        print(visible(line), file=out)


def _lines(found: "Verdict") -> list[str]:
    lines = [f"{found.model}: {'passes' if found.passes else 'DOES NOT PASS'} the gate {found.gate!r}"]
    lines += [f"  {each.name:<10} {'holds' if each.holds else 'FAILS'}: {each.why}" for each in found.checks]
    for number, each in enumerate(found.rules, 1):
        lines += [f"  rule {number:<5} {'holds' if each.holds else 'FAILS'}: {each.says}", f"             {each.why}"]
    if found.shipped is not None:
        lines += ["  lineage", *(f"    {line}" for line in _ancestry(found.shipped))]
    if found.observations:
        lines.append("  observations")
        lines += [f"    {each.file[:16]} {each.verdict}: {each.why}{_said(each)}" for each in found.observations]
    return [*lines, "  not looked at", *(f"    {each}" for each in found.unseen)]


def _ancestry(shipped: "Shipped") -> list[str]:
    signed = shipped.attested.value
    lines = [f"run {signed.run}, ledger {signed.ledger.origin} of {signed.ledger.size} entries"]
    for each in signed.deletions:
        what = [*each.classes, *(f"what {name} vouches for" for name in each.authorities)]
        what += [f"{each.records} records"] if each.records else []
        lines.append(f"without {', '.join(what)}, deleted at {each.level} from {each.ledger.origin}")
    for each in signed.parents:
        if each.kind == "model":
            admitted = ", ".join(f"{path} {weight:g}" for path, weight in each.admitted.items()) or "nothing"
            lines.append(f"goes on from the model {each.model} of {each.ledger.origin}; admitted: {admitted}")
    return lines


def _said(each: Any) -> str:
    if each.value is None:
        return ""
    metrics = ", ".join(f"{name} {value:g}" for name, value in each.value.metrics.items())
    admitted = ", ".join(f"{path} {weight:g}" for path, weight in each.value.admitted.items())
    parts = [metrics, f"admits {admitted}" if admitted else "", each.value.note or ""]
    return "".join(f"; {part}" for part in parts if part)
