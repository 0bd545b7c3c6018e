"""Answers from a run's record to the questions of forms. An answer names its evidence; where the record has no answer,
it names the place where one would have to be recorded.

Nothing is inferred. A field of a signed document is quoted under its own name; a question that no field answers is "not
recorded", however easily a person who knows the dataset could guess. Compute is given as steps, batches and hardware,
and as the floating-point operations that were counted. These, training time and energy come from the run's result,
which no entry binds, and the answers say so.

A form (`explorer/report/forms/*.toml`) names the function that answers a question; `of` are its arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from explorer import run_files, rundir
from explorer.audit.shares import estimates
from explorer.errors import RunError
from explorer.page import amounts as words
from explorer.provenance.taxonomy import Source
from explorer.report.run.entropy_section import EntropySection
from explorer.report.run.head_section import HeadSection
from explorer.report.run.history_section import DeletionLine, History, HistorySection
from explorer.report.run.integrity_section import IntegritySection, integrity_words
from explorer.report.run.policy_section import UNRECORDED, PolicySection
from explorer.report.run.references import GENESIS, Document, Reference
from explorer.report.run.replay_section import ReplaySection
from explorer.report.run.reported_run import ReportedRun
from explorer.report.run.shares_section import SharesSection
from explorer.report.run.taxonomy_section import TaxonomySection
from explorer.report.run.vouchers_section import VouchersSection
from explorer.run_files import ResultRecord
from explorer.runlog.run_ledger import Missing

MOST = 5  # layers that an answer names; the tables of the report have all

NO_TAGS = "the tags' attestation, which is missing or not trusted"
NO_TAXONOMY = "the taxonomy, which is missing or not trusted"
NO_TAGS_OR_TAXONOMY = "the taxonomy and the tags, which are missing or not trusted"
NO_TRUST = "the trust file that the first entry binds, which is missing"
NO_PERSONAL_DATA = "the taxonomy marks no class of the run as one that may hold personal data"
FLOPS = "the number of floating-point operations"
UNBOUND = "on record: no entry binds the result of the run"
NO_RECIPE = "the recipe next to the ledger (run.json), as its first entry binds it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An answer from the record."""

    text: str
    references: tuple[Reference, ...]
    documents: tuple[Document, ...] = ()
    lacks: str = ""  # the part of the question that is not recorded; empty: none, or as the form says


@dataclass(frozen=True, kw_only=True, slots=True)
class NotRecorded:
    """The absence of an answer."""

    where: str  # the place where it would have to be recorded


Resolver = Callable[..., Answer | NotRecorded]

RESOLVERS: dict[str, Resolver] = {}


def resolver(function: Resolver) -> Resolver:
    """Register a function under its name, which forms use."""
    RESOLVERS[function.__name__] = function
    return function


def bound(run: ReportedRun, text: str, *documents: str, steps: bool = False, lacks: str = "") -> Answer:
    """Return an answer that rests on documents bound by the first entry, and on the steps if `steps` is True.

    run        the run under report
    text       the answer
    documents  names of documents, all of which `has` must have confirmed
    steps      the answer also rests on the entries of the steps
    lacks      the part of the question that is not recorded
    """
    references = (GENESIS, run.steps) if steps else (GENESIS,)
    return Answer(
        text=text, references=references, documents=tuple(run.documents[name] for name in documents), lacks=lacks
    )


def has(run: ReportedRun, *documents: str) -> bool:
    """Return True if all of these documents are present and trusted."""
    return all(name in run.documents for name in documents)


# --- the dataset, as its attestation and the taxonomy describe it ---
#
# A resolver checks that its documents are trusted before it reads them: an untrusted document answers nothing.


@resolver
def described(run: ReportedRun, *names: str) -> Answer | NotRecorded:
    """Quote these fields of the description in the tags' attestation, without those that it leaves empty."""
    asked = " or ".join(f"'{name}'" for name in names)
    where = f"{asked} in the description of the dataset that the tags' attestation carries"
    description = run.of(TaxonomySection).dataset
    if description is None:
        return NotRecorded(where=f"{where}; no attestation of this run is trusted")
    quoted = [f"{name}: {_said(value)}" for name in names if (value := getattr(description, name)) is not None]
    return bound(run, "; ".join(quoted), "tags") if quoted else NotRecorded(where=where)


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    first, last = getattr(value, "first", None), getattr(value, "last", None)
    return str(value) if first is None else f"{first} to {last}"


