"""The fourth condition: statements of a record that repeat each other agree, in ledger, blobs and files of the run.

A signer with all keys of a ledger can sign anything, but cannot change one statement and leave the others as they were:
a digest without its file, a state without its tensors, a seed without the random streams that follow from it.
`INVARIANTS` names all comparisons. Each is a function that yields findings: a `Fault` where two statements cannot both
be true, a `Gap` where one of them is missing.

Changes that no other statement repeats stay invisible here: norms that are changed together with everything that
follows from them, or other examples of the same class. Only a replay shows that a host ran what its record says.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from explorer import note, rundir
from explorer.audit.conditions import Judgement
from explorer.audit.judge import Audited, Judge
from explorer.canonical import digest
from explorer.entries.fields import read_float
from explorer.entries.kinds import Decision, End, Genesis, Parent, Profile, State, TrainingState, Trunk
from explorer.entries.numbers import decode_sketches, sketch_bytes
from explorer.errors import ExplorerError, LedgerError
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory, read_checkpoint
from explorer.ledger.trust_anchor import utc
from explorer.provenance.envelope import MAX_BYTES as MAX_ENVELOPE
from explorer.provenance.envelope import parse_envelope
from explorer.provenance.taxonomy import QUARANTINE
from explorer.provenance.trust import Trust
from explorer.run_files import OF_A_RUN, Plan, RunRecord, exact_every, plan_file, read_plan
from explorer.runlog.anchor import anchor_of_ledger
from explorer.runlog.attested import PARENTS, continues_ledger
from explorer.runlog.model_file import CARD, MODEL, ModelFile, differences, read_card
from explorer.runlog.run_ledger import Missing, Placed, RunLedger, Segment
from explorer.runlog.same_steps import has_ledger, open_named, unlike_plans, unlike_steps
from explorer.runlog.segments import SegmentNumbers, having
from explorer.runlog.target import read_origin
from explorer.runlog.tensors import (
    BLOB,
    MAX_BYTES,
    OPTIMIZER,
    Tensors,
    check_roots,
    layer_of,
    parse_tensors,
    read_owners,
)
from explorer.store.examine import Examined, examine

SKEW = 3600  # seconds that the trainer's clock may be ahead of a witness's
LONGEST = 366 * 24 * 3600  # seconds from the moment for which documents were judged to the first cosignature
LARGEST = 16.0  # times the sum of the norms: an honest sketch is larger with a chance of less than 1 in 10^9
MOST = 3  # faults of one kind that are listed one by one

RECIPE = "microbatch"  # strategy of every run of a recipe


class Fault(NamedTuple):
    """Two statements that cannot both be true."""

    entry: int | None
    words: str
    expected: object = None
    found: object = None


class Gap(NamedTuple):
    """A missing statement, which another one should be compared with."""

    words: str


class Note(NamedTuple):
    """A note for the reader."""

    words: str


Findings = Iterator[Fault | Gap | Note]


class Statements:
    """The statements about the whole run, each read on first use, and sums over its segments."""

    def __init__(self, run: RunLedger, cosigned: Sequence[int], *, trust: Trust | None) -> None:
        """`cosigned`: the times of the cosignatures that count, in seconds since 1970. `trust`: as the caller gave
        it."""
        self.run, self.cosigned, self.trust = run, cosigned, trust
        self.slots = 0  # of the latest execution of all steps
        self.committed: list[int] = []  # states that commit to sketches
        self.uncommitted: list[int] = []  # states with sketches and without commitments to them
        self.without: list[int] = []  # states of steps with numbers, without any sketches

    @property
    def genesis(self) -> Genesis:
        return self.run.genesis

    @cached_property
    def plan(self) -> Plan | None:
        """Read the plan in the run's directory: `run.json` of a recipe, or `loop.json`."""
        return read_plan(self.run.run)

    @cached_property
    def record(self) -> RunRecord | None:
        return self.plan if isinstance(self.plan, RunRecord) else None

    @cached_property
    def examined(self) -> Examined | None:
        """Examine the directory of a recipe's run; None for a custom loop."""
        return None if self.record is None else examine(self.run.run)

    @cached_property
    def frozen(self) -> dict[tuple[int, int], list[tuple[int, bool]]]:
        """Return the decisions about each class and layer, by index, with whether each of them freezes it."""
        classes = {path: place for place, path in enumerate(self.genesis.classes)}
        layers = {layer: at for at, layer in enumerate(self.genesis.layers)}
        cells: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        for placed in self.run.read(self.run.outline.decisions, Decision):
            if (action := placed.entry.action) in ("freeze", "re-open", "override"):
                for path in classes.keys() & (placed.entry.subjects or classes):
                    for layer in layers.keys() & (placed.entry.layers or layers):
                        cell = classes[path], layers[layer]
                        cells.setdefault(cell, []).append((placed.index, action == "freeze"))
        return cells

    @cached_property
    def end(self) -> Placed[End] | None:
        index = self.run.outline.end
        return None if index is None else next(self.run.read([index], End))

    @cached_property
    def last(self) -> Placed[State] | None:
        """Read the last state."""
        return next(self.run.read([index for _, index in self.run.outline.states[-1:]], State), None)

    @cached_property
    def first_tensors(self) -> Tensors | None:
        return self.tensors(next(self.run.read([0], Genesis)))

    @cached_property
    def last_tensors(self) -> Tensors | None:
        return None if self.last is None else self.tensors(self.last)

    @cached_property
    def end_tensors(self) -> Tensors | None:
        return None if self.end is None else self.tensors(self.end)

    def tensors(self, placed: Placed[Any]) -> Tensors | None:
        """Read the tensors that an entry lists; None where it lists none, or they are missing."""
        content = self.run.blob(placed, BLOB, max_bytes=MAX_BYTES)
        return None if content is None else parse_tensors(content, where=f"entry {placed.index}: {BLOB}")


