"""`explorer attest`: sign for a finished run's model, so that it carries its record."""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import rundir
from explorer.cli import options
from explorer.cli.signing import keys_for, load_key, provide_trainer
from explorer.errors import ProvenanceError, RunError
from explorer.page.document import Block
from explorer.page.terminal import Answer, table
from explorer.project import Project
from explorer.provenance.model_attestation import ClassClaim, ModelAttestation, Observer
from explorer.provenance.trust import Trust, read_trust
from explorer.release.attest import attest as sign_model
from explorer.release.attest import ship
from explorer.release.check_gate import Verdict, verify_model
from explorer.release.gate import read_gate
from explorer.release.model_signing import SIGNATURE, read_signing_key, sign_directory
from explorer.release.observations import Observing, keep
from explorer.release.observations import observe as sign_observation
from explorer.release.shipped import Shipped, open_shipped
from explorer.runlog.documents import trainer_key
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import to_json


def attest(
    run: options.RunDirectory,
    trust: options.TrustFile,
    key: Annotated[
        list[Path] | None,
        typer.Option(
            "--key", metavar="FILE", help="Key to sign with; repeatable. Default: the key of the run's trainer."
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="When the attestation expires. Default: in a year.")
    ] = None,
    passphrase_file: options.PassphraseFile = None,
    model_signing_key: Annotated[
        Path | None,
        typer.Option(
            "--model-signing-key",
            metavar="FILE",
            help="An ECDSA key in PEM: also write model/model.sig, which `model_signing verify` of the OpenSSF checks.",
        ),
    ] = None,
) -> Answer:
    """Attest the model of a finished run: what trained which layers, its ledger, and what deletion would take.

    Every claim is computed from the ledger. RUN/model/ is then what one ships: the model, how to build it, its
    attestation, and the signed taxonomy and policy. It takes a run whose ledger has the cosignatures that the trust
    file asks for.
    """
    other = None if model_signing_key is None else read_signing_key(model_signing_key)
    stale = run / rundir.MODEL / SIGNATURE
    if other is None and stale.exists():
        raise ProvenanceError(
            f"{stale}: signs the files as they are now, and a new attestation changes them: expected"
            " --model-signing-key again, or no such file"
        )
    believed, now = read_trust(trust), options.clock()
    keys = keys_for(run, key or [], passphrase_file, trust=believed, now=now)
    ledger = RunLedger(run)
    envelope = sign_model(ledger, keys=keys, trust=believed, now=now, expires=expires)
    path = ship(ledger, envelope, trust=believed, now=now)
    signature = None if other is None else sign_directory(path.parent, other)
    shipped = open_shipped(path.parent, trust=believed, now=now)
    value = shipped.attested.value
    digest = hashlib.sha256(envelope.payload).hexdigest()
    files = {"file": str(path), "signature": None if signature is None else str(signature)}
    return Answer(
        page=lambda: _attested_page(path, shipped, signature),
        record=lambda: {**files, "digest": digest, "model": shipped.attested.model, **_summary(value)},
    )


def _attested_page(path: Path, shipped: Shipped, signature: Path | None) -> Iterator[Block | str]:
    value, directory = shipped.attested.value, path.parent
    yield f"{path}: signed by {', '.join(one.name for one in shipped.attested.authorities)}, until {value.expires}"
    yield f"model     {shipped.attested.model}"
    yield f"ledger    {value.ledger.origin}, {value.ledger.size} entries\n"
    yield table(
        ("class", "examples", "layers trained", "deepest", "deletable"),
        [_row(claim, value) for claim in value.classes],
        right=("examples", "layers trained", "deepest"),
    )
    if signature is not None:
        yield f"{signature}: `model_signing verify key {directory} --signature {signature} --public_key PUBLIC.pem`"
    yield f"ship all of {directory}/; its recipient checks it with: explorer verify {directory} --gate GATE"