@resolver
def content(run: ReportedRun) -> Answer | NotRecorded:
    answer = described(run, "title", "description", "identifier")
    if isinstance(answer, NotRecorded) or not has(run, "taxonomy"):
        return answer
    kinds = [f"{line.path} ({line.records:,} records)" for line in run.of(TaxonomySection).taxonomy if line.records]
    return bound(run, f"{answer.text}; classes: {', '.join(kinds)}", "tags", "taxonomy")


@resolver
def origin(run: ReportedRun) -> Answer | NotRecorded:
    answer = described(run, "issuer", "source", "origin_geography", "method", "generated")
    if isinstance(answer, NotRecorded):
        return answer
    parents = "; ".join(parent.words for parent in run.ledger.genesis.parents)
    return replace(answer, text=f"{answer.text}; starts from: {parents or 'nothing that was trained before'}")


@resolver
def interface(run: ReportedRun) -> Answer | NotRecorded:
    answer = described(run, "format")
    return answer if isinstance(answer, NotRecorded) else replace(answer, text=f"training data: {answer.text}")


@resolver
def size(run: ReportedRun) -> Answer | NotRecorded:
    if not has(run, "tags"):
        return NotRecorded(where="counts of tokens, bytes or hours: tags and entries count only examples")
    trained = sum(line.examples for line in run.of(SharesSection).counts)
    text = f"{_tagged(run):,} examples tagged with a class; {trained:,} in batches, counted with repetition"
    return bound(run, text, "tags", steps=True)


@resolver
def quantity(run: ReportedRun) -> Answer | NotRecorded:
    if not has(run, "tags"):
        return NotRecorded(where=NO_TAGS)
    read = sum(line.examples - line.denied for line in run.of(SharesSection).counts)
    text = f"{_tagged(run):,} examples tagged with a class; {read:,} read in batches, counted with repetition"
    return bound(run, text, "tags", steps=True)


def _tagged(run: ReportedRun) -> int:
    return sum(line.records or 0 for line in run.of(TaxonomySection).taxonomy)


@resolver
def source(run: ReportedRun, category: str) -> Answer | NotRecorded:
    """List the run's classes that the taxonomy puts into a category, with the number of tagged examples."""
    if not has(run, "taxonomy", "tags"):
        return NotRecorded(where=NO_TAGS_OR_TAXONOMY)
    denied = {line.path for line in run.classes if line.first_admitted is None}
    classes = [
        f"{line.path} ({line.records:,} tagged examples{', denied everywhere' if line.path in denied else ''})"
        for line in run.of(TaxonomySection).taxonomy
        if line.source == Source(category) and line.records
    ]
    # A category without examples in this run may still have shaped the model that the run starts from.
    before = "; the training data of the model that the run starts from is in that model's own ledger"
    parents = before if run.ledger.genesis.parents else ""
    text = ", ".join(classes) or "no tagged example of this category"
    return bound(run, f"{text}{parents}", "taxonomy", "tags")


@resolver
def scope(run: ReportedRun) -> Answer | NotRecorded:
    if not has(run, "tags", "taxonomy"):
        return NotRecorded(where=NO_TAGS_OR_TAXONOMY)
    classes = [f"{line.path} {line.records:,}" for line in run.of(TaxonomySection).taxonomy if line.records]
    return bound(run, f"tagged examples by class: {', '.join(classes)}", "tags", "taxonomy")


@resolver
def labelling(run: ReportedRun) -> Answer | NotRecorded:
    """Count provenance tags. Labels of the task are not on record."""
    tags = [line for line in run.of(VouchersSection).vouchers if line.what == "tags"]
    if not tags or not has(run, "tags"):
        return NotRecorded(where=NO_TAGS)
    counted = "; ".join(f"{sum(line.counts.values()):,} provenance tags, {line.name}" for line in tags)
    return bound(run, counted, "tags")


@resolver
def labels(run: ReportedRun) -> Answer | NotRecorded:
    tags = [line for line in run.of(VouchersSection).vouchers if line.what == "tags"]
    if not tags or not has(run, "tags"):
        return NotRecorded(where=NO_TAGS)
    signers = "; ".join(f"{line.name}, signed by {'; '.join(line.signed_by)}" for line in tags)
    return bound(run, f"provenance: {signers}", "tags")