# --- the ledger itself ---


def _name(s: Statements) -> Findings:
    """Check that the ledger's origin ends with the run's id: a genesis moved into another run's ledger differs."""
    origin, run = s.run.ledger.checkpoint().origin, s.genesis.run
    if not origin.endswith(f"/{run}"):
        yield Fault(0, "the ledger is not named after its run", expected=f".../{run}", found=origin)


def _strategy(s: Statements) -> Findings:
    """Check that the way of taking gradients can keep a policy: one backward over mixed classes cannot."""
    if s.genesis.policy is not None and s.genesis.strategy == "plain":
        yield Fault(0, "under a policy, gradients were not taken class by class", found=s.genesis.strategy)
    if s.record is not None and s.genesis.strategy != RECIPE:
        yield Fault(0, "not how recipes take gradients", expected=RECIPE, found=s.genesis.strategy)


def _judged(s: Statements) -> Findings:
    """Check that documents were judged at about the time of the run. The trainer states that moment; witnesses bound
    it, so a moment at which an expired key still counted would show here."""
    judged = s.genesis.judged
    if judged is None or not s.cosigned:
        return
    first = min(s.cosigned)
    if judged > first + SKEW:
        times = f"judged for {utc(judged)}, cosigned at {utc(first)}"
        yield Fault(0, "documents were judged for a moment after the ledger was cosigned", found=times)
    elif judged < first - LONGEST:
        times = f"judged for {utc(judged)}, first cosigned at {utc(first)}"
        yield Fault(0, "documents were judged for a moment more than a year before any cosignature", found=times)


def _begin(s: Statements) -> Findings:
    """Check the state before the first step: the parameters' root and the random streams follow from other
    statements."""
    genesis, tensors = s.genesis, s.first_tensors
    if (genesis.start is None) != (genesis.begins == 0):
        yield Fault(0, f"begins after {genesis.begins} steps, and its start does not agree with that")
    if genesis.start is not None:
        yield from _stream(s, 0, genesis.start, genesis.begins)
    if tensors is not None and tensors.roots[0] != genesis.initial:
        yield Fault(0, "initial: not the parameters that it lists", expected=tensors.roots[0], found=genesis.initial)


def _layers(s: Statements) -> Findings:
    """Check that tensors and layers match both ways: an unlisted layer could train without any policy applying to
    it."""
    tensors, layers = s.first_tensors, s.genesis.layers
    if tensors is None:
        return
    if len(set(layers)) < len(layers):
        yield Fault(0, "a layer occurs twice in the genesis")
    # Both directions, and the table of owners: each names only tensors and layers that exist.
    owners, known = read_owners(s.run), frozenset(layers)
    of = {name: owners.get(name) or layer_of(name, known) for name in (*tensors.parameters, *tensors.buffers)}
    for name in sorted(tensors.parameters):
        if of[name] is None:
            yield Fault(0, f"parameter {name}: of no layer that the genesis lists")
    for layer in sorted(known - set(of.values())):
        yield Fault(0, f"layer {layer}: no tensor is of it")
    for name in sorted(owners.keys() - of.keys()):
        yield Fault(0, f"owners: {name}: no such tensor is listed")
    for shared in s.genesis.shared:
        if shared.layer not in known:
            yield Fault(0, f"shared: {shared.layer}: not one of the layers")


