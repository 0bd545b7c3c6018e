"""`explorer next`: the steps from a governed run to an audited one, what is missing of them, and the command for each.

    trained     every planned step is on record
    cosigned    the ledger is sound, and as many authorities have cosigned it as the trust file requires
    certified   of a run that a deletion made: its certificate holds, and is on record in the project's ledger
    project     of a run that a deletion is about: the project's ledger is cosigned too
    conforms    the record is one that a governed run leaves (`explorer conform`)
    attested    the model is here with a valid attestation about this ledger
    reported    the governance report is about this ledger, and was made with a trust file
    packed      a pack for an auditor is here, it verifies, and it is about this ledger and this attestation

Every step is verified again, and nothing is concluded from the presence of a file. Other verbs end with the next
command of the same list (`after`).
"""

import hashlib
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import rundir
from explorer.audit.badges import verify_ledger
from explorer.audit.conditions import Outcome
from explorer.audit.conform import conform
from explorer.audit.history import outcome
from explorer.cli import options
from explorer.deletion.finish import CERTIFICATE
from explorer.deletion.run_certificates import KnownCertificate, certificates, deletions_of, find_by_origin
from explorer.disclosure import verifier
from explorer.disclosure.pack import MAX_PACK
from explorer.disclosure.wrapped import ledger_state
from explorer.errors import ExplorerError, ProvenanceError, RunError
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.trust_anchor import NONE
from explorer.ledger.verify import verify
from explorer.page.amounts import count
from explorer.page.terminal import Answer, from_here
from explorer.project import AUDIT, runs_of
from explorer.provenance.keys import PASSPHRASE, is_encrypted, public_bytes, read_any
from explorer.provenance.trust import Authority, Role, Trust, read_trust
from explorer.release.shipped import open_shipped
from explorer.report.run_report import page_of
from explorer.runlog.anchor import anchor_of_ledger
from explorer.runlog.attested import ATTESTATION
from explorer.runlog.documents import TRUST_FILE, source_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import read_origin
from explorer.schema import to_json
from explorer.views.ledger.open_run import NO_TRUST

PACK = "run.pack.zip"  # in the directory of the run
SUFFIX = ".pack.zip"
MAX_PACKS = 20  # files of one run that are looked into
MAX_KEYS = 100  # key files of a directory that are looked into
MAX_PAGE = 2**27  # bytes of a report
MARKS = {"done": "\u2713", "missing": "-", "fails": "\u2717"}