@resolver
def errors(run: ReportedRun) -> Answer | NotRecorded:
    if not has(run, "tags"):
        return NotRecorded(where=NO_TAGS)
    doubts = "; ".join(doubt for line in run.of(VouchersSection).vouchers for doubt in line.doubts)
    text = f"tags that are not trusted: {doubts or 'none'}; slots never read: {run.quarantined:,}"
    return bound(run, text, "tags", steps=True)


@resolver
def personal_data(run: ReportedRun) -> Answer | NotRecorded:
    """List the classes that may hold personal data according to the taxonomy."""
    if not has(run, "taxonomy"):
        return NotRecorded(where=NO_TAXONOMY)
    classes = _personal(run)
    if not classes:
        return bound(run, NO_PERSONAL_DATA, "taxonomy")
    text = f"may hold personal data: {', '.join(classes)}"
    return bound(run, text, "taxonomy", lacks="the purpose for which it was first collected")


def _personal(run: ReportedRun) -> list[str]:
    return [line.path for line in run.of(TaxonomySection).taxonomy if line.in_run and line.personal_data]


@resolver
def privacy(run: ReportedRun) -> Answer | NotRecorded:
    if not has(run, "taxonomy"):
        return NotRecorded(where=NO_TAXONOMY)
    personal = _personal(run)
    classes = [
        f"{line.path}: {'denied everywhere' if line.first_admitted is None else 'trained'}, "
        f"deletable at {line.deletable.level or 'no level that is established as exact'}"
        for line in run.classes
        if line.path in personal
    ]
    text = "; ".join(classes) or NO_PERSONAL_DATA
    return bound(run, text, "taxonomy", steps=True)


# --- the training ---


@resolver
def versions(run: ReportedRun) -> Answer:
    """Name the model by what its record binds. Its name on the market is for the provider to state."""
    facts = run.of(IntegritySection).facts
    return Answer(text=f"run {run.run_id}, ledger {facts['Ledger']}, root {facts['Root']}", references=(run.whole,))


@resolver
def design_choices(run: ReportedRun) -> Answer | NotRecorded:
    """Name the policy and the recipe, which are the choices on record."""
    policy, record, choices = run.of(PolicySection).policy, run.pinned.record, []
    if policy:
        choices.append(f"policy {policy.name}, {len(policy.rules)} rules, which admit nothing by default")
    if record is not None:
        choices.append(f"{record.model} on {record.dataset} with {', '.join(record.methods) or 'no methods'}")
    if not choices:
        return NotRecorded(where="a policy, and the recipe next to the ledger")
    return bound(run, "; ".join(choices), *(name for name in ("policy", "recipe") if has(run, name)))


@resolver
def methods(run: ReportedRun) -> Answer | NotRecorded:
    """Describe the training by its recipe."""
    record = run.pinned.record
    if record is None:
        return NotRecorded(where=NO_RECIPE)
    # The identity is plain JSON, whose form older versions may differ in.
    optimizer, recipe = "", record.identity.get("recipe")
    train = recipe.get("train") if isinstance(recipe, dict) else None
    if isinstance(train, dict) and isinstance(train.get("optimizer"), dict):
        optimizer = f"; optimiser {', '.join(map(str, train['optimizer']))}"
    text = f"{', '.join(record.methods) or 'no methods'}; {record.steps:,} steps of batch {record.batch_size:,}"
    return bound(run, f"{text}, {record.precision}{optimizer}", "recipe")


@resolver
def pretrained_parts(run: ReportedRun) -> Answer:
    parents = "; ".join(parent.words for parent in run.ledger.genesis.parents)
    return bound(run, parents or "none: the run names no parent model")


@resolver
def design(run: ReportedRun) -> Answer:
    """Name the model and its layers."""
    layers, record = run.ledger.genesis.layers, run.pinned.record
    model = f"{record.model} on {record.dataset}, " if record else ""
    text = f"{model}{len(layers)} layers from {layers[0]} to {layers[-1]}" if layers else f"{model}no layers"
    return bound(run, text, *(["recipe"] if record else []))