def _profiles(s: Statements) -> Findings:
    """Check that all profiles have one probe set: probes exchanged between two profiles would decide a freeze."""
    indices = sorted((*s.run.outline.profiles, *s.run.outline.past_profiles))
    probes = None
    for placed in s.run.read(indices, Profile):
        entry, probes = placed.entry, probes or placed.entry.probes
        if entry.probes != probes:
            yield Fault(placed.index, "another probe set than before", expected=probes, found=entry.probes)
        yield from _known(placed.index, s, classes=entry.classes)
        yield from _named(placed, {f"numbers/{path}" for path in entry.classes} | {"joint"})


def _decisions(s: Statements) -> Findings:
    """Check that decisions name classes and layers that exist, and name a blob for each class that decided."""
    for placed in s.run.read(s.run.outline.decisions, Decision):
        entry = placed.entry
        yield from _known(placed.index, s, classes=(*entry.subjects, *entry.evidence), layers=entry.layers)
        yield from _named(placed, {f"evidence/{path}" for path in entry.evidence})


def _closed(s: Statements) -> Findings:
    """Check that a state had closed the steps that were executed again: otherwise numbers could be dropped by claiming
    a crash."""
    for past in s.run.outline.past:
        if past.state is None:
            steps = f"steps {past.first} to {past.first + len(past.entries) - 1}"
            yield Fault(past.entries[0], f"{steps} were executed again, and their numbers are on no record")


def _end_tensors(s: Statements) -> Findings:
    """Check that the listed tensors lead to the roots of the end: otherwise a list could leave out a tensor."""
    if s.end is not None and s.end_tensors is not None:
        check_roots(s.end_tensors, s.end.entry.state, where=f"entry {s.end.index}: {BLOB}")
    elif s.end is not None:
        yield Gap(f"the list of tensors at the end, entry {s.end.index}, is missing")


def _end_state(s: Statements) -> Findings:
    """Check that the run ends with its last state, or with an average that a method kept in it: no training may follow
    the last step on record."""
    before = s.genesis.start if s.last is None else s.last.entry.state
    if s.end is None or before is None or (after := s.end.entry.state) == before:
        return
    # The end differs from the last state. Only a method that puts an average in place of the weights may do that.
    yield from _stream(s, s.end.index, after, s.end.entry.step)
    if s.last is None:
        yield Fault(s.end.index, "not the state that the run began with, and no step lies between", before, after)
    elif s.genesis.methods is not None and not _averaging(s):
        yield Fault(s.end.index, "not the last state, and no method of the run averages weights", before, after)
    elif s.last_tensors is None or s.end_tensors is None:
        yield Gap("whether the run ended with its last state or an average of it: a list of tensors is missing")
    else:
        yield from _averaged(s, s.end.index, s.last_tensors, s.end_tensors)


def _averaging(s: Statements) -> Set[str]:
    """Return the methods that put an average in place of the weights; in a ledger of an earlier version, which states
    no traits, every method."""
    methods = s.genesis.methods
    if methods is None:
        places = () if s.last_tensors is None else s.last_tensors.optimizer
        return {place.partition("/")[0] for place in places} - {OPTIMIZER}
    return {name for name, traits in methods.items() if traits.averages}


def _averaged(s: Statements, end: int, before: Tensors, after: Tensors) -> Findings:
    """Check that the model at the end is the average that a method kept in the last state, METHOD/.../NAME for each
    tensor."""
    # The place of each tensor's average in the last state.
    model = {"parameters": (before.parameters, after.parameters), "buffers": (before.buffers, after.buffers)}
    names = after.parameters.keys() | after.buffers.keys()
    averaging = _averaging(s)
    averages: dict[str, str] = {}
    for place in before.optimizer:
        method, _, rest = place.partition("/")
        if method in averaging:
            averages |= {name: place for name in (rest, rest.partition("/")[2]) if name in names}
    if not averages:
        yield Fault(end, "not the last state, which has no average of the weights either")
        return

    # Optimiser and methods may only have swapped the averages themselves; all other memory stays.
    methods = {place.partition("/")[0] for place in averages.values()}
    for place in sorted(before.optimizer.keys() | after.optimizer.keys()):
        same = before.optimizer.get(place) == after.optimizer.get(place)
        if not same and place.partition("/")[0] not in methods:
            yield Fault(end, f"{place}: not as it was in the last state, and no average of the weights")

    # A leaf covers the tensor's name, so the leaf of an average differs from that of the weights with equal values. The
    # comparison takes the values in the model's file, hashed under the average's name.
    path = s.run.run / rundir.MODEL / MODEL
    file = ModelFile(path) if path.exists() else None
    leaves = {} if file is None else file.leaves(averages, chunk=before.chunk)
    for kind, (old, new) in model.items():
        for name in sorted(old.keys() | new.keys()):
            average = before.optimizer[averages[name]] if name in averages else None
            if old.get(name) == new.get(name):
                if average is not None and name in leaves and leaves[name] != average:
                    yield Fault(end, f"{kind}: {name}: as it was in the last state, and others are the average")
                continue
            if average is None:
                yield Fault(end, f"{kind}: {name}: not as it was in the last state, which has no average of it")
            elif file is None:
                yield Gap(f"whether the run ended with the average of its weights: {path.name} is missing")
            elif leaves.get(name) != average:
                words = f"{kind}: {name}: neither as it was in the last state nor the average that the state has of it"
                yield Fault(end, words)