def _row(claim: ClassClaim, value: ModelAttestation) -> tuple[str, int, int, str, str]:
    depths = {layer.name: layer.depth for layer in value.layers}
    deepest = max((depths[each.layer] for each in claim.trained), default=None)
    way = claim.deletable
    words = "no exact way" if way.level is None else f"{way.level}, {way.steps} steps"
    return claim.path, claim.examples, len(claim.trained), "-" if deepest is None else f"{deepest:.2f}", words


def _summary(value: ModelAttestation) -> dict[str, object]:
    record = to_json(value)
    return {name: record[name] for name in ("run", "ledger", "classes", "deletions", "parents", "issued", "expires")}


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Directory of a model, or the safetensors file in it.")]


def verify(
    model: Model,
    gate: Annotated[
        Path, typer.Option("--gate", metavar="FILE", help="Gate: the rules that the model has to pass (YAML).")
    ],
    trust: options.TrustFile,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="DIR", help="Run that made the model, if the gate requires it.")
    ] = None,
) -> Answer:
    """Check a model against a deployment gate: signatures, digests, ledger, and each rule of the gate.

    The exit status is 0 only if all of them hold. Whatever the gate speaks of and the model does not know fails it.
    """
    verdict = verify_model(model, read_gate(gate), trust=read_trust(trust), ledger=ledger, now=options.clock())
    return Answer(
        page=lambda: _verdict_lines(verdict),
        record=lambda: _verdict(verdict),
        holds=verdict.passes,
        faults_to_stderr=True,
    )


def _verdict(verdict: Verdict) -> dict[str, Any]:
    observations = [{**asdict(observation), "value": None} for observation in verdict.observations]
    for each, weighed in zip(observations, verdict.observations, strict=True):
        each["value"] = None if weighed.value is None else asdict(weighed.value)
    return {
        "passes": verdict.passes,
        "gate": verdict.gate,
        "model": str(verdict.model),
        "sha256": verdict.shipped.attested.model if verdict.shipped else None,
        "checks": [asdict(check) for check in verdict.checks],
        "rules": [asdict(rule) for rule in verdict.rules],
        "lineage": _lineage(verdict.shipped),
        "observations": observations,
        "not_looked_at": list(verdict.unseen),
    }


def _lineage(shipped: Shipped | None) -> dict[str, Any] | None:
    """Return the record of a model's lineage, nearest ancestor first."""
    if shipped is None:
        return None

    signed = shipped.attested.value
    models = [
        {"run": ancestor.value.run, "model": ancestor.model, "attestation": ancestor.digest}
        for ancestor in shipped.ancestors
    ]
    return {
        "run": signed.run,
        "ledger": asdict(signed.ledger),
        "attestation": shipped.attested.digest,
        "attested_by": [one.name for one in shipped.attested.authorities],
        "deletions": [asdict(deletion) for deletion in signed.deletions],
        "parents": to_json(signed)["parents"],
        "models": models,
    }


def _verdict_lines(verdict: Verdict) -> list[str]:
    lines = [f"{verdict.model}: {'passes' if verdict.passes else 'DOES NOT PASS'} the gate {verdict.gate!r}"]
    lines += [f"  {check.name:<10} {'holds' if check.holds else 'FAILS'}: {check.why}" for check in verdict.checks]
    for number, each in enumerate(verdict.rules, 1):
        lines += [f"  rule {number:<5} {'holds' if each.holds else 'FAILS'}: {each.says}", f"             {each.why}"]
    if verdict.shipped is not None:
        lines += ["  lineage", *(f"    {line}" for line in _ancestry(verdict.shipped))]
    if verdict.observations:
        lines.append("  observations")
        lines += [
            f"    {observation.file[:16]} {observation.verdict}: {observation.why}{_said(observation)}"
            for observation in verdict.observations
        ]
    return [*lines, "  not looked at", *(f"    {each}" for each in verdict.unseen)]