@resolver
def compute(run: ReportedRun) -> Answer | NotRecorded:
    record = run.pinned.record
    if record is None:
        return NotRecorded(where=NO_RECIPE)
    machine = record.hardware
    used = f"{words.count(machine.threads, 'thread')}, {words.count(machine.world_size, 'process', 'processes')}"
    text = f"{record.steps:,} steps of batch {record.batch_size:,} in {record.precision} on {machine.name} ({used})"
    result = _result(run)
    if isinstance(result, NotRecorded) or result.flops is None:
        return bound(run, text, "recipe", steps=True, lacks=f"{FLOPS}: none are counted, and none are estimated")
    counted = f"{result.flops.total:.4g} floating-point operations"
    if result.utilisation is not None:
        counted += f", {result.utilisation:.1%} of the peak of its device ({result.flops.peak_source})"
    text += f"; {counted}, according to {rundir.RESULT}"
    return bound(run, text, "recipe", steps=True, lacks=f"{FLOPS} {UNBOUND}")


@resolver
def energy(run: ReportedRun) -> Answer | NotRecorded:
    result = _result(run)
    if isinstance(result, NotRecorded):
        return result
    if result.energy is None:
        return NotRecorded(where="a measurement of energy: none is made, and none is estimated from time")
    if result.energy_kwh is None:
        return NotRecorded(where=f"a measurement of energy. Not measured: {result.energy.missing}")
    text = (
        f"{words.energy(result.energy_kwh)} for {result.steps:,} optimiser steps, from {result.energy.steps:,} that"
        f" were measured ({result.energy.source}), according to {rundir.RESULT}"
    )
    return Answer(
        text=text, references=(run.steps,), lacks=f"an energy {UNBOUND}; that of evaluations, and around the device"
    )


def _result(run: ReportedRun) -> ResultRecord | NotRecorded:
    """Return the result of the run, which its ledger does not bind."""
    try:
        result = run_files.read(ResultRecord, run.ledger.run / rundir.RESULT)
    except RunError:
        return NotRecorded(where=f"{rundir.RESULT} next to the ledger, which is missing or cannot be read")
    if result.run_id != run.run_id:
        return NotRecorded(where=f"{rundir.RESULT} next to the ledger, which belongs to another run")
    return result


@resolver
def training_time(run: ReportedRun) -> Answer | NotRecorded:
    result = _result(run)
    if isinstance(result, NotRecorded):
        return result
    shared = ", while other runs shared the machine" if result.contended else ""
    spent = result.timings
    text = (
        f"{words.seconds(spent.training())} for {result.timed_steps:,} optimiser steps, "
        f"{words.seconds(spent.warmup)} for the first ones, {words.seconds(spent.evaluation)} for evaluation, "
        f"according to {rundir.RESULT}{shared}"
    )
    return Answer(text=text, references=(run.steps,))


@resolver
def evaluation(run: ReportedRun) -> Answer | NotRecorded:
    metrics = run.of(IntegritySection).metrics
    if metrics.reference is None or not metrics.values:
        return NotRecorded(where="the last entry, which has no evaluation")
    values = "; ".join(f"{name} {value}" for name, value in metrics.values.items())
    return Answer(text=f"last evaluation: {values}", references=(metrics.reference,))


@resolver
def validation(run: ReportedRun) -> Answer | NotRecorded:
    metrics, observations = run.of(IntegritySection).metrics, _history(run).observations
    if metrics.reference is None:
        return NotRecorded(where="the last entry, which the ledger of an unfinished run does not have")
    values = "; ".join(f"{name} {value}" for name, value in metrics.values.items()) or "no metric"
    observed = [f"{line.role} in {line.reference}" for line in observations]
    seen = f"; observed by {', '.join(observed)}" if observed else ""
    references = (metrics.reference, *(line.reference for line in observations))
    return Answer(text=f"last evaluation: {values}{seen}", references=references)


@resolver
def update_mass(run: ReportedRun) -> Answer | NotRecorded:
    where = "the sum of the lengths of each class's part of the updates, which steps do not record"
    shares = ", ".join(f"{line.path} {line.share:.2%}" for line in run.classes if line.share is not None)
    if not shares:
        return NotRecorded(where=where)
    estimated = estimates(run.ledger, run.opened.steps)
    more = f". {estimated.rstrip('.')}" if estimated else ""
    return Answer(text=f"shares of the summed gradient: {shares}{more}", references=(run.steps,), lacks=where)


@resolver
def update_share(run: ReportedRun) -> Answer | NotRecorded:
    """List the share of each class in the update itself, in the layers whose updates the run split exactly."""
    layers = {
        line.layer: [f"{cell.class_} {cell.update_share:.1%}" for cell in line.cells if cell.update_share is not None]
        for line in run.of(SharesSection).layers
    }
    split = [f"{layer}: {', '.join(classes)}" for layer, classes in layers.items() if classes]
    if not split:
        return NotRecorded(where="the numbers of a run whose recipe measures exact contributions, unlike this one's")
    more = f"; and {words.count(len(split) - MOST, 'layer')} more" if len(split) > MOST else ""
    return Answer(text=f"{'; '.join(split[:MOST])}{more}", references=(run.steps,))