class Place(NamedTuple):
    """A run that is looked at, and whom the reader trusts."""

    run: Path
    ledger: RunLedger
    trust_file: Path
    trust: Trust
    now: int  # seconds since 1970


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A step, and the commands that complete it. One that `fails` contradicts the record, and ends the list."""

    name: str
    state: Literal["done", "missing", "fails"]
    words: str
    commands: tuple[str, ...] = ()


def next_(run: options.RunDirectory, trust: options.OwnTrust = None) -> Answer:
    """Show what is missing between a governed run and an audited one, in order, with the command for each step.

    Everything is verified again: ledger, cosignatures, conformance, attestation, report, pack. The exit status is 0 if
    nothing is missing.
    """
    place = _place(run, trust)
    steps = tuple(_steps(place))
    missing = [step for step in steps if step.state != "done"]
    return Answer(
        page=lambda: _page(place, steps, missing, own=trust is None),
        record=lambda: {
            "run": str(run),
            "trust": str(place.trust_file),
            "missing": [step.name for step in missing],
            "steps": [asdict(step) for step in steps],
        },
        holds=not missing,
    )


def after(run: Path, verb: str, *, trust: Path | None = None) -> Iterator[str]:
    """Yield the line with the next command after a verb has done its part; nothing for a run without a ledger.

    `verb` is run, cosign, certify, conform, attest, report or pack. The record is not judged: a run whose model has an
    attestation is taken to conform.
    """
    if not (run / rundir.LEDGER).is_dir() or not (run / rundir.GOVERNANCE).is_dir():
        return
    try:
        place = _place(run, trust)
        for name, look in _looks(place).items():
            if name in ("trained", DOES.get(verb)):
                continue
            step = _unjudged(place) if name == "conforms" else look(place)
            if step.state != "done":
                yield f"next: {step.commands[0] if step.commands else _line(place, 'next')}"
                return
        yield f"next: {_line(place, 'next')}"
    except ExplorerError:  # the verb itself has succeeded; what is wrong elsewhere is for `next` to say
        yield f"next: explorer next {_shown(run)}"


def _place(run: Path, trust: Path | None) -> Place:
    if not run.is_dir():
        raise RunError(f"there is no run directory {run}")
    if not (run / rundir.LEDGER).is_dir():
        raise RunError(f"{run}: found no ledger; expected the directory of a governed run whose recipe has `recorder`")
    # The author's own trust file is where the keys are; the run's copy is what was there when the run began.
    own = Path(source_of(run).private) / TRUST_FILE
    path = trust or (own if own.is_file() else run / rundir.GOVERNANCE / TRUST_FILE)
    return Place(run, RunLedger(run), path, read_trust(path), options.clock())


def _steps(place: Place) -> Iterator[Step]:
    """Yield the steps in order; those that build on a missing one are not judged, and one that fails is the last."""
    waits = ""
    for name, look in _looks(place).items():
        step = look(place) if not waits else None
        if step is None or (step.state == "missing" and waits):
            step = Step(name=name, state="missing", words=f"waits until it is {waits}", commands=_commands(place, name))
        yield step
        if step.state == "fails":
            return
        if step.state == "missing" and name in ("trained", "cosigned"):
            waits = waits or name


# --- each step ---


def _trained(place: Place) -> Step:
    ended, steps = outcome(place.ledger), place.ledger.steps
    if ended == "finished":
        before = "".join(f"; continues {words}" for words in place.ledger.continues)
        return Step(name="trained", state="done", words=f"{steps:,} steps{before}")
    words = f"{steps:,} steps are on record, and the run is {ended}"
    path = place.run / rundir.RUN
    if path.exists() and not (place.run.parent / rundir.SWEEP).exists():
        return Step(name="trained", state="missing", words=words, commands=(f"explorer run {_shown(path)}",))
    kind = "the sweep (`explorer sweep run SPEC`)" if path.exists() else "your own loop"
    return Step(name="trained", state="missing", words=f"{words}; {kind} continues it")


def _cosigned(place: Place) -> Step:
    return _quorum(place, "cosigned", place.ledger.ledger.path)


def _quorum(place: Place, name: str, directory: Path) -> Step:
    """Judge whether a ledger is sound, and cosigned by as many as the trust file requires."""
    # First without the quorum: a ledger that lacks cosignatures is incomplete, one with another fault is broken.
    anchor = anchor_of_ledger(LedgerDirectory(directory), place.trust)
    check = _line(place, "ledger verify", where=directory)
    sound = verify(directory, anchor=replace(anchor, quorum=NONE), now=place.now)
    if not sound.ok:
        first = sound.findings[0]
        words = f"the ledger does not verify: {first.path}: {first.message}"
        return Step(name=name, state="fails", words=words, commands=(check,))
    verification, fields = verify_ledger(directory, trust=place.trust, now=place.now)
    if verification.ok:
        by = ", ".join(one.partition(" at ")[0] for one in fields["cosigned_by"])
        words = f"by {by}" if by else "the trust file requires no cosignature"
        return Step(name=name, state="done", words=f"{count(fields['size'], 'entry', 'entries')}; {words}")
    cosignatures = sound.judgement.cosignatures if sound.judgement else ()
    missing = _missing(place, {one.verifier.name for one in cosignatures if one.fault is None})
    if not missing:  # enough have cosigned, and something else is wrong
        return Step(name=name, state="fails", words="; ".join(fields["findings"][:3]), commands=(check,))
    names = ", ".join(authority.name for authority, _ in missing)
    elsewhere = [authority.name for authority, key in missing if key is None]
    words = f"missing: {names}"
    words += f"; KEY is the key of {', '.join(elsewhere)}, which is not here" if elsewhere else ""
    return Step(
        name=name,
        state="missing",
        words=words,
        commands=tuple(_line(place, "ledger cosign", key=key, where=directory) for _, key in missing),
    )


def _certified(place: Place) -> Step:
    known = certificates(place.ledger, trust=place.trust, now=place.now).known
    mine = [one for one in known if one.side == "without"]
    if any(one.deleted and one.entry is not None for one in mine):
        return Step(name="certified", state="done", words=f"{CERTIFICATE} holds, by both ledgers")
    words = next((f"{CERTIFICATE}: {one.fault or _refused(one)}" for one in mine), f"no {CERTIFICATE}")
    return Step(name="certified", state="missing", words=words, commands=_commands(place, "certified"))


def _refused(one: KnownCertificate) -> str:
    """Return why a certificate that was verified does not count."""
    checks = () if one.verified is None else one.verified.checks
    faults = [f"{check.says}: {check.outcome}: {check.why}" for check in checks if check.why is not None]
    return faults[0] if faults else "not on record in the project's ledger"


def _project(place: Place) -> Step:
    return _quorum(place, "project", _project_ledger(place))


def _project_ledger(place: Place) -> Path:
    return runs_of(place.run) / AUDIT


def _conforms(place: Place) -> Step:
    judged = conform(place.ledger, trust=place.trust, now=place.now)
    if judged.conforms:
        counted = ", ".join(condition.name for condition in judged.conditions)
        return Step(name="conforms", state="done", words=f"judged now: {counted}")
    state = "missing" if judged.outcome is Outcome.UNTOLD else "fails"
    return Step(name="conforms", state=state, words=judged.words, commands=_commands(place, "conforms"))


def _unjudged(place: Place) -> Step:
    state = "done" if (place.run / rundir.MODEL / ATTESTATION).exists() else "missing"
    return Step(name="conforms", state=state, words="not judged yet", commands=_commands(place, "conforms"))


def _attested(place: Place) -> Step:
    commands = _commands(place, "attested")
    if not (place.run / rundir.MODEL / ATTESTATION).exists():
        return Step(name="attested", state="missing", words="the model has no attestation", commands=commands)
    try:
        shipped = open_shipped(place.run / rundir.MODEL, trust=place.trust, now=place.now)
    except ExplorerError as error:
        return Step(name="attested", state="missing", words=str(error), commands=commands)
    value = shipped.attested.value
    if to_json(value.ledger) != to_json(ledger_state(place.ledger)):
        words = f"the attestation is about {value.ledger.size} entries of {value.ledger.origin}"
        return Step(name="attested", state="missing", words=words, commands=commands)
    by = ", ".join(one.name for one in shipped.attested.authorities)
    return Step(name="attested", state="done", words=f"by {by}, until {value.expires}")


def _reported(place: Place) -> Step:
    path, commands = page_of(place.run), _commands(place, "reported")
    if not path.exists():
        return Step(name="reported", state="missing", words=f"no {_shown(path)}", commands=commands)
    page = rundir.read_bytes(path, max_bytes=MAX_PAGE, error=RunError)
    if ledger_state(place.ledger).root.encode() not in page:
        words = f"{_shown(path)} is about another state of the ledger"
    elif NO_TRUST.encode() in page:
        words = f"{_shown(path)} was made without a trust file"
    else:
        return Step(name="reported", state="done", words=_shown(path))
    return Step(name="reported", state="missing", words=words, commands=commands)


def _packed(place: Place) -> Step:
    packs = sorted(place.run.glob(f"*{SUFFIX}"))[:MAX_PACKS]
    words = f"no {PACK}"
    for path in packs:
        fault = _fault(place, path)
        if fault is None:
            return Step(name="packed", state="done", words=f"{_shown(path)} verifies")
        words = f"{_shown(path)}: {fault}"
    return Step(name="packed", state="missing", words=words, commands=_commands(place, "packed"))


def _fault(place: Place, path: Path) -> str | None:
    """Return why a pack is none of this run as it is now; None if it is."""
    findings = verifier.Findings()
    content = rundir.read_bytes(path, max_bytes=MAX_PACK, error=RunError)
    trust = rundir.read_bytes(place.trust_file, max_bytes=rundir.MAX_JSON_BYTES, error=ProvenanceError)
    manifest: dict[str, Any] = {}
    with findings.looking_at(""):
        files = verifier.open_container(content)
        manifest = verifier.read_manifest(files)
        verifier.verify(files, verifier.read_trust(trust, str(place.trust_file)), place.now, None, findings)
    if findings.failed:
        return findings.failed[0]
    if manifest["ledger"] != to_json(ledger_state(place.ledger)):
        return "it is about another state of the ledger"
    attestation = place.run / rundir.MODEL / ATTESTATION
    if attestation.exists():
        now = rundir.read_bytes(attestation, max_bytes=rundir.MAX_JSON_BYTES, error=ProvenanceError)
        packed = {file["sha256"] for file in manifest["files"] if file["path"] == f"{rundir.MODEL}/{ATTESTATION}"}
        if packed != {hashlib.sha256(now).hexdigest()}:
            return "it was made before the attestation"
    return None


LOOKS: dict[str, Callable[[Place], Step]] = {
    "trained": _trained,
    "cosigned": _cosigned,
    "certified": _certified,
    "project": _project,
    "conforms": _conforms,
    "attested": _attested,
    "reported": _reported,
    "packed": _packed,
}
DOES = {"certify": "certified", "conform": "conforms", "attest": "attested", "report": "reported", "pack": "packed"}
"""The step that a verb completes; cosigning may need another cosignature."""


def _looks(place: Place) -> dict[str, Callable[[Place], Step]]:
    """Return the steps that a run has: only deletions are certified, and on record in the project's ledger; a run that
    trained nothing has no report."""
    has = {
        "certified": read_origin(place.run) is not None,
        "project": bool(deletions_of(place.ledger)),
        "reported": place.ledger.begins < place.ledger.steps,
    }
    return {name: look for name, look in LOOKS.items() if has.get(name, True)}


# --- whose key is missing ---


def _missing(place: Place, signed: set[str]) -> list[tuple[Authority, Path | None]]:
    """Return the authorities whose cosignatures the quorum needs, with their key files: those with a key here first."""
    here = _keys_here(place)
    missing: list[tuple[Authority, Path | None]] = []
    for role, threshold in place.trust.quorum.checkpoints.items():
        if role is not Role.TRAINER:
            others = [one for one in place.trust.authorities if one.role is role and one.name not in signed]
            others.sort(key=lambda one: one.name not in here)
            got = sum(one.role is role and one.name in signed for one in place.trust.authorities)
            missing += [(one, here.get(one.name)) for one in others[: max(0, threshold - got)]]
    return missing


def _keys_here(place: Place) -> dict[str, Path]:
    """Return the key files in the directory of the run's private documents, by the authority that they belong to."""
    owners: dict[str, Path] = {}
    passphrase = os.environ.get(PASSPHRASE)
    private = Path(source_of(place.run).private)
    for path in sorted(private.glob("*.pem"))[:MAX_KEYS] if private.is_dir() else ():
        try:
            sealed = not path.is_file() or (is_encrypted(path) and not passphrase)
            key = None if sealed else read_any(path, passphrase if is_encrypted(path) else None)
        except ProvenanceError:  # not a key, or one with another passphrase: it is no key that could be suggested
            continue
        if isinstance(key, Ed25519PrivateKey):
            if (owner := place.trust.owner(public_bytes(key))) is not None:
                owners[owner[0].name] = path
        elif path.is_file():  # encrypted: its name is all that is known of it
            named = [one.name for one in place.trust.authorities if one.name.rpartition("/")[2] == path.stem]
            owners |= {name: path for name in named[:1] if name not in owners}
    return owners


