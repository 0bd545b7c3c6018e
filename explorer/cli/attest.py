"""`explorer attest`: sign for a finished run's model, so that it carries its record."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer import rundir
from explorer.cli.credentials import PassphraseFile, TrustFile, clock, load_key
from explorer.cli.output import print_json, print_table, visible
from explorer.cli.settings import Json
from explorer.cli.trace import RunDirectory
from explorer.errors import ProvenanceError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from explorer.provenance.model_attestation import ClassClaim, ModelAttestation
    from explorer.provenance.trust import Trust


def register(app: typer.Typer) -> None:
    app.command()(attest)


def attest(
    run: RunDirectory,
    trust: TrustFile,
    key: Annotated[
        list[Path] | None,
        typer.Option(
            "--key", metavar="FILE", help="A key to sign with; may be repeated. Default: the run's trainer's."
        ),
    ] = None,
    expires: Annotated[str | None, typer.Option("--expires", metavar="TIME", help="Default: a year from now.")] = None,
    passphrase_file: PassphraseFile = None,
    model_signing_key: Annotated[
        Path | None,
        typer.Option(
            "--model-signing-key",
            metavar="FILE",
            help="An ECDSA key in PEM: also write model/model.sig, which `model_signing verify` of the OpenSSF checks.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Sign for the model of a finished run: what trained it where, under which ledger, and what deleting would take.

    Every claim is computed from the ledger. RUN/model/ is then what one ships: the model, how to build it, its
    attestation, and the signed taxonomy and policy. It takes a run whose ledger has the cosignatures that the trust
    file asks for.
    """
    from explorer.provenance.trust import read_trust
    from explorer.release.attest import attest as sign
    from explorer.release.attest import ship
    from explorer.release.model_signing import SIGNATURE, read_signing_key, sign_directory
    from explorer.release.shipped import open_shipped
    from explorer.runlog.run_ledger import RunLedger

    other = None if model_signing_key is None else read_signing_key(model_signing_key)
    stale = run / rundir.MODEL / SIGNATURE
    if other is None and stale.exists():
        raise ProvenanceError(
            f"{stale}: signs the files as they are now, and a new attestation changes them: expected"
            " --model-signing-key again, or no such file"
        )
    believed, now = read_trust(trust), clock()
    keys = _keys(run, key or [], passphrase_file, trust=believed, now=now)
    found = RunLedger(run)
    envelope = sign(found, keys=keys, trust=believed, now=now, expires=expires)
    path = ship(found, envelope, trust=believed, now=now)
    signature = None if other is None else sign_directory(path.parent, other)
    shipped = open_shipped(path.parent, trust=believed, now=now)
    value = shipped.attested.value
    if json:
        digest = hashlib.sha256(envelope.payload).hexdigest()
        files = {"file": str(path), "signature": None if signature is None else str(signature)}
        print_json({**files, "digest": digest, "model": shipped.attested.model, **_summary(value)})
        return
    print(f"{path}: signed by {', '.join(one.name for one in shipped.attested.authorities)}, until {value.expires}")
    print(f"model     {shipped.attested.model}")
    print(visible(f"ledger    {value.ledger.origin}, {value.ledger.size} entries\n"))
    print_table(
        ("class", "examples", "layers trained", "deepest", "deletable"),
        [_row(claim, value) for claim in value.classes],
        right=("examples", "layers trained", "deepest"),
    )
    if signature is not None:
        print(f"{signature}: `model_signing verify key {path.parent} --signature {signature} --public_key PUBLIC.pem`")
    print(f"ship all of {path.parent}/; whoever gets it checks it with: explorer verify {path.parent} --gate GATE")


def _keys(
    run: Path, paths: list[Path], passphrase_file: Path | None, *, trust: "Trust", now: int
) -> "list[Ed25519PrivateKey]":
    from explorer.cli.credentials import provide_passphrase
    from explorer.runlog.documents import TRAINER_FILE, source_of, trainer_key

    if paths:
        return [load_key(path, passphrase_file) for path in paths]
    own = Path(source_of(run).private) / TRAINER_FILE
    if passphrase_file is not None:
        return [load_key(own, passphrase_file)]
    if own.exists():
        provide_passphrase(own)
    return [trainer_key(run, trust=trust, now=now)[1]]


def _row(claim: "ClassClaim", value: "ModelAttestation") -> tuple[str, int, int, str, str]:
    depths = {layer.name: layer.depth for layer in value.layers}
    deepest = max((depths[each.layer] for each in claim.trained), default=None)
    way = claim.deletable
    words = "no exact way" if way.level is None else f"{way.level}, {way.steps} steps"
    return claim.path, claim.examples, len(claim.trained), "-" if deepest is None else f"{deepest:.2f}", words


def _summary(value: "ModelAttestation") -> dict[str, object]:
    from explorer.schema import to_json

    found = to_json(value)
    return {name: found[name] for name in ("run", "ledger", "classes", "deletions", "parents", "issued", "expires")}