@resolver
def denied(run: ReportedRun) -> Answer:
    counts = run.of(SharesSection).counts
    classes = ", ".join(f"{line.class_} {line.denied:,} of {line.examples:,}" for line in counts if line.denied)
    return Answer(text=f"examples in batches, admitted by no layer: {classes or 'none'}", references=(run.steps,))


@resolver
def quarantined(run: ReportedRun) -> Answer:
    slots = words.count(run.quarantined, "slot")
    return Answer(text=f"{slots} with examples that no trusted authority vouches for", references=(run.steps,))


@resolver
def entropy(run: ReportedRun) -> Answer | NotRecorded:
    profiles = run.of(EntropySection).profiles
    if profiles.reference is None:
        return NotRecorded(where="profile entries, which the recipe does not ask for")
    measured = [line for line in profiles.layers if line.last.chi is not None and line.last.chi_null is not None]
    if not measured:
        return NotRecorded(where=f"their blobs, which are {Missing.SEALED}" if run.confidential else "their blobs")
    layers = [
        f"{line.layer}: {f'told apart {line.last.told.words}; ' if line.last.told else ''}chi above chance "
        f"{(line.last.chi or 0) - (line.last.chi_null or 0):.3g} nats (p {line.last.p_value:.2g}); entropy "
        f"{line.first.entropy:.3g} to {line.last.entropy:.3g} nats, not centred"
        for line in measured[-MOST:]
    ]
    # The layers nearest to the output are named; the report's table has all of them.
    more = f"the last {MOST} of {len(measured)} layers: " if len(measured) > MOST else ""
    return Answer(text=f"{more}{'; '.join(layers)}", references=(profiles.reference,))


@resolver
def explained(run: ReportedRun) -> Answer | NotRecorded:
    """Describe how the model came to be. How it treats an input is not on record."""
    if all(line.share is None for line in run.classes):
        return NotRecorded(where="numbers of the steps, which were not measured, are sealed, or are missing")
    profiles = run.of(EntropySection).profiles
    depth = f"; entropy profiles of {len(profiles.layers)} layers" if profiles.layers else ""
    cited = [profiles.reference] if profiles.reference and profiles.layers else []
    return Answer(text=f"{run.of(HeadSection).answer.removesuffix('.')}{depth}", references=(run.steps, *cited))


# --- the record: ledger, signatures, policy ---


@resolver
def inventory(run: ReportedRun) -> Answer:
    text = f"run {run.run_id}, ledger {run.of(IntegritySection).facts['Ledger']}"
    return Answer(text=text, references=(run.whole,))


@resolver
def logs(run: ReportedRun) -> Answer:
    """Describe the signed ledger; entries hold no time, cosignatures do."""
    cosigned, ledger = run.opened.badge.cosigned_by, run.of(IntegritySection).facts["Ledger"]
    text = f"{ledger}; {integrity_words(run).title.lower()}; cosigned: {', '.join(cosigned) or 'no'}"
    lacks = "" if cosigned else "a date: entries hold none, and no trusted cosignature dates the ledger"
    return Answer(text=text, references=(run.whole,), lacks=lacks)


@resolver
def security(run: ReportedRun) -> Answer:
    text = "an append-only Merkle log with signed checkpoints, which bind blobs and documents by digest"
    return Answer(text=f"{text}; {run.confidential}" if run.confidential else text, references=(run.whole,))


@resolver
def record_keeping(run: ReportedRun) -> Answer:
    decisions = len(run.of(PolicySection).decisions)
    steps = f"{len(run.opened.recorded):,} steps, {decisions} decisions"
    text = f"{steps} and the states between them, written during the run"
    return Answer(text=text, references=(run.whole,))


@resolver
def accountability(run: ReportedRun) -> Answer:
    outcomes = ", ".join(f"{condition.name}: {condition.outcome}" for condition in run.conformance.conditions)
    return Answer(text=f"{integrity_words(run).title}; {outcomes}", references=(run.whole,))


