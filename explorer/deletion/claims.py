"""The claims of a deletion certificate, each checked separately: it held, it failed, or could not be checked.

`COMMON`, claims of both levels: the same documents, parent, plan and model.

`OF_G2`: the target lived in sealed regions that no other class shares, these were dropped, and everything else was
kept. Checking this needs no tensor: both ledgers list the leaf of every tensor that they end with, and their signed
roots follow from these lists.

`OF_G3`: training continued without the target, from a state that the target had not moved. The two ledgers show the
first step in which the target could have moved anything, that training continued from the state before it, that the
batches are the same to the last slot, and that no number of the target was measured afterwards. They do not show that
the steps in between were trained as recorded: a replay does, or the counterfactual itself.

`artefacts` lists the files of an old run that hold the deleted target, by path and digest, for their owner to destroy.
A deletion makes another model; it does not unmake the old one. As long as both exist, their difference is what was
deleted. The old ledger stays: it holds commitments, and every proof still holds once numbers and secrets are gone.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from explorer import rundir
from explorer.canonical import digest
from explorer.deletion.evidence import Case, Unlisted, name_of, state_of
from explorer.entries.kinds import Decision, Profile, State, Step, TrainingState
from explorer.errors import ExplorerError, LedgerError, ProvenanceError, RunError
from explorer.ledger.storage import blob_path
from explorer.provenance.deletion_certificate import Artefact, Replay, Roots, Start, Structure, What
from explorer.run_files import LoopRecord, Plan, read_plan
from explorer.runlog.documents import read_basis, read_rules, read_verified_tags
from explorer.runlog.forecast import learned_before, stopped_early
from explorer.runlog.influence import Reach, read_record
from explorer.runlog.model_file import MODEL, ModelFile, differences
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import Placed, RunLedger
from explorer.runlog.target import AUTHORITIES, CLASSES, RECORDS, ROUTING, Target, counterfactual, left_out
from explorer.runlog.tensors import Tensors, owner_of, without_bookkeeping

# --- claims and checks ---

Subject = TypeVar("Subject")


class Outcome(StrEnum):
    """Result of checking a claim."""

    HELD = "held"
    FAILED = "failed"
    UNSEEN = "not looked at"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One claim, checked."""

    name: str
    says: str  # the claim, in a sentence
    outcome: Outcome
    why: str | None  # the contradiction, or what was missing; None: it held


class Claim(NamedTuple, Generic[Subject]):
    """One claim and its check: `look` raises `ExplorerError` where the claim does not hold, returns the reason in words
    where the claim cannot be checked here, and None where it holds."""

    name: str
    says: str
    look: Callable[[Subject], str | None]


def looked(claim: Claim[Subject], case: Subject) -> Check:
    """Check a claim."""
    try:
        why = claim.look(case)
    except Unlisted as error:
        return unseen(claim, str(error))
    except ExplorerError as error:
        return Check(name=claim.name, says=claim.says, outcome=Outcome.FAILED, why=str(error))
    outcome = Outcome.HELD if why is None else Outcome.UNSEEN
    return Check(name=claim.name, says=claim.says, outcome=outcome, why=why)


def unseen(claim: Claim[Subject], why: str) -> Check:
    """Return the check of a claim that cannot be looked at."""
    return Check(name=claim.name, says=claim.says, outcome=Outcome.UNSEEN, why=why)


def check_equal(error: type[ExplorerError], what: str, *, actual: object, expected: object) -> None:
    """Raise `error` unless both are equal; for two records of one kind, name the first field that differs."""
    if actual == expected:
        return
    if type(actual) is type(expected) and is_dataclass(actual) and is_dataclass(expected):
        names = (field.name for field in fields(actual))
        name = next(name for name in names if getattr(actual, name) != getattr(expected, name))
        what, actual, expected = f"{what}: {name}", getattr(actual, name), getattr(expected, name)
    raise error(f"{what}: found {actual!s:.200}, expected {expected!s:.200}")