# --- the files in the run's directory ---


def _environment(s: Statements) -> Findings:
    """Check that the environment file is the one in the genesis, and that code and packages in it agree with the
    plan."""
    path = s.run.run / rundir.ENVIRONMENT
    if not path.exists():
        yield Gap(f"{path.name} is missing, which records the code and the machine of the run")
        return
    content, expected = rundir.read_bytes(path, max_bytes=rundir.MAX_JSON_BYTES, error=LedgerError), s.genesis
    if (sha256 := hashlib.sha256(content).hexdigest()) != expected.environment:
        yield Fault(0, f"{path.name}: not the one that the genesis names", expected=expected.environment, found=sha256)
    value: Any = rundir.read_json(path)
    code = value.get("training_code") if isinstance(value, dict) else None
    if code != expected.code:
        yield Fault(0, f"code: not the one that {path.name} names", expected=code, found=expected.code)
    packages = value.get("packages") if isinstance(value, dict) else None
    if s.plan is not None and s.plan.identity.get("versions", packages) != packages:
        yield Fault(0, f"{path.name}: other versions of packages than {plan_file(s.plan)}")


def _recipe(s: Statements) -> Findings:
    """Check that the plan in the directory is the one in the genesis, field by field, and its documents likewise."""
    plan, genesis = s.plan, s.genesis
    if plan is None:
        yield Gap(f"the plan of the run, whose digest the genesis has: neither {rundir.RUN} nor {rundir.LOOP} exists")
        return
    file, identity = plan_file(plan), plan.identity
    if (sha256 := digest(identity)) != genesis.recipe:
        yield Fault(0, f"{file}: not the recipe that the genesis names", expected=genesis.recipe, found=sha256)
    # The digest already covers these fields; comparing them one by one says which field differs.
    pairs = [("run", genesis.run, plan.run_id), ("seed", genesis.seed, identity.get("seed"))]
    if "data" in identity:
        pairs.append(("data", genesis.data, identity["data"]))
    if genesis.methods is not None:
        pairs.append(("methods", sorted(genesis.methods), sorted(plan.methods)))
    documents: Any = identity.get("governance")
    if isinstance(documents, dict):
        name, sources = next(iter(genesis.tags.items())) if len(genesis.tags) == 1 else (None, None)
        aside, signed = genesis.blobs.get(QUARANTINE), ("trust", "taxonomy", "policy")
        pairs += [(kind, getattr(genesis, kind), documents.get(kind)) for kind in signed]
        pairs.append(("tags", sources and sources.root, documents.get("tags")))
        pairs.append(("attestation of tags", sources and sources.attestation, documents.get("attestation")))
        pairs.append(("quarantine", aside and aside.sha256, documents.get("quarantine")))
        pairs.append(("dataset", name, s.record and s.record.dataset))
    for what, stated, expected in pairs:
        if stated != expected:
            yield Fault(0, f"{what}: not as in {file}", expected=expected, found=stated)
    # The checks of any run directory, too; but a copy under audit may have another name.
    for finding in () if s.examined is None else s.examined.findings:
        if finding.check != "name":
            yield Fault(None, finding.message)


def _length(s: Statements) -> Findings:
    """Check that a finished run did the steps that it planned: the place of an early stop may depend on the data."""
    planned: Any = s.record.steps if s.record is not None else s.plan and s.plan.identity.get("steps")
    if s.end is None or s.plan is None:
        return
    done, outcome = s.end.entry.step, s.end.entry.outcome
    if done > planned or (done == planned) != (outcome == "finished"):
        yield Fault(s.end.index, f"{outcome} after {done} steps, and {plan_file(s.plan)} plans {planned}")


def _result(s: Statements) -> Findings:
    """Check that the metrics of the end are those of the result file."""
    result = None if s.examined is None else s.examined.result
    if s.end is None or result is None:
        return
    end = {name: read_float(text) for name, text in s.end.entry.metrics.items()}
    measured = {name: value for name, value in result.metrics.items() if name not in OF_A_RUN}
    for name in sorted(end.keys() | measured.keys()):
        if end.get(name) != measured.get(name):
            words = f"metric {name}: not the one in {rundir.RESULT}"
            yield Fault(s.end.index, words, expected=measured.get(name), found=end.get(name))
    if result.steps != s.end.entry.step:
        yield Fault(s.end.index, f"steps: not those of {rundir.RESULT}", expected=result.steps, found=s.end.entry.step)