@resolver
def known_limits(run: ReportedRun) -> Answer:
    conditions = run.conformance.conditions
    limits = [note for condition in conditions for note in condition.notes]
    for condition in conditions:
        limits += [f"{condition.name} cannot be told: {finding.message}" for finding in condition.untold]
    for condition in conditions:
        limits += [f"{condition.name}: {finding.message}" for finding in condition.contradictions]
    text = "; ".join(limits) or "everything that was checked could be read"
    general = "the end of the report lists what no record of this kind shows"
    return Answer(text=f"{text}; {general}", references=(run.whole,))


@resolver
def roles(run: ReportedRun) -> Answer | NotRecorded:
    trust = run.of(VouchersSection).trust
    if not trust.keys:
        return NotRecorded(where=NO_TRUST)
    holders: dict[str, set[str]] = {}
    for line in trust.keys:
        holders.setdefault(line.role, set()).add(line.authority)
    text = "; ".join(f"{role}: {', '.join(sorted(names))}" for role, names in sorted(holders.items()))
    return bound(run, f"{text}; quorum for {'; for '.join(trust.quorum)}", "trust file")


@resolver
def quorum(run: ReportedRun) -> Answer | NotRecorded:
    trust = run.of(VouchersSection).trust
    if not trust.quorum:
        return NotRecorded(where=NO_TRUST)
    cosigned = ", ".join(run.opened.badge.cosigned_by) or "no witness that the reader trusts"
    answer = bound(run, f"for {'; for '.join(trust.quorum)}; cosigned by {cosigned}", "trust file")
    return replace(answer, references=(GENESIS, run.whole))


@resolver
def key_rotations(run: ReportedRun) -> Answer | NotRecorded:
    trust = run.of(VouchersSection).trust
    if not trust.keys:
        return NotRecorded(where=NO_TRUST)
    changes = [
        f"{line.authority}: key {line.key[:16]} {f'revoked {line.revoked}' if line.revoked else 'took over'} "
        f"({line.not_before} to {line.not_after})"
        for line in trust.keys
        if line.rotated or line.revoked
    ]
    text = "; ".join(changes) or f"none among {words.count(len(trust.keys), 'key')}"
    return bound(run, text, "trust file", lacks="" if trust.since is not None else "what came after")


@resolver
def oversight(run: ReportedRun) -> Answer | NotRecorded:
    """Name the people who signed the policy before the run began, and count the run's own decisions."""
    record = run.of(PolicySection)
    if not record.policy:
        return NotRecorded(where="a policy that people have signed: the run had none, or it is not trusted")
    signed = next((line.signed_by for line in run.of(VouchersSection).vouchers if line.what == "policy"), ())
    decisions = f"{len(record.decisions)} decisions on record"
    answer = bound(run, f"policy {record.policy.name}, signed by {'; '.join(signed)}; {decisions}", "policy")
    return replace(answer, references=(GENESIS, run.whole))


@resolver
def policy_versions(run: ReportedRun) -> Answer | NotRecorded:
    policy = run.of(PolicySection).policy
    if not policy or not has(run, "policy"):
        return NotRecorded(where="a policy: the run had none, or it is not trusted")
    return bound(run, f"{policy.name}, throughout: a run has one policy from its first entry on", "policy")


@resolver
def policy_activations(run: ReportedRun) -> Answer | NotRecorded:
    record = run.of(PolicySection)
    if not record.policy or not record.policy.phases:
        return NotRecorded(where="tables of weights in force, which the steps of a run with a policy name")
    phases, switched = record.policy.phases, [line for line in record.decisions if line.action == "activation"]
    moments = [f"{phase.phase or 'all steps'} from step {phase.first:,}" for phase in phases]
    moments += [f"{line.about} at step {line.step:,}, by {line.decided_by}" for line in switched]
    references = (*(phase.reference for phase in phases), *(line.reference for line in switched))
    return Answer(text="; ".join(moments), references=references)


@resolver
def channels(run: ReportedRun) -> Answer:
    ways = run.of(PolicySection).channels.recorded
    return Answer(
        text="; ".join(f"{way.where}: {way.words}" for way in ways) or "none is on record",
        references=_unique(run.whole, *(way.reference for way in ways)),
        lacks="; ".join(UNRECORDED),
    )


def _unique(*references: Reference) -> tuple[Reference, ...]:
    return tuple(dict.fromkeys(references))