# --- claims of both levels ---

# Fields of the genesis that determine a run together with its recipe: both runs have the same.
SAME = (
    "code",
    "data",
    "tags",
    "taxonomy",
    "policy",
    "trust",
    "judged",
    "strategy",
    "seed",
    "initial",
    "classes",
    "layers",
)


def documents(case: Case) -> str | None:
    """Check that the documents are those that both ledgers name, and that the trust file's signers signed them."""
    genesis, certificate = case.old.genesis, case.certificate
    # `plan` compares the same digests between the two ledgers, so comparing with one ledger is enough here.
    for name in ("taxonomy", "policy", "trust"):
        check_equal(ProvenanceError, name, actual=getattr(certificate, name), expected=getattr(genesis, name))
    basis = read_basis(case.new.run, genesis, trust=case.trust)
    if read_rules(case.new.run, genesis, basis) is None:
        raise LedgerError("the old run had no policy")
    if not case.certificate.target.classes:
        read_verified_tags(case.new.run, genesis, basis)
    return None


def target(case: Case) -> str | None:
    """Check that the old run had the target, and that no model which it began with had learned from it: a model that
    taught the run about the target would survive this deletion."""
    for path in case.target.classes:
        case.old.class_(path)
    if not case.reach.whole and not case.reach.partly:
        raise LedgerError(f"{case.target.words}: no example of the old run")
    if learned := learned_before(case.old, case.reach):
        raise LedgerError("; ".join(learned))
    return None


def parent(case: Case) -> str | None:
    """Check that the new ledger begins with the old one as what it was made from by a deletion."""
    parents = case.new.genesis.parents
    made = [parent for parent in parents if parent.kind == "deletion"]
    if len(made) != 1:
        raise LedgerError(f"the new ledger names {len(made)} runs that it was made from by a deletion; expected one")
    check_equal(LedgerError, "its parent", actual=made[0].ledger, expected=state_of(name_of(case.old)))
    # A new run that began with another model could have brought the target back with it.
    models, expected = (
        [parent for parent in those if parent.kind == "model"] for those in (parents, case.old.genesis.parents)
    )
    check_equal(LedgerError, "models that the new run begins with", actual=models, expected=expected)
    return None


def plan(case: Case) -> str | None:
    """Check that both runs follow one plan, except that the new one leaves the target out."""
    # First everything outside the recipe, which both ledgers state themselves.
    for name in SAME:
        stated, expected = getattr(case.new.genesis, name), getattr(case.old.genesis, name)
        check_equal(LedgerError, f"{name} in the new ledger's first entry", actual=stated, expected=expected)
    # An early stop is a decision that may have depended on the target, and no plan would repeat it.
    if stopped := stopped_early(case.old):
        raise LedgerError(stopped)
    if read_plan(case.new.run) is None:
        return f"the plan of the new run: there is neither {rundir.RUN} nor, for a custom loop, {rundir.LOOP}"
    if case.certificate.target.records is not None and case.listed is None:
        return "whether the plan leaves these records out: their list is not here"

    # Then the recipe. The old one may be missing, so it is rebuilt from the new one and held to the digest that the old
    # ledger committed to; after that the new plan must be the old one's counterfactual, field by field.
    after = read_record(case.new)
    before = _before(case, after)
    if digest(before.identity) != case.old.genesis.recipe:
        raise LedgerError("the new plan with the target put back is not the one that the old ledger names")
    expected = counterfactual(before, case.target)
    check_equal(LedgerError, "the new run", actual=case.new.genesis.run, expected=expected.run_id)
    if after.identity != expected.identity:
        raise LedgerError(f"the new plan is not the old one without {case.target.words}")
    return None