def _model(s: Statements) -> Findings:
    """Check that the model's file has the tensors of the end; `MOST` differences are named."""
    directory = s.run.run / rundir.MODEL
    if (directory / CARD).exists() and (run := read_card(directory / CARD).run) != s.genesis.run:
        yield Fault(0, f"{CARD}: of another run", expected=s.genesis.run, found=run)
    if s.end is None or s.end_tensors is None or not (directory / MODEL).exists():
        return
    tensors = s.end_tensors.parameters | s.end_tensors.buffers
    for count, words in enumerate(differences(ModelFile(directory / MODEL).leaves(chunk=s.end_tensors.chunk), tensors)):
        if count < MOST:
            yield Fault(s.end.index, f"{MODEL}: {words}")


def _parents(s: Statements) -> Findings:
    """Check that the runs and models that the genesis names are those of the origin file, the plan and the copies
    here."""
    # The run that a deletion continued: by `origin.json`, and by its ledger where that is in the same sweep.
    by_deletion = [parent for parent in s.genesis.parents if parent.kind == "deletion"]
    origin = read_origin(s.run.run)
    if by_deletion and origin is None:
        yield Gap(f"the run continues another one, and {rundir.ORIGIN}, which records what was left out, is missing")
    if origin is not None:
        stated = [parent.ledger for parent in by_deletion], s.genesis.begins, s.genesis.start
        if stated != ([origin.ledger], origin.begins, origin.state):
            yield Fault(0, f"parents, begins or start: not those of {rundir.ORIGIN}")
        place = s.run.run.parent / origin.run / rundir.LEDGER
        if (place / CHECKPOINT).exists() and not continues_ledger(LedgerDirectory(place), origin.ledger):
            yield Fault(0, f"the ledger of {origin.run}, here too, is not the one that the genesis continues")

    # The models that training began with: by the plan, and by the run's copies of them.
    start: Any = s.plan and s.plan.identity.get("start")
    models = [parent for parent in s.genesis.parents if parent.kind == "model"]
    named = [parent.model for parent in models]
    if s.plan is not None and named != ([start.get("model")] if isinstance(start, dict) else []):
        yield Fault(0, f"parents: not the model that {plan_file(s.plan)} begins with", found=named)
    for parent in models:
        yield from _begun(s, parent)
    yield from _trunk(s)


def _begun(s: Statements, parent: Parent) -> Findings:
    """Check the run's copy of the model that it began with."""
    place = s.run.run / rundir.GOVERNANCE / PARENTS / (parent.attestation or "")
    attestation, model = place.with_name(f"{place.name}.json"), place.with_name(f"{place.name}.safetensors")
    if not attestation.exists() or not model.exists():
        yield Gap(f"the model that the run began with, or its attestation {parent.attestation}, is missing")
        return
    content = rundir.read_bytes(attestation, max_bytes=MAX_ENVELOPE, error=LedgerError)
    sha256 = hashlib.sha256(parse_envelope(content, where=str(attestation)).payload).hexdigest()
    if sha256 != parent.attestation:
        yield Fault(0, f"{attestation.name}: not the attestation that the genesis names", found=sha256)
    file = ModelFile(model)
    if (sha256 := file.sha256) != parent.model:
        yield Fault(0, f"{model.name}: not the model that the genesis names", expected=parent.model, found=sha256)
    # Only the tensors that both have: a run may leave out sealed regions of the model that it begins with.
    tensors = s.first_tensors
    if tensors is not None and s.genesis.begins == 0:
        mine = tensors.parameters | tensors.buffers
        for name, leaf in file.leaves(chunk=tensors.chunk).items():
            if name in mine and mine[name] != leaf:
                yield Fault(0, f"{name}: before the first step not as in the model that the run begins with")


