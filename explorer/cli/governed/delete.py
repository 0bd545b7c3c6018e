"""`explorer delete plan|certify|erase|verify`: plan a deletion, certify it, erase secrets, check a certificate.

These verbs need no torch; `delete_run.py` has those that train.
"""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import rundir
from explorer.cli import options
from explorer.cli.signing import provide_trainer
from explorer.cli.verbs import part
from explorer.deletion.deletion_plan import LEVELS, Plan
from explorer.deletion.deletion_plan import plan as make_plan
from explorer.deletion.erase import Erasure, of_classes, of_records
from explorer.deletion.erase import erase as erase_for_good
from explorer.deletion.evidence import RECORDS_FILE
from explorer.deletion.finish import CERTIFICATE, DESTROY, Concluded, conclude
from explorer.deletion.unreachable import beyond
from explorer.deletion.verify_deletion import SEES, Verified
from explorer.deletion.verify_deletion import verify as verify_certificate
from explorer.errors import LedgerError, ProvenanceError, RunError
from explorer.page.amounts import price_words
from explorer.page.terminal import Answer, from_here
from explorer.project import Project, runs_of
from explorer.provenance.deletion_certificate import MEANS, NEVER_HAD, UNREACHED, NotReached
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.spellings import format_time
from explorer.provenance.trust import read_trust
from explorer.rundir import read_bytes
from explorer.runlog.documents import SALTS_FILE, source_of, trainer_key
from explorer.runlog.forecast import NO_CODE, Time
from explorer.runlog.influence import Presence, reach_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tagged_records import numbers_of, words_of
from explorer.runlog.target import read_origin, resolve
from explorer.schema import to_json

SHOWN = 6  # most layers on a line


def plan(
    run: options.RunDirectory,
    class_: options.Class = None,
    record: options.Records = None,
    authority: options.AuthorityName = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Measure the step time of the replay now. Takes about a minute, on a quiet machine."
        ),
    ] = False,
    data: options.Data = None,
    governance: options.Private = None,
    loop: options.OwnLoop = None,
) -> Answer:
    """Show what a deletion takes: its level, what the target touched, time and cost, and what it cannot reach.

    The exit status is 0 only if the deletion can be done here and now. Nothing is changed.
    """
    ledger = RunLedger(run)
    target = resolve(ledger, class_=class_, authority=authority, records=numbers_of(ledger, record or ()))
    planned = make_plan(ledger, target, private=governance)
    if loop is not None and not (run / rundir.LOOP).exists():
        raise RunError(f"--loop: found with {run}, the run of a recipe, which needs no function")
    # Only a replay asks for the machine and the data of the run, and only a replay has a time to measure.
    machine = part("delete plan, by replay")(run, data) if planned.forecast.route.level == "G3" else ()
    if profile and planned.forecast.route.steps:
        steps = range(planned.forecast.route.start, ledger.steps)
        if loop is None:
            step = part("delete plan --profile")(run, target, steps=steps, data=data)
        else:
            step = part("delete plan --profile --loop")(run, target, loop=loop, private=governance)
        planned = make_plan(ledger, target, step=step, private=governance)
    # With the function that trains at hand, its absence from the record is no obstacle.
    mine = (words for words in planned.forecast.obstacles if loop is None or words != NO_CODE)
    obstacles = (*mine, *machine)
    return Answer(
        page=lambda: _plan_lines(planned, obstacles, words_of(ledger, target)),
        record=lambda: _plan_record(planned, obstacles),
        holds=not obstacles,
    )


def _plan_record(planned: Plan, obstacles: tuple[str, ...]) -> dict[str, Any]:
    forecast, reach = planned.forecast, asdict(planned.forecast.reach)
    # A number for every step is too much for a record; the target has a key of its own.
    for name in ("slots", "batch", "target"):
        del reach[name]
    return {
        "run": planned.run,
        **({"continues": list(planned.continues)} if planned.continues else {}),
        "target": asdict(planned.target),
        "level": None if obstacles else forecast.route.level,
        "obstacles": obstacles,
        "reach": {**reach, "in_slots": sum(forecast.reach.slots)},
        "route": asdict(forecast.route),
        "time": asdict(forecast.time),
        "cost": None if planned.cost is None else asdict(planned.cost),
        "beyond": [asdict(place) for place in planned.beyond],
        "levels": LEVELS,
    }