def model(case: Case) -> str | None:
    """Check that the certified file holds the parameters and buffers that the new ledger ends with."""
    path = case.new.run / rundir.MODEL / MODEL
    if not path.exists():
        return f"the model: there is no {path}"
    file = ModelFile(path)
    check_equal(RunError, f"SHA-256 of {path}", actual=file.sha256, expected=case.model)
    _, new = case.ended
    expected = {**new.tensors.parameters, **new.tensors.buffers}
    if fault := next(differences(file.leaves(chunk=new.tensors.chunk), expected), None):
        raise RunError(f"{path}: not what the new ledger ends with: {fault}")
    return None


def still(case: Case) -> str | None:
    """Check that no step of the old ledger changed a layer to which no class in its batch was admitted. A gradient of
    zeros in place of none would show here: decay and momentum move a layer under it."""
    for step, layer in case.presence.strays:
        raise LedgerError(f"step {step} changed {layer}, and no class in its batch was admitted to it")
    return None


COMMON = (
    Claim("documents", "taxonomy, policy and trust file are those of both runs, signed by whom you believe", documents),
    Claim("target", "the target is one of the old run's, and of no model that it began with", target),
    Claim("parent", "the new ledger was made from this old one by a deletion", parent),
    Claim("plan", "the same plan except that the target is left out: every other number that decides is equal", plan),
    Claim("still", "by the old ledger no step changed a layer to which it admitted no class", still),
    Claim("model", "the model's file holds what the new ledger ends with", model),
)


def _before(case: Case, after: Plan) -> Plan:
    """Return the old run's record; where it is missing, the new run's record with the target put back."""
    recorded = read_plan(case.old_place)
    if recorded is not None:
        return recorded
    left_out(after)  # raises unless the methods have the form that a recipe's have
    methods = [_put_back(method, case.target) for method in after.identity["recipe"]["methods"]]
    identity = {**after.identity, "recipe": {**after.identity["recipe"], "methods": methods}}
    # A custom loop's name is chosen by its author and cannot be derived, so it is taken from the old ledger.
    if isinstance(after, LoopRecord):
        return replace(after, run_id=case.old.genesis.run, identity=identity)
    return replace(after, identity=identity)


def _put_back(method: Mapping[str, Any], target: Target) -> Mapping[str, Any]:
    if ROUTING not in method:
        return method
    members = {CLASSES: target.classes, AUTHORITIES: target.authorities, RECORDS: target.records}
    values = method[ROUTING]
    return {ROUTING: {**values, **{n: [e for e in values.get(n, ()) if e not in m] for n, m in members.items()}}}


# --- claims of G2 ---


def structure_of(case: Case) -> tuple[Structure, Tensors]:
    """Return the tensors of the target's regions and the roots over all others, as the old ledger has them; and these
    others."""
    # What methods remember about classes is not kept either: it differs in every run without the target.
    old, _ = case.ended
    everything = [*old.tensors.parameters, *old.tensors.buffers, *old.tensors.optimizer]
    dropped = {name for name in everything if owner_of(name, case.policy.sealed) in case.reach.regions}
    kept = without_bookkeeping(old.tensors, case.old.genesis).kept(lambda name: name not in dropped)
    parameters, buffers, optimizer = kept.roots
    roots = Roots(parameters=parameters, buffers=buffers, optimizer=optimizer)
    return Structure(dropped=tuple(sorted(dropped)), kept=roots), kept


def isolated(case: Case) -> str | None:
    """Check that the target moved only its own regions, shared them with no class, and decided nothing."""
    if case.unseen:
        return case.unseen
    if fault := _entangled(case.reach):
        raise LedgerError(f"{case.target.words}: {fault}")
    return None


def dropped(case: Case) -> str | None:
    """Check that the dropped tensors are all those of the target's regions."""
    structure, _ = structure_of(case)
    certified = _certified_structure(case).dropped
    if certified != structure.dropped:
        more, less = sorted({*certified} - {*structure.dropped}), sorted({*structure.dropped} - {*certified})
        words = [f"{names[0]} {what}" for names, what in ((more, "is not one of them"), (less, "is missing")) if names]
        raise LedgerError(
            f"the target's regions hold {len(structure.dropped)} tensors, certified as dropped are {len(certified)}: "
            f"{', '.join(words) or 'in another order'}"
        )
    return None


