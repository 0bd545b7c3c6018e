"""`explorer attest|verify|observe`: attest a model, check it at a deployment gate, sign an observation of it."""

import hashlib
import math
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import rundir
from explorer.cli import options
from explorer.cli.signing import keys_for, load_key, provide_trainer
from explorer.cli.verbs import part
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
    key: options.SigningKeys = None,
    expires: options.Expires = None,
    passphrase_file: options.PassphraseFile = None,
    model_signing_key: Annotated[
        Path | None,
        typer.Option(
            "--model-signing-key",
            metavar="FILE",
            help="ECDSA key in PEM: also write model/model.sig, which `model_signing verify` of the OpenSSF checks.",
        ),
    ] = None,
) -> Answer:
    """Attest the model of a finished run: what trained which layers, its ledger, and what deletion would take.

    Every claim is computed from the ledger. RUN/model/ is then ready to ship: the model, how to build it, its
    attestation, and the signed taxonomy and policy. The ledger of the run needs the cosignatures that the trust file
    requires.
    """
    # A model.sig signs every file of the directory, and so would not cover the new attestation.
    other = None if model_signing_key is None else read_signing_key(model_signing_key)
    stale = run / rundir.MODEL / SIGNATURE
    if other is None and stale.exists():
        raise ProvenanceError(
            f"{stale}: signs the files as they are now, and a new attestation changes them; give"
            " --model-signing-key again, or remove the file"
        )
    trusted, now = read_trust(trust), options.clock()
    keys = keys_for(run, key or [], passphrase_file, trust=trusted, now=now)
    ledger = RunLedger(run)
    envelope = sign_model(ledger, keys=keys, trust=trusted, now=now, expires=expires)
    path = ship(ledger, envelope, trust=trusted, now=now)
    signature = None if other is None else sign_directory(path.parent, other)
    # Opened again as a recipient would: nothing is reported that does not verify.
    shipped = open_shipped(path.parent, trust=trusted, now=now)
    value = shipped.attested.value
    digest = hashlib.sha256(envelope.payload).hexdigest()
    files = {"file": str(path), "signature": None if signature is None else str(signature)}
    return Answer(
        page=lambda: _attested_page(path, shipped, signature),
        record=lambda: {**files, "digest": digest, "model": shipped.attested.model, **_summary(value)},
        then=lambda: part("governed runs, next")(run, "attest", trust=trust),
    )


def _attested_page(path: Path, shipped: Shipped, signature: Path | None) -> Iterator[Block | str]:
    value, directory = shipped.attested.value, path.parent
    yield f"{path}: signed by {', '.join(one.name for one in shipped.attested.authorities)}, until {value.expires}"
    yield f"model     {shipped.attested.model}"
    yield f"ledger    {value.ledger.origin}, {value.ledger.size} entries"
    for parent in value.parents:
        if parent.kind == "trunk":
            yield f"          with the first steps of {parent.ledger.origin}, taken over"
    yield ""
    yield table(
        ("class", "examples", "layers trained", "deepest", "deletable"),
        [_row(claim, value) for claim in value.classes],
        right=("examples", "layers trained", "deepest"),
    )
    shown = shlex.quote(str(directory))
    if signature is not None:
        check = f"model_signing verify key {shown} --signature {shlex.quote(str(signature))} --public_key PUBLIC.pem"
        yield f"{signature}: `{check}`"
    check = f"explorer verify {shown} --gate GATE --trust TRUST"
    yield f"ship all of {directory}/; its recipient checks it with: {check}"


def _row(claim: ClassClaim, value: ModelAttestation) -> tuple[str, int, int, str, str]:
    depths = {layer.name: layer.depth for layer in value.layers}
    deepest = max((depths[layer.layer] for layer in claim.trained), default=None)
    way = claim.deletable
    words = "no exact way" if way.level is None else f"{way.level}, {way.steps} steps"
    return claim.path, claim.examples, len(claim.trained), "-" if deepest is None else f"{deepest:.2f}", words


def _summary(value: ModelAttestation) -> dict[str, object]:
    record = to_json(value)
    return {name: record[name] for name in ("run", "ledger", "classes", "deletions", "parents", "issued", "expires")}


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Directory of a model, or its safetensors file.")]


def verify(
    model: Model,
    gate: Annotated[
        Path,
        typer.Option("--gate", metavar="FILE", help="Deployment gate: the rules that the model has to pass (YAML)."),
    ],
    trust: options.TrustFile,
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger", metavar="DIR", help="Directory of the run that made the model, if the gate requires its ledger."
        ),
    ] = None,
) -> Answer:
    """Check a model against a deployment gate: signatures, digests, ledger, and each rule of the gate.

    The exit status is 0 only if all of them hold. A rule about anything that the model's record does not know fails.
    """
    verdict = verify_model(model, read_gate(gate), trust=read_trust(trust), ledger=ledger, now=options.clock())
    return Answer(
        page=lambda: _verdict_lines(verdict),
        record=lambda: _verdict(verdict),
        holds=verdict.passes,
        faults_to_stderr=True,
        remark=options.warn_of_own(trust, model, *([] if ledger is None else [ledger])),
    )