def _trunk(s: Statements) -> Findings:
    """Check the runs that made the first steps: the state that they led to is the one on record here, and where the
    other run is in the same sweep, its ledger is the one that is named, and says the same of these steps."""
    states, origin = dict(s.run.outline.states), s.run.ledger.checkpoint().origin
    for placed in s.run.read(s.run.outline.trunks, Trunk):
        entry, at = placed.entry, placed.index
        recorded = next(s.run.read([states[entry.step]], State)).entry.state if entry.step in states else None
        if recorded != entry.state:
            yield Fault(at, f"trunk: not the state after {entry.step} steps", expected=recorded, found=entry.state)
        # Runs that share steps are of one sweep, and one trainer signs all of them.
        expected = f"{origin.removesuffix(s.genesis.run)}{entry.run}"
        if entry.run == s.genesis.run or entry.ledger.origin != expected:
            yield Fault(at, "trunk: not the ledger of another run", expected=expected, found=entry.ledger.origin)
        elif not has_ledger(s.run.run.parent, entry.run):
            yield Note(
                f"trunk: steps 0 to {entry.step - 1} are those of {entry.run}, whose ledger is not here: that it says"
                " the same of them is the trainer's word, and a replay shows it"
            )
        else:
            try:
                unlike = list(islice(_unlike(s, entry), MOST))
            except ExplorerError as error:
                unlike = [str(error)]
            for words in unlike:
                yield Fault(at, f"trunk: the ledger of {entry.run}, here too, is another one: {words}")
    # And the other way round: what the result says of its beginning is on record.
    result = None if s.examined is None else s.examined.result
    named = {(placed.entry.run, placed.entry.step) for placed in s.run.read(s.run.outline.trunks, Trunk)}
    if result is not None and result.trunk is not None and (result.trunk.run, result.trunk.step) not in named:
        words = (
            f"trunk: {rundir.RESULT}: began with {result.trunk.step} steps of {result.trunk.run}, which no entry names"
        )
        yield Fault(None, words)


def _unlike(s: Statements, trunk: Trunk) -> Iterator[str]:
    """Yield what the run that made the first steps says otherwise than this one. Raises an error where it is not the
    one that the entry names, and where no trainer has signed it."""
    runs = s.run.run.parent
    other = open_named(runs, trunk.run, trunk.ledger)
    if s.trust is not None:
        signed, _ = read_checkpoint(other.ledger.path)
        # Whether the key was valid at the time would take cosignatures. These steps are signed in this ledger as well.
        keys = [key.verifier for key in anchor_of_ledger(other.ledger, s.trust).logs]
        note.verify(signed, keys)
    if s.record is not None and (other.run / rundir.RUN).exists():
        yield from unlike_plans(s.genesis, other.genesis, runs=runs)
    yield from unlike_steps(s.run, other, steps=trunk.step)


# --- each segment ---


def _stream(s: Statements, index: int, state: TrainingState, step: int) -> Findings:
    """Check that the random streams are those of the seed and the step: a seed cannot be exchanged afterwards."""
    expected = digest({"seed": s.genesis.seed, "step": step})
    if state.random != expected:
        words = f"random: not what seed {s.genesis.seed} and {step} steps lead to"
        yield Fault(index, words, expected=expected, found=state.random)


def _random(s: Statements, segment: Segment, numbers: SegmentNumbers) -> Findings:
    """Check the random streams of the state that closes a segment."""
    yield from _stream(s, segment.state.index, segment.state.entry.state, segment.state.entry.step)


def _batches(s: Statements, segment: Segment, numbers: SegmentNumbers) -> Findings:
    """Check the number of slots of each step, and count them for `_examples`."""
    record = s.record
    for placed in numbers.steps:
        slots = sum(placed.entry.examples) + placed.entry.quarantined
        s.slots += slots if segment.past is None else 0
        if record is not None and slots != record.batch_size:
            words = f"step {placed.entry.step}: another batch size than in {rundir.RUN}"
            yield Fault(placed.index, words, expected=record.batch_size, found=slots)


def _tables(s: Statements, segment: Segment, numbers: SegmentNumbers) -> Findings:
    """Check that the table of weights is a blob of the step in which it comes into force, with the digest that steps
    name."""
    seen: set[str] = set()
    for placed in numbers.steps:
        step, blob = placed.entry, placed.entry.blobs.get("weights")
        if blob is not None and blob.sha256 != step.weights:
            words = f"step {step.step}: the table of weights that it names is not its blob"
            yield Fault(placed.index, words, expected=step.weights, found=blob.sha256)
        if step.weights is not None and step.weights not in seen and blob is None:
            yield Fault(placed.index, f"step {step.step}: the table of weights in force is not named where it begins")
        seen |= {step.weights} if step.weights else set()


def _blobs(s: Statements, segment: Segment, numbers: SegmentNumbers) -> Findings:
    """Check that a state names a blob for everything that its steps commit to, and no other: no commitment would bind
    an extra blob of numbers."""
    classes, places = s.genesis.classes, {place for step in numbers.steps for place in having(step.entry)}
    wanted = {f"numbers/{classes[place]}" for place in places}
    measured = any(placed.entry.joint is not None for placed in numbers.steps)
    for placed in numbers.steps:
        if having(placed.entry) and placed.entry.joint is None:
            yield Fault(placed.index, f"step {placed.entry.step}: numbers of classes, and none over several")
    allowed = {"slots", BLOB} | {f"sketches/{path}" for path in classes}
    yield from _named(segment.state, wanted | ({"joint"} if measured else set()), allowed)