def _plan_lines(planned: Plan, obstacles: tuple[str, ...], target: str) -> list[str]:
    route = planned.forecast.route
    lines = [f"{planned.run}: deleting {target}"]
    lines += [f"  continues {words}" for words in planned.continues]
    if obstacles:
        lines += [f"  NOT POSSIBLE here and now; its level would be {route.level}:"]
        lines += [f"    {obstacle}" for obstacle in obstacles]
    else:
        lines.append(f"  {route.level}, {LEVELS[route.level]}")
    lines += _reach(planned)
    if route.level == "G3":
        source = f"the checkpoint of step {route.start}" if route.start else "the initial state"
        lines.append(f"  to replay: {route.steps} steps, from {source}")
    elif route.dropped:
        lines.append(f"  to drop: {', '.join(route.dropped)}; nothing is trained")
    else:
        lines.append("  to drop: nothing, because the target reached nothing")
    lines.append(f"  time: {time_words(planned.forecast.time)}")
    lines.append(f"  cost: {_cost(planned)}")
    lines.append("  not reached:")
    lines += [f"    {place.what}: {place.detail}" for place in planned.beyond]
    lines.append("  weaker levels are no deletion:")
    return [*lines, *(f"    {name}: {LEVELS[name]}" for name in ("G0", "G1"))]


def _reach(planned: Plan) -> list[str]:
    reach = planned.forecast.reach
    if reach.first is None:
        return ["  the target reached nothing: no layer admitted it, and no decision depended on it"]
    lines = [f"  first possible influence: step {reach.first}; it trained in {reach.trained} steps"]
    if reach.unrecorded:
        lines.append(
            f"  steps before {reach.unrecorded} are in another ledger: assumed to reach all that the policy admits"
        )
    if reach.shared:
        lines.append(f"  shared layers: {_some(reach.shared)}")
    for name, others in reach.regions.items():
        lines.append(f"  sealed region {name}: {'its own' if not others else 'with ' + ', '.join(others)}")
    if reach.probed:
        lines.append("  a method decides by probes of the class, and the target may be one of them")
    for channel in reach.channels:
        lines.append(f"  entry {channel.entry}, step {channel.step}: {channel.action} over {', '.join(channel.over)}")
    return lines


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)}: {', '.join(names[:SHOWN])}{more}"


def time_words(time: Time) -> str:
    """Return a time with its interval and its source, in words."""
    if time.seconds is None:
        return f"unknown: {time.words}"
    interval = "" if time.low is None or time.high is None else f" ({_span(time.low)} to {_span(time.high)})"
    return f"{_span(time.seconds)}{interval}, including start-up and evaluation; {time.words}"


def _span(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} minutes"


def _cost(planned: Plan) -> str:
    if planned.cost is None:
        return "no price for this hardware"
    if planned.cost.usd is None:
        return "unknown, like the time"
    low, high = planned.cost.low, planned.cost.high
    price = price_words(planned.cost.price, hardware="", today=options.today())
    interval = "" if low is None or high is None else f" (${low:.3g} to ${high:.3g})"
    return f"${planned.cost.usd:.3g}{interval} at {price}"


New = Annotated[Path, typer.Argument(metavar="NEW", help="The run that the deletion made.")]


def certify(
    new: New,
    old: Annotated[Path, typer.Option("--old", metavar="RUN", help="The run with the target.")],
    trust: options.TrustFile,
    expires: options.Expires = None,
    governance: options.Private = None,
) -> Answer:
    """Certify a deletion made by `explorer delete run`, and record it in the project's ledger.

    The certificate is verified as by `explorer delete verify` before it is written. The project's ledger, RUNS/_audit,
    is then cosigned like those of runs: `explorer next NEW` prints the commands.
    """
    origin = read_origin(new)
    if origin is None:
        raise RunError(f"{new}: not made by a deletion: found no {rundir.ORIGIN}")
    provide_trainer(new, private=governance)
    presence = Presence(RunLedger(old))
    missed = beyond(presence, reach_of(presence, origin.target))
    return certified(old, new, trust=trust, expires=expires, private=governance, not_reached=missed)


def certified(
    old: Path,
    new: Path,
    *,
    trust: Path,
    expires: str | None,
    private: Path | None,
    not_reached: tuple[NotReached, ...],
) -> Answer:
    """Certify a deletion, and answer with the certificate. The passphrase of the trainer's key has to be known by now.

    `old` is the run with the target and `new` the one without it; `trust` is a trust file; `expires` is a time, or None
    for a year from now; `private` is where the trainer's key is if it has moved; `not_reached` lists what the deletion
    could not reach.
    """
    trusted, now = read_trust(trust), options.clock()
    name, key = trainer_key(new, trust=trusted, now=now, private=private)
    done = conclude(
        old,
        new,
        name=name,
        key=key,
        trust=trusted,
        now=now,
        expires=expires or format_time(now + options.YEAR),
        not_reached=not_reached,
    )
    return Answer(
        page=lambda: _certified_lines(done, old, new, trust),
        record=lambda: _certified_record(done, new),
        then=lambda: part("governed runs, next")(new, "certify", trust=trust),
    )