# --- words ---


def _commands(place: Place, name: str) -> tuple[str, ...]:
    if name == "project":
        return (_line(place, "ledger cosign", where=_project_ledger(place)),)
    verbs = {
        "cosigned": "ledger cosign",
        "certified": "delete certify",
        "conforms": "conform",
        "attested": "attest",
        "reported": "report",
        "packed": "pack",
    }
    return (_line(place, verbs[name]),) if name in verbs else ()


def _line(place: Place, verb: str, *, key: Path | None = None, where: Path | None = None) -> str:
    """Return a command on the run, or on a ledger of its project, to paste as it is."""
    where = where or (place.run / rundir.LEDGER if verb.startswith("ledger") else place.run)
    options_ = {
        "ledger cosign": lambda: f" --key {'KEY' if key is None else _shown(key)}",
        "delete certify": lambda: f" --old {_old(place)}",
        "pack": lambda: f" --out {_shown(place.run / PACK)}",
    }
    more = options_[verb]() if verb in options_ else ""
    return f"explorer {verb} {_shown(where)}{more} --trust {_shown(place.trust_file)}"


def _old(place: Place) -> str:
    """Return the run that a deletion began with; the word OLD where it is not here."""
    origin = read_origin(place.run)
    old = origin and find_by_origin(runs_of(place.run), origin.run, origin.ledger.origin)
    return "OLD" if old is None else _shown(old)


def _shown(path: Path) -> str:
    return shlex.quote(str(from_here(path)))


def _page(place: Place, steps: tuple[Step, ...], missing: list[Step], *, own: bool) -> Iterator[str]:
    """Yield the steps with their states, then the commands."""
    if missing:
        count = "1 step is" if len(missing) == 1 else f"{len(missing)} steps are"
        yield f"{place.run}: {count} missing"
    else:
        yield f"{place.run}: nothing is missing"
    width = max(len(step.name) for step in steps)
    for step in steps:
        yield f"  {MARKS[step.state]} {step.name.ljust(width)}  {step.words}"
    if missing and missing[-1].state == "fails":
        yield "The steps after this one are not judged."
    commands = [command for step in missing for command in step.commands]
    if commands:
        yield "\nnext"
        yield from (f"  {command}" for command in commands)
    if own:
        yield f"Judged by {_shown(place.trust_file)}, its author's trust file: others give their own, with --trust."