def _sketches(s: Statements, segment: Segment, numbers: SegmentNumbers) -> Findings:
    """Check that commitments to sketches, their blobs and the numbers of the steps come together, also where numbers
    follow from sketches."""
    yield from _estimates(s, numbers)
    # Earlier versions made no commitments at all, so states without any are collected for `_all_sketches`, which sees
    # the whole ledger.
    state, committed = segment.state, segment.state.entry.sketches
    named = [f"sketches/{path}" in state.entry.blobs for path in s.genesis.classes]
    if not committed and any(named):
        s.uncommitted.append(state.index)
    elif not committed and any(having(placed.entry) for placed in numbers.steps):
        s.without.append(state.index)
    elif len(committed) == len(named):
        s.committed.append(state.index)
        measured = {place for placed in numbers.steps for place in having(placed.entry)}
        for place, path in enumerate(s.genesis.classes):
            present = committed[place] is not None, named[place], place in measured
            if len(set(present)) > 1:
                words = f"{path}: expected a commitment to sketches, a blob and numbers, or none of them"
                yield Fault(state.index, words, found="commitment {}, blob {}, numbers {}".format(*present))
    for place, path in enumerate(s.genesis.classes):
        if named[place] and place in numbers.contents:
            yield from _possible(s, segment, numbers, place, path)