def _certified_lines(done: Concluded, old: Path, new: Path, trust: Path) -> list[str]:
    value, files, here = done.certificate.value, done.destroy.files, from_here(new)
    lines = [
        f"{new.name}: {value.level}, deleted, by both ledgers. {MEANS[value.level]}",
        f"  {here}",
        f"  certificate: {here / CERTIFICATE}, entry {done.entry} of the project's ledger",
        f"  anyone checks it with: {_verify_command(old, new, trust, listed=value.target.records is not None)}",
        f"  for you to destroy, of {done.destroy.run}: {len(files)} files, listed in {here / DESTROY}",
        "  never ship both models: their difference is what was deleted",
        "  not reached:",
    ]
    return [*lines, *(f"    {place.what}: {UNREACHED[place.what]}" for place in value.not_reached)]


def _verify_command(old: Path, new: Path, trust: Path, *, listed: bool) -> str:
    """Return the command that checks a certificate; `listed`: it names records, whose list belongs to it."""
    here = from_here(new)
    words = [
        "explorer",
        "delete",
        "verify",
        here / CERTIFICATE,
        "--old",
        from_here(old),
        "--new",
        here,
        "--trust",
        trust,
    ]
    return shlex.join(map(str, [*words, *(["--records", here / RECORDS_FILE] if listed else [])]))


def _certified_record(done: Concluded, new: Path) -> dict[str, Any]:
    value = done.certificate.value
    return {
        "run": new.name,
        "directory": str(new),
        "level": value.level,
        "deleted": True,  # a certificate that does not verify is never written
        "certificate": {"file": str(new / CERTIFICATE), "digest": done.certificate.digest},
        "entry": done.entry,
        "not_reached": [to_json(place) for place in value.not_reached],
        "to_destroy": to_json(done.destroy)["files"],
    }


def erase(
    run: options.RunDirectory,
    class_: options.Class = None,
    record: options.Records = None,
    salts: Annotated[
        Path | None,
        typer.Option("--salts", metavar="FILE", help="Salt file of the records. Default: the one that the run used."),
    ] = None,
    trust: options.OwnTrust = None,
    governance: options.Private = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase. Default: only show what would be erased.")] = False,
) -> Answer:
    """Destroy the numbers and the secret of a class, or the salts of records. The ledger still verifies.

    The model stays as it is: `explorer delete run` makes one without them. What is destroyed cannot be restored. Before
    anything is destroyed, an entry in the project's ledger says so, signed with the trainer's key.
    """
    ledger = RunLedger(run)
    target = resolve(ledger, class_=class_, records=numbers_of(ledger, record or ()))
    if target.classes and salts is not None:
        raise LedgerError("--salts: found with a class; salts belong to records, which --record names")
    if target.classes:
        erasure = of_classes(ledger, target.classes)
    else:
        erasure = of_records(ledger, target.records, salts=salts or Path(source_of(run).private) / SALTS_FILE)
    # The entry comes before the destruction, so that no secret is ever gone without a record of it.
    entry = None
    if yes:
        provide_trainer(run, private=governance)
        trusted = read_trust(trust or run / rundir.GOVERNANCE / "trust.json")
        name, key = trainer_key(run, trust=trusted, now=options.clock(), private=governance)
        with Project.open(runs_of(run), key=key, name=name) as project:
            entry = erase_for_good(ledger, erasure, project=project)
    return Answer(
        page=lambda: _erasure_lines(erasure, entry, words_of(ledger, target)),
        record=lambda: {"erased": yes, **asdict(erasure), "entry": entry},
        holds=yes,
        faults_to_stderr=True,
    )


def _erasure_lines(erasure: Erasure, entry: int | None, subject: str) -> list[str]:
    """Return the lines of an erasure. `entry` is the one in the project's ledger; None: nothing was erased."""
    done = entry is not None
    lines = [f"{erasure.run}: {'erased' if done else 'would erase'} {subject}"]
    if erasure.classes:
        named = ", ".join("numbers over several classes" if name == "*" else name for name in erasure.secrets)
        lines.append(f"  secrets: {named}")
        lines.append(f"  numbers: {len(erasure.blobs)} blobs, and rows in {len(erasure.spool)} files of the spool")
    else:
        lines.append(f"  salts: of rows {', '.join(map(str, erasure.records))} in {erasure.salts}")
    lines += [f"  on record: entry {entry} of the project's ledger"] if done else []
    lines += ["  not reached, and left to you:", *(f"    {place}" for place in erasure.elsewhere)]
    return lines if done else [*lines, "nothing was changed; --yes erases, and what is erased cannot be restored"]


