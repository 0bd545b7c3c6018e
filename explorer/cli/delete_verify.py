"""`explorer delete verify`: whether the certificate of a deletion holds."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.credentials import TrustFile, clock
from explorer.cli.output import print_json, visible
from explorer.cli.settings import Data, Json, OwnLoop

if TYPE_CHECKING:
    from explorer.deletion.verify import Verified
    from explorer.training.deletion import Compared

MARKS = {"held": "held", "failed": "FAILED", "not looked at": "NOT LOOKED AT"}
WITHOUT = "not trained. That each step was done as the ledgers say is the trainer's word; --counterfactual trains them"
LEDGERS, TRAINED = "by both ledgers", "the same as a run that never had it"
SHOWN = 5  # tensors that differ


def verify(
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="The certificate of a deletion.")],
    old: Annotated[
        Path,
        typer.Option(
            "--old", metavar="RUN", help="The run that had the target; a directory with its ledger is enough."
        ),
    ],
    new: Annotated[Path, typer.Option("--new", metavar="RUN", help="The run without it, with its model.")],
    trust: TrustFile,
    records: Annotated[
        Path | None,
        typer.Option("--records", metavar="FILE", help="The list of deleted records that the certificate commits to."),
    ] = None,
    counterfactual: Annotated[
        bool,
        typer.Option("--counterfactual", help="Train the run that never had the target, and compare every tensor."),
    ] = False,
    data: Data = None,
    governance: Annotated[
        Path | None, typer.Option("--governance", metavar="DIR", help="Where the salts of the tags are now.")
    ] = None,
    loop: OwnLoop = None,
    json: Json = False,
) -> None:
    """Check a certificate of deletion: every claim in it is derived again from both ledgers and the new run.

    The exit status is 0 only if all of them hold; then, and only then, the target is called deleted.
    """
    from explorer.deletion.verify import verify as check
    from explorer.errors import ProvenanceError
    from explorer.provenance.envelope import MAX_BYTES
    from explorer.provenance.trust import read_trust
    from explorer.rundir import read_bytes

    content = read_bytes(certificate, max_bytes=MAX_BYTES, error=ProvenanceError)
    found = check(
        content, old=old, new=new, trust=read_trust(trust), now=clock(), records=records, where=str(certificate)
    )
    compared = _train(found, new, data=data, private=governance, loop=loop, quiet=json) if counterfactual else None
    holds = found.deleted and (compared is None or compared.equal)
    if json:
        print_json(_json(found, compared, holds=holds))
    else:
        out = sys.stdout if holds else sys.stderr
        print(visible("\n".join(_lines(found, compared, certificate, holds=holds))), file=out)
    if not holds:
        raise typer.Exit(1)


def _train(
    found: "Verified", new: Path, *, data: Path | None, private: Path | None, loop: str | None, quiet: bool
) -> "Compared":
    from explorer.cli.replay import print_elsewhere
    from explorer.training.deletion import train_counterfactual
    from explorer.training.govern import load_loop

    structure = found.certificate.structure
    return train_counterfactual(
        new,
        dropped=() if structure is None else structure.dropped,
        data=data,
        private=private,
        loop=None if loop is None else load_loop(loop),
        on_environment=lambda differing: None if quiet else print_elsewhere(differing),
    )


def _json(found: "Verified", compared: "Compared | None", *, holds: bool) -> dict[str, Any]:
    from dataclasses import asdict

    from explorer.schema import to_json

    return {
        "deleted": holds,
        "means": _means(found, compared) if holds else None,
        "certificate": to_json(found.certificate),
        "sha256": found.digest,
        "model": found.model,
        "signed_by": found.signed_by,
        "checks": [asdict(check) for check in found.checks],
        "counterfactual": None if compared is None else {**asdict(compared), "equal": compared.equal},
        "said_by_the_signer_not_checked": found.said,
        "still_there": found.remaining,
    }


def _means(found: "Verified", compared: "Compared | None") -> str:
    """What was computed, in the words that there are for it, whatever the certificate itself says."""
    from explorer.provenance.deletion_certificate import MEANS, NEVER_HAD

    return MEANS[found.certificate.level] if compared is None else NEVER_HAD


def _lines(found: "Verified", compared: "Compared | None", certificate: Path, *, holds: bool) -> list[str]:
    from explorer.deletion.verify import SEES

    value = found.certificate
    rests = LEDGERS if compared is None else TRAINED
    verdict = f"deleted, {rests}" if holds else "NOT shown to be deleted"
    lines = [
        f"{certificate}: {value.target.words}: {verdict}",
        f"  {'level' if holds else 'claims':<12} {value.level}. {_means(found, compared if holds else None)}",
        f"  old run      {value.old.run}",
        f"  new run      {value.new.run}, model {found.model}",
        f"  signed by    {', '.join(found.signed_by)}, {value.issued}; expires {value.expires}",
        "  checked:",
    ]
    for check in found.checks:
        lines.append(f"    {MARKS[check.outcome]:<13} {check.says}")
        lines += [f"{'':<18} {check.why}"] if check.why else []
    lines += _counterfactual(compared)
    lines.append("  leaks that show:")
    lines += [f"    by {where}: {what}" for where, what in SEES.items()]
    lines.append("  said by the signer, not checked:")
    lines += [f"    {line}" for line in found.said]
    if found.remaining:
        lines.append(f"  {len(found.remaining)} of the files to be destroyed are still beside the old ledger")
    return lines


def _counterfactual(compared: "Compared | None") -> list[str]:
    if compared is None:
        return [f"  counterfactual: {WITHOUT}"]
    if compared.equal:
        return [
            f"  counterfactual: trained, {compared.steps} steps: all {compared.tensors} tensors bit for bit the same"
        ]
    lines = [f"  counterfactual: trained, {compared.steps} steps: {len(compared.differing)} tensors are NOT the same"]
    lines += [f"    {each}" for each in compared.differing[:SHOWN]]
    return lines + ([f"    and {len(compared.differing) - SHOWN} more"] if len(compared.differing) > SHOWN else [])