def _possible(s: Statements, segment: Segment, numbers: SegmentNumbers, place: int, path: str) -> Findings:
    """Check that a sketch is zero where the gradients are, and no larger than they can make it."""
    layers = s.genesis.layers
    content = s.run.find(segment.state, f"sketches/{path}", max_bytes=sketch_bytes(len(layers)))
    if isinstance(content, Missing):
        return
    # A sketch is a random projection of the sum of weighted gradients, which is no longer than the sum of their
    # lengths. The small constant lets a layer without gradients have rounding errors, and nothing more.
    rows = np.array([*numbers.of_class(place).values()], np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        largest = LARGEST * rows.prod(axis=2).sum(axis=0) + 1e-30
        lengths = np.linalg.norm(decode_sketches(content, layers=len(layers)).astype(np.float64), axis=1)
        wrong = np.isfinite(largest) & ~(lengths <= largest)
    for at in np.flatnonzero(wrong)[:MOST]:
        words = f"sketches of {path} in {layers[at]}: longer than its gradients can make it"
        yield Fault(segment.state.index, words, expected=f"at most {largest[at]:.3g}", found=f"{lengths[at]:.3g}")


def _frozen(s: Statements, segment: Segment, numbers: SegmentNumbers) -> Findings:
    """Check that a class has no weight in a layer while a freeze of it is in force: only a decision can re-open it."""
    # The last decision in force before the step counts, whether it froze, re-opened or overrode.
    for (place, at), decided in s.frozen.items():
        rows = numbers.of_class(place)
        for placed in numbers.steps:
            step = placed.entry.step
            if step not in rows or not rows[step][at, 0]:
                continue
            in_force = (frozen for index, frozen in reversed(decided) if s.run.outline.stands_at(index, placed.index))
            if next(in_force, False):
                path, layer = s.genesis.classes[place], s.genesis.layers[at]
                yield Fault(placed.index, f"step {step}: {path} trained {layer}, which is frozen for it")


def _known(index: int, s: Statements, *, classes: Iterable[str], layers: Iterable[str] = ()) -> Findings:
    for what, names, known in (("class", classes, s.genesis.classes), ("layer", layers, s.genesis.layers)):
        for name in sorted({*names}.difference(known)):
            yield Fault(index, f"{what} {name}: not one that the genesis lists")


def _estimates(s: Statements, numbers: SegmentNumbers) -> Findings:
    """Check that estimates are in the steps that the recipe leaves without exact numbers, and in no others."""
    if s.plan is None:
        return
    every = exact_every(s.plan) or 1
    for placed in numbers.steps:
        step = placed.entry
        if step.estimated != (step.joint is not None and step.step % every != 0):
            words = f"step {step.step}: its entry calls its numbers {'estimates' if step.estimated else 'exact'}"
            yield Fault(
                placed.index, words, expected=f"exact ones in one of {every} steps, and estimates in the others"
            )


def _named(placed: Placed[Any], committed: Set[str], allowed: Set[str] = frozenset()) -> Findings:
    """Check that an entry names the blobs of what is committed to, and no other numbers."""
    names = placed.entry.blobs.keys()
    for name in sorted(committed - names):
        yield Fault(placed.index, f"{name}: numbers that are committed to, and the entry names no blob of them")
    for name in sorted(names - committed - allowed):
        yield Fault(placed.index, f"{name}: a blob of numbers that nothing commits to")


# --- after every segment ---


def _all_sketches(s: Statements) -> Findings:
    """Check that all states commit to sketches, or none does."""
    # Earlier versions neither committed to sketches nor stated methods; later ones do both, always.
    if s.committed or s.genesis.methods is not None:
        for index in s.uncommitted:
            yield Fault(index, "sketches that the state does not commit to")
        for index in s.without if s.committed else ():
            yield Fault(index, "no sketches of steps that have numbers, and other states have them")
    elif s.uncommitted:
        yield Note("sketches are bound by no commitment: the ledger is of an earlier version, which made none")


def _examples(s: Statements) -> Findings:
    """Check that the slots of all steps add up to the examples in the result."""
    result = None if s.examined is None else s.examined.result
    if result is not None and s.genesis.begins == 0 and s.run.steps == result.steps and s.slots != result.examples:
        words = f"examples: not as many as {rundir.RESULT} counts"
        yield Fault(None, words, expected=result.examples, found=s.slots)


@dataclass(frozen=True, kw_only=True, slots=True)
class Invariant:
    """A comparison. `run` is checked before any segment is read, `end` after all of them."""

    name: str
    says: str
    run: Callable[[Statements], Findings] | None = None
    segment: Callable[[Statements, Segment, SegmentNumbers], Findings] | None = None
    end: Callable[[Statements], Findings] | None = None


INVARIANTS: tuple[Invariant, ...] = (
    Invariant(name="name", says="the ledger is named after the run in its genesis", run=_name),
    Invariant(name="strategy", says="gradients under a policy are taken class by class", run=_strategy),
    Invariant(name="judged", says="documents were judged before the first cosignature, and within a year", run=_judged),
    Invariant(name="begin", says="start and initial parameters are those that the genesis lists", run=_begin),
    Invariant(name="layers", says="layers and the names of tensors belong together", run=_layers),
    Invariant(name="profiles", says="profiles have one probe set, and blobs for what they commit to", run=_profiles),
    Invariant(name="decisions", says="decisions are about known classes and layers, with evidence", run=_decisions),
    Invariant(name="closed", says="what was executed again has its numbers on record", run=_closed),
    Invariant(name="end tensors", says="the roots at the end are those of its tensors", run=_end_tensors),
    Invariant(name="end state", says="the run ends with its last state, or with the average in it", run=_end_state),
    Invariant(name="environment", says="environment.json is the one in the genesis, with its code", run=_environment),
    Invariant(name="recipe", says="run.json is the recipe, seed, data and documents of the genesis", run=_recipe),
    Invariant(name="length", says="a finished run has the steps that run.json plans", run=_length),
    Invariant(name="result", says="the metrics at the end are those of result.json and metrics.jsonl", run=_result),
    Invariant(name="model", says="model.safetensors has the tensors at the end", run=_model),
    Invariant(name="parents", says="parents are those in origin.json, run.json and the copies here", run=_parents),
    Invariant(name="random", says="streams of random numbers follow from the seed and the step", segment=_random),
    Invariant(name="batches", says="steps have the slots that run.json says", segment=_batches, end=_examples),
    Invariant(name="tables", says="steps name the table of weights that is in force, where it begins", segment=_tables),
    Invariant(name="blobs", says="states have a blob for what steps commit to, and no other", segment=_blobs),
    Invariant(name="sketches", says="states commit to possible sketches", segment=_sketches, end=_all_sketches),
    Invariant(name="frozen", says="a layer that is frozen for a class learns nothing from it", segment=_frozen),
)  # fmt: skip


class Consistent(Judge):
    """Judge of all invariants."""

    name = "consistent"
    says = (
        "no statement of the record contradicts another one: entries, blobs and the files of the run's directory agree"
    )

    def __init__(self, audited: Audited, judgement: Judgement) -> None:
        super().__init__(audited, judgement)
        self._statements = Statements(audited.run, audited.cosigned, trust=audited.trust)
        for invariant in INVARIANTS:
            if invariant.run is not None:
                self._compare(invariant, invariant.run)

    def segment(self, segment: Segment, numbers: SegmentNumbers) -> None:
        for invariant in INVARIANTS:
            if (check := invariant.segment) is not None:
                self._compare(invariant, lambda statements, check=check: check(statements, segment, numbers))

    def close(self) -> None:
        for invariant in INVARIANTS:
            if invariant.end is not None:
                self._compare(invariant, invariant.end)

    def _compare(self, invariant: Invariant, check: Callable[[Statements], Findings]) -> None:
        self._judgement.count("comparisons")
        with self._judgement.reading():
            for finding in check(self._statements):
                words = f"{invariant.name}: {finding.words}"
                match finding:
                    case Fault(entry=entry, expected=expected, found=stated):
                        self._judgement.contradict(entry, words, expected=expected, found=stated)
                    case Gap():
                        self._judgement.untold(words)
                    case Note():
                        self._judgement.note(words)