MARKS = {"held": "held", "failed": "FAILED", "not looked at": "NOT LOOKED AT"}
WITHOUT = "not trained. Only the trainer vouches that each step was done as recorded; --counterfactual trains them"
LEDGERS, TRAINED = "by both ledgers", "identical to a run that never had it"
UNLISTED = (
    f"this certificate names records, and only their list says which: give it by --records, such as NEW/{RECORDS_FILE}"
)
TENSORS = 5  # most tensors that are listed as differing


def verify(
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="A deletion certificate.")],
    old: Annotated[
        Path,
        typer.Option("--old", metavar="RUN", help="The run with the target. A directory with its ledger is enough."),
    ],
    new: Annotated[Path, typer.Option("--new", metavar="RUN", help="The run without the target, with its model.")],
    trust: options.TrustFile,
    records: Annotated[
        Path | None,
        typer.Option("--records", metavar="FILE", help="List of deleted records that the certificate commits to."),
    ] = None,
    counterfactual: Annotated[
        bool,
        typer.Option("--counterfactual", help="Train the run without the target, and compare every tensor."),
    ] = False,
    data: options.Data = None,
    governance: options.TagSalts = None,
    loop: options.OwnLoop = None,
    json: options.Json = False,
) -> Answer:
    """Check a deletion certificate: every claim in it is derived again from both ledgers and the new run.

    The exit status is 0 only if all of them hold; then, and only then, the target is called deleted.
    """
    content = read_bytes(certificate, max_bytes=MAX_BYTES, error=ProvenanceError)
    verified = verify_certificate(
        content, old=old, new=new, trust=read_trust(trust), now=options.clock(), records=records, where=str(certificate)
    )
    compared = (
        part("delete verify --counterfactual")(verified, new, data=data, private=governance, loop=loop, quiet=json)
        if counterfactual
        else None
    )
    holds = verified.deleted and (compared is None or compared.equal)
    return Answer(
        page=lambda: _verified_lines(verified, compared, certificate, listed=records is not None, holds=holds),
        record=lambda: _verified_record(verified, compared, holds=holds),
        holds=holds,
        faults_to_stderr=True,
        remark=options.warn_of_own(trust, old, new),
    )


def _verified_record(verified: Verified, compared: Any, *, holds: bool) -> dict[str, Any]:
    return {
        "deleted": holds,
        "means": _means(verified, compared) if holds else None,
        "certificate": to_json(verified.certificate),
        "sha256": verified.digest,
        "model": verified.model,
        "signed_by": verified.signed_by,
        "checks": [asdict(check) for check in verified.checks],
        "counterfactual": None if compared is None else {**asdict(compared), "equal": compared.equal},
        "said_by_the_signer_not_checked": verified.said,
        "still_there": verified.remaining,
    }


def _means(verified: Verified, compared: Any) -> str:
    """Return the meaning of the deletion, which rests on what was computed here and not on the certificate."""
    return MEANS[verified.certificate.level] if compared is None else NEVER_HAD


def _verified_lines(verified: Verified, compared: Any, certificate: Path, *, listed: bool, holds: bool) -> list[str]:
    value = verified.certificate
    evidence = LEDGERS if compared is None else TRAINED
    verdict = f"deleted, {evidence}" if holds else "NOT shown to be deleted"
    lines = [
        f"{certificate}: {value.target.words}: {verdict}",
        *([f"  {UNLISTED}"] if value.target.records is not None and not listed else []),
        f"  {'level' if holds else 'claims':<12} {value.level}. {_means(verified, compared if holds else None)}",
        f"  old run      {value.old.run}",
        f"  new run      {value.new.run}, model {verified.model}",
        f"  signed by    {', '.join(verified.signed_by)}, {value.issued}; expires {value.expires}",
        "  checked:",
    ]
    for check in verified.checks:
        lines.append(f"    {MARKS[check.outcome]:<13} {check.says}")
        lines += [f"{'':<18} {check.why}"] if check.why else []
    lines += _counterfactual(compared)
    lines.append("  leaks that would show:")
    lines += [f"    by {where}: {what}" for where, what in SEES.items()]
    lines.append("  claimed by the signer, not checked:")
    lines += [f"    {line}" for line in verified.said]
    if verified.remaining:
        lines.append(f"  {len(verified.remaining)} of the files to be destroyed are still next to the old ledger")
    return lines


def _counterfactual(compared: Any) -> list[str]:
    if compared is None:
        return [f"  counterfactual: {WITHOUT}"]
    if compared.equal:
        return [
            f"  counterfactual: trained, {compared.steps} steps: all {compared.tensors} tensors bit for bit the same"
        ]
    lines = [f"  counterfactual: trained, {compared.steps} steps: {len(compared.differing)} tensors are NOT the same"]
    lines += [f"    {name}" for name in compared.differing[:TENSORS]]
    return lines + ([f"    and {len(compared.differing) - TENSORS} more"] if len(compared.differing) > TENSORS else [])