def kept(case: Case) -> str | None:
    """Check that the new run ends with exactly the other tensors of the old run's end."""
    structure, expected = structure_of(case)
    _, new = case.ended
    if fault := _difference(new.tensors, expected):
        raise LedgerError(f"the new run's end: {fault}")
    certified = _certified_structure(case).kept
    check_equal(LedgerError, "the certified roots of what was kept", actual=certified, expected=structure.kept)
    return None


def nothing_trained(case: Case) -> str | None:
    """Check that the new ledger has no step: it begins where the old one ended, and ends with the state that it begins
    with."""
    old, new = case.ended
    genesis = case.new.genesis
    check_equal(LedgerError, "steps that the new ledger takes over", actual=genesis.begins, expected=case.old.steps)
    check_equal(LedgerError, "steps that it ends after", actual=case.new.steps, expected=case.old.steps)
    if len(case.new.outline.states) or case.new.outline.decisions or case.new.outline.profiles:
        raise LedgerError("the new ledger has entries between its beginning and its end; expected none")
    check_equal(LedgerError, "the state that it begins with", actual=genesis.start, expected=new.end.entry.state)
    # The new state's tensors differ from the old one's by what was dropped; its random streams must not differ at all.
    random, expected = new.end.entry.state.random, old.end.entry.state.random
    check_equal(LedgerError, "its streams of random numbers", actual=random, expected=expected)
    return None


OF_G2 = (
    Claim("isolated", "by the old ledger the target moved only its own sealed regions, and decided nothing", isolated),
    Claim("dropped", "what was dropped is what these regions hold, all of it", dropped),
    Claim("kept", "every other parameter, buffer and optimiser state is bit for bit the old one", kept),
    Claim(
        "nothing trained", "the new ledger begins with the kept state, and nothing was trained after", nothing_trained
    ),
)


def _certified_structure(case: Case) -> Structure:
    assert case.certificate.structure is not None  # a certificate of G2 has it
    return case.certificate.structure


def _difference(actual: Tensors, expected: Tensors) -> str | None:
    """Return the first tensor that differs, in words; None: all are the same, name by name."""
    for group in ("parameters", "buffers", "optimizer"):
        fault = next(differences(getattr(actual, group), getattr(expected, group)), None)
        if fault:
            return f"{group}: {fault}"
    return None


def _entangled(reach: Reach) -> str | None:
    """Return why dropping regions does not undo all of the target's influence; None: it does."""
    if reach.structural:
        return None
    # The reasons in order of how much they move: shared weights, shared regions, decisions, possible probes.
    if reach.shared:
        layer, *more = reach.shared
        others = f" and {len(more)} more layers" if more else ""
        return f"trained {layer}{others} outside of sealed regions, first in step {reach.first}"
    for region, others in reach.regions.items():
        if others:
            return f"its region {region!r} is that of {', '.join(others)} too"
    if reach.channels:
        channel = reach.channels[0]
        return f"entry {channel.entry}: its numbers decided a {channel.action} over {', '.join(channel.over)}"
    if reach.probed:
        return "its examples may have been probes that decided something"
    return f"only some examples of {', '.join(reach.partly)} are in it, and a region belongs to whole classes"


# --- claims of G3 ---


def replay_of(case: Case) -> Replay:
    """Return the facts of the replay as the two ledgers have them. Raises `LedgerError` where the target reached
    nothing."""
    begins = case.new.begins
    state = state_after(case.old, begins)
    return Replay(
        begins=begins,
        start=None if state is None else _start(state),
        steps=case.new.steps - begins,
        influence=_first(case),
    )