def _ancestry(shipped: Shipped) -> list[str]:
    signed = shipped.attested.value
    lines = [f"run {signed.run}, ledger {signed.ledger.origin} of {signed.ledger.size} entries"]
    for deletion in signed.deletions:
        what = [*deletion.classes, *(f"what {name} vouches for" for name in deletion.authorities)]
        what += [f"{deletion.records} records"] if deletion.records else []
        lines.append(f"without {', '.join(what)}, deleted at {deletion.level} from {deletion.ledger.origin}")
    for parent in signed.parents:
        if parent.kind == "model":
            admitted = ", ".join(f"{path} {weight:g}" for path, weight in parent.admitted.items()) or "nothing"
            lines.append(f"continues from the model {parent.model} of {parent.ledger.origin}; admitted: {admitted}")
    return lines


def _said(each: Any) -> str:
    if each.value is None:
        return ""
    metrics = ", ".join(f"{name} {value:g}" for name, value in each.value.metrics.items())
    admitted = ", ".join(f"{path} {weight:g}" for path, weight in each.value.admitted.items())
    parts = [metrics, f"admits {admitted}" if admitted else "", each.value.note or ""]
    return "".join(f"; {part}" for part in parts if part)


def observe(
    model: Model,
    role: Annotated[Observer, typer.Option("--role", help="Role in which you sign.")],
    key: options.KeyFile,
    trust: options.TrustFile,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", metavar="NAME=VALUE", help="A measured number; repeatable.")
    ] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="A remark of one line.")] = None,
    admit: Annotated[
        list[str] | None,
        typer.Option(
            "--admit", metavar="CLASS=WEIGHT", help="Weight, 0 to 1, with which a class is admitted; repeatable."
        ),
    ] = None,
    project: Annotated[
        Path | None,
        typer.Option(
            "--project",
            metavar="RUNS",
            help="Directory of runs: also append the observation to the ledger of their project.",
        ),
    ] = None,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """Sign an observation of a verified model, and write it next to the model.

    An evaluator signs with a key of the role evaluator, a fine-tuner with a trainer's, a deployer with one of model
    risk. A deployer who lets the model through a gate admits, weights or rejects it.
    """
    believed, now = read_trust(trust), options.clock()
    shipped = open_shipped(model, trust=believed, now=now)
    made = sign_observation(
        shipped,
        role=role,
        metrics=_numbers(metric or [], "--metric"),
        note=note,
        admitted=_numbers(admit or [], "--admit"),
        keys=[load_key(key, passphrase_file)],
        trust=believed,
        now=now,
    )
    index = None
    if project is None:
        path = keep(shipped, made)
    else:
        path, index = _keep_in_project(project, shipped, made, trust=believed, now=now)
    where = [] if index is None else [f"entry {index} of the ledger of {project}"]
    return Answer(
        page=lambda: [f"{path}: signed as {role}", *where],
        record=lambda: {
            "file": str(path),
            "digest": made.digest,
            "model": shipped.attested.model,
            "entry": index,
        },
    )


def _keep_in_project(runs: Path, shipped: Shipped, made: Observing, *, trust: Trust, now: int) -> tuple[Path, int]:
    """Write it, then append the entry that points to it. The project's ledger is opened first, so that where that
    cannot be done nothing is written."""
    run = _run_of(runs, shipped.attested.value.run)
    provide_trainer(run)
    name, private = trainer_key(run, trust=trust, now=now)
    with Project.open(runs, key=private, name=name) as ledger:
        path = keep(shipped, made)
        return path, ledger.append(made.entry)


def _run_of(runs: Path, name: str) -> Path:
    """Return the directory of a run in a project."""
    directories = [path for path in sorted(runs.glob("*/*")) if path.name == name and path.is_dir()]
    if not directories:
        raise RunError(f"{runs}: the run that made the model is not here: expected {runs}/<sweep>/{name}")
    return directories[0]


def _numbers(pairs: list[str], option: str) -> dict[str, float]:
    """NAME=VALUE, each name once."""
    numbers: dict[str, float] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not equals or not math.isfinite(value):
            raise ProvenanceError(f"{option} {pair!r}: expected a name, '=' and a number, such as accuracy=0.93")
        if name in numbers:
            raise ProvenanceError(f"{option}: {name!r} is given twice")
        numbers[name] = value
    return numbers