def _verdict(verdict: Verdict) -> dict[str, Any]:
    observations = [{**asdict(observation), "value": None} for observation in verdict.observations]
    for record, weighed in zip(observations, verdict.observations, strict=True):
        record["value"] = None if weighed.value is None else asdict(weighed.value)
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
    for number, rule in enumerate(verdict.rules, 1):
        lines += [f"  rule {number:<5} {'holds' if rule.holds else 'FAILS'}: {rule.says}", f"             {rule.why}"]
    if verdict.shipped is not None:
        lines += ["  lineage", *(f"    {line}" for line in _ancestry(verdict.shipped))]
    if verdict.observations:
        lines.append("  observations")
        lines += [
            f"    {observation.file[:16]} {observation.verdict}: {observation.why}{_content_words(observation)}"
            for observation in verdict.observations
        ]
    return [*lines, "  not looked at", *(f"    {place}" for place in verdict.unseen)]


def _ancestry(shipped: Shipped) -> list[str]:
    signed = shipped.attested.value
    lines = [f"run {signed.run}, ledger {signed.ledger.origin} of {signed.ledger.size} entries"]
    for deletion in signed.deletions:
        targets = [*deletion.classes, *(f"what {name} vouches for" for name in deletion.authorities)]
        targets += [f"{deletion.records} records"] if deletion.records else []
        lines.append(f"without {', '.join(targets)}, deleted at {deletion.level} from {deletion.ledger.origin}")
    for parent in signed.parents:
        if parent.kind == "model":
            admitted = ", ".join(f"{path} {weight:g}" for path, weight in parent.admitted.items()) or "nothing"
            lines.append(f"continues from the model {parent.model} of {parent.ledger.origin}; admitted: {admitted}")
        if parent.kind == "trunk":
            lines.append(f"took over its first steps from {parent.ledger.origin}")
    return lines


def _content_words(observation: Any) -> str:
    value = observation.value
    if value is None:
        return ""
    metrics = ", ".join(f"{name} {number:g}" for name, number in value.metrics.items())
    admitted = ", ".join(f"{path} {weight:g}" for path, weight in value.admitted.items())
    parts = [metrics, f"admits {admitted}" if admitted else "", value.note or ""]
    return "".join(f"; {part}" for part in parts if part)


def observe(
    model: Model,
    role: Annotated[
        Observer, typer.Option("--role", help="Role in which you sign: it decides what the observation may say.")
    ],
    key: options.KeyFile,
    trust: options.TrustFile,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME=VALUE", help="Measured number, such as accuracy=0.93; repeatable."),
    ] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Remark of one line.")] = None,
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

    An evaluator signs with a key of the role evaluator, a fine-tuner with a trainer's key, and a deployer with a key of
    model risk. A deployer records the decision of a gate: to admit, weight or reject the model.
    """
    trusted, now = read_trust(trust), options.clock()
    # Only a model that verifies can be observed: the observation names its digest and its attestation.
    shipped = open_shipped(model, trust=trusted, now=now)
    made = sign_observation(
        shipped,
        role=role,
        metrics=_numbers(metric or [], "--metric"),
        note=note,
        admitted=_numbers(admit or [], "--admit"),
        keys=[load_key(key, passphrase_file)],
        trust=trusted,
        now=now,
    )
    index = None
    if project is None:
        path = keep(shipped, made)
    else:
        path, index = _keep_in_project(project, shipped, made, trust=trusted, now=now)
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
    """Write an observation, then append the entry that points to it. Return its path and the entry."""
    run = _run_of(runs, shipped.attested.value.run)
    provide_trainer(run)
    name, private = trainer_key(run, trust=trust, now=now)
    # Opened before anything is written: a project's ledger that refuses leaves no observation behind.
    with Project.open(runs, key=private, name=name) as ledger:
        path = keep(shipped, made)
        return path, ledger.append(made.entry)


def _run_of(runs: Path, name: str) -> Path:
    """Return the directory of a run in a project."""
    directories = [path for path in sorted(runs.glob("*/*")) if path.name == name and path.is_dir()]
    if not directories:
        raise RunError(f"{runs}: found no run that made the model; expected {runs}/<sweep>/{name}")
    return directories[0]


def _numbers(pairs: list[str], option: str) -> dict[str, float]:
    """Parse pairs NAME=VALUE, with every name once."""
    numbers: dict[str, float] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not equals or not math.isfinite(value):
            raise ProvenanceError(f"{option}: found {pair!r:.80}, expected NAME=VALUE, such as accuracy=0.93")
        if name in numbers:
            raise ProvenanceError(f"{option}: {name!r} is given twice")
        numbers[name] = value
    return numbers