@resolver
def replay_coverage(run: ReportedRun) -> Answer | NotRecorded:
    replay = run.of(ReplaySection).replay
    if run.states is None:
        return NotRecorded(where="state entries, of which there is none yet")
    starts = ", ".join(f"{step:,}" for step in replay.starts) or "none"
    text = (
        f"{replay.states} recorded states cover steps {replay.begins:,} to {replay.begins + replay.covered:,}; "
        f"a replay can begin after steps: {starts}"
    )
    return Answer(text=text, references=(run.states,))


# --- after the run: deletions, one by one, and observations ---


def _history(run: ReportedRun) -> History:
    return run.of(HistorySection).history


def _of_deletions(run: ReportedRun, say: Callable[[DeletionLine], str | None]) -> Answer | NotRecorded:
    """Join the answers of `say` about all deletions. It returns None where a deletion has no answer."""
    history = _history(run)
    # Three different absences: the ledger is unknown, it has no deletion, or no certificate answers the question.
    if not history.deletions:
        none = f"{history.unknown}; without it, deletions are unknown" if history.unknown else ""
        return NotRecorded(where=none or "the project's ledger, which has no deletion from this run")
    said = [(line, text) for line in history.deletions if (text := say(line)) is not None]
    if not said:
        named = any(line.certificate for line in history.deletions)
        why = "which does not name it" if named else "which is missing or not trusted"
        return NotRecorded(where=f"the certificate of a deletion, {why}")
    return Answer(
        text="; ".join(f"{line.target}: {text}" for line, text in said),
        references=_unique(*(line.reference for line, _ in said if line.reference)),
        documents=tuple(
            Document(what="certificate of a deletion", digest=line.digest) for line, _ in said if line.digest
        ),
    )


DELETION: dict[str, Callable[[DeletionLine], str | None]] = {
    "request": lambda line: (
        f"commitment {line.certificate.request}" if line.certificate and line.certificate.request else None
    ),
    "scope": lambda line: f"from {line.other}" if line.is_result else "from this run",
    "action": lambda line: (
        f"{line.level}{', this run is the result' if line.is_result else ''}."
        f"{f' {line.certificate.means}' if line.certificate else ''}"
    ),
    "evidence": lambda line: line.digest and f"certificate sha256:{line.digest}",
    "date": lambda line: line.certificate and f"certified {line.certificate.issued}, by the signer's own word",
}
"""Questions about a deletion, and the functions that answer them for one; None: it has no answer."""


@resolver
def deletion(run: ReportedRun, asked: str) -> Answer | NotRecorded:
    """Answer a question about every deletion, from `DELETION`."""
    return _of_deletions(run, DELETION[asked])


@resolver
def to_destroy(run: ReportedRun, *kinds: str) -> Answer | NotRecorded:
    """List the files of these kinds that the signers list for destruction."""

    def say(line: DeletionLine) -> str | None:
        listed = line.certificate.to_destroy if line.certificate else {}
        counts = [f"{listed[kind]} {kind}" for kind in kinds if kind in listed]
        return f"to be destroyed by those who keep them, as the signer lists: {', '.join(counts)}" if counts else None

    return _of_deletions(run, say)


@resolver
def not_reached(run: ReportedRun, *phrases: str) -> Answer | NotRecorded:
    """Quote the signers on what a deletion did not reach, where a statement has one of these phrases."""

    def say(line: DeletionLine) -> str | None:
        listed = line.certificate.not_reached if line.certificate else ()
        mine = [place for place in listed if any(phrase in place for phrase in phrases)]
        return f"not reached, as the signer says: {' / '.join(mine)}" if mine else None

    return _of_deletions(run, say)


@resolver
def deletion_history(run: ReportedRun) -> Answer | NotRecorded:
    history = _history(run)
    if history.unknown and not history.deletions:
        return NotRecorded(where=history.unknown)
    made = [
        f"{line.target} at {line.level}{', with this run as result' * line.is_result}" for line in history.deletions
    ]
    references = (line.reference for line in history.deletions if line.reference)
    judged = f" (the project's ledger: {history.judged})" if history.judged else ""
    return Answer(text=f"{'; '.join(made) or 'none on record'}{judged}", references=(GENESIS, *references))


@resolver
def observations(run: ReportedRun) -> Answer | NotRecorded:
    lines = _history(run).observations
    if not lines:
        return NotRecorded(where="observations of the model in the project's ledger")
    text = "; ".join(f"{line.role}, statement {line.statement[:16]}" for line in lines)
    return Answer(text=text, references=tuple(line.reference for line in lines))