def influence(case: Case) -> str | None:
    """Check that the first step that the target could have influenced is the certified one."""
    if case.unseen:
        return case.unseen
    certified = _certified_replay(case).influence
    check_equal(LedgerError, "the certified first step of influence", actual=certified, expected=_first(case))
    return None


def start(case: Case) -> str | None:
    """Check that the new run continues the old one's state, at or before the first influence."""
    if case.unseen:
        return case.unseen
    # An earlier start than necessary costs time and proves the same; a later one would keep the influence.
    begins, first, certified = case.new.begins, _first(case), _certified_replay(case)
    if begins > first:
        raise LedgerError(
            f"the new ledger begins after {begins} steps, and by the old one {case.target.words} could have "
            f"influenced step {first}"
        )
    # One state under three names: the old ledger recorded it, the new ledger begins with it, the certificate names it.
    replay = replay_of(case)
    check_equal(LedgerError, "the certified beginning", actual=certified.begins, expected=replay.begins)
    given = None if case.new.genesis.start is None else _start(case.new.genesis.start)
    check_equal(LedgerError, "the state that the new ledger begins with", actual=given, expected=replay.start)
    check_equal(LedgerError, "the certified state", actual=certified.start, expected=replay.start)
    return None


def batches(case: Case) -> str | None:
    """Check that every step which both ledgers have had the same batch: the same rows in the same slots, as many of
    each class."""
    certified = _certified_replay(case)
    check_equal(LedgerError, "steps that the new ledger ends after", actual=case.new.steps, expected=case.old.steps)
    expected = case.new.steps - case.new.begins
    check_equal(LedgerError, "the certified number of steps", actual=certified.steps, expected=expected)
    # `slots` is a root over the rows of every slot, those of the target included: they stay in the new batches, empty.
    # So the counts are equal too, and no batch was filled up with other examples.
    steps = range(max(case.new.begins, case.old.begins), case.new.steps)
    for new, old in zip(case.new.read_steps(steps), case.old.read_steps(steps), strict=True):
        for name in ("slots", "examples", "quarantined"):
            now, before = getattr(new.entry, name), getattr(old.entry, name)
            check_equal(LedgerError, f"entry {new.index}: step {new.entry.step}: {name}", actual=now, expected=before)
    return None


def absent(case: Case) -> str | None:
    """Check that no step, profile or decision of the new ledger has numbers of a class that was deleted whole. Numbers
    show that its examples took part. A class of which examples are left keeps its numbers."""
    whole, outline = case.reach.whole, case.new.outline
    numbers = [case.new.class_(path) for path in whole]
    for step in case.new.read_steps(range(case.new.begins, case.new.steps)):
        if any(step.entry.numbers[at] is not None for at in numbers):
            raise LedgerError(_had(step, whole))
    for profile in case.new.read(outline.profiles, Profile):
        if profile.entry.classes.keys() & {*whole}:
            raise LedgerError(_had(profile, whole))
    in_force = [index for index in outline.decisions if index not in outline.superseded]
    for decision in case.new.read(in_force, Decision):
        if decision.entry.evidence.keys() & {*whole}:
            raise LedgerError(_had(decision, whole))
    return None


OF_G3 = (
    Claim("influence", "by the old ledger the target could have moved nothing before the certified step", influence),
    Claim("start", "the new run continues from the old one's recorded state, at or before that step", start),
    Claim("batches", "every step that both ledgers have on record had the same batch, slot by slot", batches),
    Claim("absent", "the new ledger has no numbers of a class whose examples were all deleted", absent),
)


def state_after(run: RunLedger, step: int) -> TrainingState | None:
    """Return the recorded state after `step` steps; None: the initial one. Raises `LedgerError` where none is on
    record."""
    if step in (0, run.begins):
        return run.genesis.start if step else None
    indices = [index for at, index in run.outline.states if at == step]
    if not indices:
        raise LedgerError(f"the old ledger has no state after {step} steps")
    (placed,) = run.read(indices[-1:], State)
    return placed.entry.state


def _first(case: Case) -> int:
    if case.reach.first is None:
        raise LedgerError(f"{case.target.words}: reached nothing in the old run, by its ledger; nothing to replay")
    return case.reach.first


def _start(state: TrainingState) -> Start:
    return Start(parameters=state.parameters, buffers=state.buffers, optimizer=state.optimizer, random=state.random)


def _certified_replay(case: Case) -> Replay:
    assert case.certificate.replay is not None  # a certificate of G3 has it
    return case.certificate.replay


def _had(placed: Placed[Step] | Placed[Profile] | Placed[Decision], whole: tuple[str, ...]) -> str:
    entry = placed.entry
    return f"entry {placed.index}: the {entry.KIND} at {entry.step} has numbers of a deleted class: {', '.join(whole)}"


# --- files to destroy ---

_REPORTS = (".html", ".pdf", ".md")


def artefacts(run: RunLedger, reach: Reach) -> tuple[Artefact, ...]:
    """List the files of a run's directory that the target is in, by kind and path.

    Raises `LedgerError` for a ledger that cannot be read, `RunError` for a file that cannot.
    """
    # Weights: the model, and every checkpoint after the first influence. Earlier ones are free of the target.
    directory, first = run.run, reach.first
    files = [*_files(directory, "model", sorted((directory / rundir.MODEL).glob("*.safetensors")))]
    for name in (rundir.CHECKPOINT, rundir.KEPT):
        touched = (path for path in sorted((directory / name).glob("step-*")) if _after(path, first))
        files += _files(directory, "checkpoint", touched)
    # Secrets are parts of one file, whose other parts stay: it has no digest to destroy it by.
    files += [
        Artefact(what="secret", path=rundir.SECRETS, sha256=None, part=path)
        for path in (*reach.whole, *([JOINT] if reach.whole else []))
        if (directory / rundir.SECRETS).exists()
    ]
    # Numbers: blobs of the ledger, the spool, and whatever was printed or exported from them.
    files += blobs(run, reach)
    for name in (rundir.CONTRIBUTIONS, rundir.ENTROPY):
        files += _files(directory, "spool", sorted((directory / name).glob("*.parquet")))
    files += _files(directory, "notebook", sorted(directory.glob("*.ipynb")))
    measured = [directory / rundir.METRICS, *(path for path in sorted(directory.iterdir()) if path.suffix in _REPORTS)]
    return (*files, *_files(directory, "measurements", measured))


def blobs(run: RunLedger, reach: Reach) -> tuple[Artefact, ...]:
    """Return the blobs with numbers of classes that are in the target whole, and those with numbers over several
    classes from which theirs could be computed. Superseded entries count too; only the ledger is consulted."""
    own = {f"{kind}/{path}" for kind in ("numbers", "sketches", "evidence") for path in reach.whole}
    digests: set[str] = set()
    for blobs in (placed.entry.blobs for placed in run.with_numbers()):
        if own & blobs.keys():
            digests |= {blobs[name].sha256 for name in (own | {"joint"}) & blobs.keys()}
    return tuple(
        Artefact(what="numbers", path=f"{rundir.LEDGER}/{blob_path(digest)}", sha256=digest, part=None)
        for digest in sorted(digests)
    )


def _files(directory: Path, what: What, paths: Iterable[Path]) -> Iterator[Artefact]:
    for path in paths:
        if path.is_symlink() or not path.is_file():
            continue
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror or error}") from error
        yield Artefact(what=what, path=str(path.relative_to(directory)), sha256=digest, part=None)


def _after(path: Path, first: int | None) -> bool:
    """Return whether a checkpoint may be of a state that the target had influenced. One whose name tells no step
    counts as such: destroying too much is the safe side."""
    number = path.stem.removeprefix("step-")
    return first is not None and not (number.isascii() and number.isdigit() and int(number) <= first)
