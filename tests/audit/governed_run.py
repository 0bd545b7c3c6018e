"""Whole governed runs without training, through the real documents and the real journal, and ledgers that lie.

Three classes and four layers. `licensed/news` may train the upper half from the second third on, `open` everything at
half weight, `open/mit` everything. Forty-two rows, two of them tagged as quarantine; eight slots a step. The numbers
follow from the step; whoever wants a liar changes entries and blobs, and signs them again.
"""

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from explorer import rundir
from explorer.canonical import digest
from explorer.data.digits import Digits
from explorer.entries.entropy_profile import LayerProfiles
from explorer.entries.fields import Blob
from explorer.entries.kinds import Decision, Entry, Genesis, Sources, State, TrainingState, decode, encode
from explorer.entries.numbers import Floats, StepNumbers, diagonal
from explorer.governance import METHODS
from explorer.governance.journal import Journal
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory, write_blob
from explorer.note import Algorithm, Signer
from explorer.provenance.envelope import parse_envelope, write_envelope
from explorer.provenance.policy import FORMAT, POLICY, Quarantine, RoutingPolicy, Rule, TaxonomyReference
from explorer.provenance.regions import depths_of
from explorer.provenance.routing_weights import Admission, Admissions, Routing, bind, confidential
from explorer.provenance.signing import sign_document
from explorer.provenance.taxonomy import TAXONOMY as TAXONOMY_KIND
from explorer.provenance.trust import Role, Trust, write_trust
from explorer.run_files import RunRecord
from explorer.runlog.anchor import DELEGATION
from explorer.runlog.tensors import Tensors
from tests import tensors_for_tests as models
from tests.builders import run_record, with_identity, write_run
from tests.provenance import people, tables
from tests.provenance.people import EXPIRES, GOVERNANCE, ISSUED, NOW, RISK, private, public
from tests.provenance.tables import TAXONOMY

FAR = "2090-01-01T00:00:00Z"
TRAINER = "example.com/trainer"
CLASSES = ("licensed/news", "open", "open/mit")
LAYERS = ("embed", "body.0", "body.1", "head")
ROWS = 42
SLOTS = 8
STEPS = 12
EVERY = 5
RECORDED = ("routing", "contributions", "recorder")
METRICS = {"accuracy": 0.9, "nll": 0.3}

NEWS, OPEN, MIT = CLASSES
ROW_CLASSES = tuple("quarantine" if row % 20 == 19 else CLASSES[row % 3] for row in range(ROWS))


def signer(run: Path, seed: str = TRAINER) -> Signer:
    return Signer(name=f"example.com/{run.name}", algorithm=Algorithm.ED25519, private_key=private(seed))


def trust() -> Trust:
    """All three of them sign; the trainer's key is good for long, since commands ask the real clock."""
    trainer = people.authority(TRAINER, Role.TRAINER, public(TRAINER, not_after=FAR))
    made = people.trust(people.governance(), people.risk(), trainer)
    return replace(made, quorum=replace(made.quorum, checkpoints={Role.TRAINER: 1}))


def policy(*rules: Rule, conditions: tuple[str, ...] = ()) -> RoutingPolicy:
    usual = (
        Rule(classes=(NEWS,), depth=(0.5, 1.0), progress=(0.3334, 1.0), weight=1.0),
        Rule(classes=(MIT,), weight=1.0),
        Rule(classes=(OPEN,), weight=0.5),
    )
    return RoutingPolicy(
        format=FORMAT,
        name="half-depth",
        version=1,
        issued=ISSUED,
        expires=EXPIRES,
        taxonomy=TaxonomyReference(name=TAXONOMY.name, version=TAXONOMY.version, digest=TAXONOMY.digest),
        quarantine=Quarantine.WEIGHT_ZERO,
        conditions=conditions,
        rules=rules or usual,
    )


def routing(*rules: Rule) -> Routing:
    return bind(policy(*rules), TAXONOMY, where="policy")


USUAL = policy()


def state(step: int, layers: Sequence[str] = LAYERS) -> TrainingState:
    return models.state(layers, step)


def rows_of(step: int) -> np.ndarray:
    return np.random.default_rng(step).permutation(ROWS)[:SLOTS]


def counts_of(rows: np.ndarray) -> tuple[tuple[int, ...], int]:
    """Examples of each class, and in quarantine."""
    found = [ROW_CLASSES[row] for row in rows.tolist()]
    return tuple(found.count(path) for path in CLASSES), found.count("quarantine")


def numbers_of(step: int, admission: Admission, *, exact: bool) -> StepNumbers:
    """Numbers of gradients of seven parameters a layer, under plain descent."""
    examples, _ = counts_of(rows_of(step))
    classes = tuple(at for at in range(len(CLASSES)) if examples[at] and admission.weights[at].any())
    weights = admission.weights[list(classes)].astype(np.float32)
    gradients = (
        np.random.default_rng(step).normal(size=(len(classes), len(admission.layers), 7)) * (weights > 0)[:, :, None]
    )
    norms = np.linalg.norm(gradients, axis=2).astype(np.float32)
    weighted = gradients * weights[:, :, None]
    gram = np.einsum("cle,dle->lcd", weighted, weighted).astype(np.float32)
    gram = np.triu(gram) + np.triu(gram, 1).transpose(0, 2, 1)
    gram[:, range(len(classes)), range(len(classes))] = diagonal(weights, norms).T
    update = -0.1 * weighted.sum(0)
    return StepNumbers(
        classes=classes,
        weights=weights,
        norms=norms,
        dots=np.einsum("cle,le->cl", weighted, update).astype(np.float32),
        gram=gram,
        updates=np.square(update).sum(1).astype(np.float32),
        exact=np.einsum("cle,le->cl", -0.1 * weighted, update).astype(np.float32) if exact else None,
    )


def sketches_of(numbers: StepNumbers) -> Floats:
    """As long as the gradients."""
    return np.repeat(numbers.weights[:, :, None] * numbers.norms[:, :, None] / np.float32(8), 64, axis=2)


def write_documents(run: Path, policy: RoutingPolicy) -> tuple[Genesis, np.ndarray]:
    """The signed documents of a run as it keeps them, and the genesis that names them; the leaves of its tags."""
    directory, believed = run / rundir.GOVERNANCE, trust()
    directory.mkdir(parents=True)
    write_trust(directory / "trust.json", believed)
    tree = sign_document(TAXONOMY, TAXONOMY_KIND, [private(GOVERNANCE)], trust=believed, now=NOW, where="taxonomy")
    write_envelope(directory / "taxonomy.json", tree)
    rules = sign_document(policy, POLICY, [private(RISK)], trust=believed, now=NOW, where="policy")
    write_envelope(directory / "policy.json", rules)
    path = directory / "tags.parquet"
    rows = (tables.row(number, path, f"source {number % 4} 1.0") for number, path in enumerate(ROW_CLASSES))
    tables.write_table(path, rows)
    attestation = tables.signed(path, trust=believed)
    write_envelope(directory / "tags.json", attestation)
    rundir.write_json(directory / "source.json", {"private": str(run.parent), "judged": NOW})
    tags = tables.verified(path, attestation, trust=believed)
    some = "a" * 64
    genesis = Genesis(
        run=run.name,
        recipe=some,
        code=some,
        environment=write_environment(run),
        data=some,
        tags={"train": Sources(root=tags.root, attestation=tags.attestation)},
        taxonomy=TAXONOMY.digest,
        policy=policy.digest,
        trust=believed.digest,
        judged=NOW,
        strategy="microbatch",
        seed=0,
        initial=some,
        classes=CLASSES,
        layers=LAYERS,
        begins=0,
        start=None,
        parents=(),
        blobs={},
        methods={name: METHODS[name].traits for name in RECORDED},
        fitted=dict(Digits.fitted),
    )
    return genesis, tags.tags.leaves


def write_governed_run(
    runs: Path,
    *,
    steps: int = STEPS,
    every: int = EVERY,
    exact: bool = False,
    exact_every: int = 1,
    finished: bool = True,
    layers: tuple[str, ...] = LAYERS,
    policy: RoutingPolicy = USUAL,
    on: Mapping[str, int] | None = None,
    losses: Mapping[int, Floats] | None = None,
    moves: Callable[[Sequence[str], int], Tensors] = models.tensors,
    delegation: bytes | None = None,
    by: Signer | None = None,
) -> Path:
    """A governed run of the sweep `digits`, trained by nobody. `on`: conditions, and the step that switches them on.
    `losses`: of the examples of `open/mit` in steps that train on the hardest half of them. `moves`: the tensors of the
    layers after so many steps. `exact_every`: how often numbers count as exact. `delegation`: the statement that lets
    `by` sign the ledger in the trainer's place."""
    record = record_of(steps, exact_every)
    run = write_run(runs, record, metrics=METRICS)
    genesis, leaves = write_documents(run, policy)
    begins = moves(layers, 0)
    first = Blob(sha256=hashlib.sha256(begins.content).hexdigest(), size=len(begins.content))
    recipe = digest(record.identity)
    genesis = replace(genesis, recipe=recipe, layers=layers, initial=begins.roots[0], blobs={"tensors": first})
    if delegation is not None:
        payload = parse_envelope(delegation, where="delegation").payload
        named = Blob(sha256=hashlib.sha256(delegation).hexdigest(), size=len(delegation))
        genesis = replace(
            genesis, delegation=hashlib.sha256(payload).hexdigest(), blobs={**genesis.blobs, DELEGATION: named}
        )

    def close(step: int) -> None:
        parameters, buffers, optimizer = moves(layers, step).roots
        reached = replace(state(step, layers), parameters=parameters, buffers=buffers, optimizer=optimizer)
        journal.segment(step, reached, tensors=moves(layers, step))

    routing = bind(policy, TAXONOMY, where="policy")
    tables_ = Admissions(routing, classes=CLASSES, layers=depths_of(layers))
    sealed = confidential(routing, CLASSES)
    signs = by or signer(run)
    with Journal.open(run, genesis=genesis, signer=signs, leaves=leaves, confidential=sealed) as journal:
        for content in filter(None, (begins.content, delegation)):
            write_blob(journal.directory, content)
        journal.begin(0, state(0, layers))
        for step in range(steps):
            if step % max(6, steps // 10) == 3:
                journal.profile(profile_of(step, len(layers)))
                decide(journal, step, action="freeze" if policy is USUAL else "override")
            switched = [name for name, at in (on or {}).items() if at <= step]
            for condition in (name for name, at in (on or {}).items() if at == step):
                decide(journal, step, action="activation", condition=condition)
            if losses and step in losses:
                choose(journal, step, MIT, losses[step])
            admission, rows = tables_.at(step / steps, switched), rows_of(step)
            examples, quarantined = counts_of(rows)
            numbers = numbers_of(step, admission, exact=exact)
            journal.step(
                step,
                rows=rows,
                examples=examples,
                quarantined=quarantined,
                updated=[bool(weights.any()) for weights in numbers.weights.T],
                admission=admission,
                numbers=numbers,
                sketches=sketches_of(numbers),
                estimated=step % exact_every != 0,
            )
            if (step + 1) % every == 0:
                close(step + 1)
        if finished:
            if not journal.settled:
                close(steps)
            last = moves(layers, steps)
            roots = dict(zip(("parameters", "buffers", "optimizer"), last.roots, strict=True))
            journal.end(steps, replace(state(steps, layers), **roots), tensors=last, metrics=METRICS)
            if moves is models.tensors:
                models.write_model(run, layers, steps)
    return run


def profile_of(step: int, layers: int = len(LAYERS)) -> LayerProfiles:
    spectra = np.full((3, layers, 3), 0.5 + step) + np.arange(3.0)[:, None, None]  # no two blobs are the same
    joint = np.tile([1.5, 4.0, 1.2, 0.5, 0.1, 0.02], (layers, 1))
    return LayerProfiles(
        step=step, probes="b" * 64, classes=(0, 1, 2), examples=(4, 4, 4), spectra=spectra, joint=joint
    )


def choose(journal: Journal, step: int, path: str, losses: Floats) -> None:
    """The half with the largest losses trains."""
    journal.decision(
        step,
        action="selection",
        rule="largest-losses",
        parameters={"keep": 0.5},
        subjects=(path,),
        layers=(),
        evidence={path: losses.astype("<f4").tobytes()},
    )


def record_of(steps: int, exact_every: int = 1) -> RunRecord:
    """What the run is, and what its model is built of."""
    made = run_record(recipe="governed", full_steps=steps, methods=RECORDED)
    recipe = {**made.identity["recipe"], "task": {"dataset": {"source": {}}, "model": models.BUILT}}
    if exact_every > 1:
        recipe["methods"] = [{name: {"every": exact_every} if name == "contributions" else {}} for name in RECORDED]
    identity = {**made.identity, "recipe": recipe}
    run_id = f"{made.run_id[:-8]}{digest(identity)[:8]}"
    return replace(with_identity(made, identity), run_id=run_id, batch_size=SLOTS)


def write_environment(run: Path) -> str:
    """The file, and its digest."""
    rundir.write_json(run / rundir.ENVIRONMENT, {"format": 1, "training_code": "a" * 64})
    return hashlib.sha256((run / rundir.ENVIRONMENT).read_bytes()).hexdigest()


def decide(journal: Journal, step: int, *, action: str = "freeze", condition: str | None = None) -> None:
    journal.decision(
        step,
        action=action,
        rule="entropy-settled",
        parameters={"tolerance": 0.01},
        subjects=(NEWS,),
        layers=journal.genesis.layers[:1],  # which the usual policy denies it
        evidence={NEWS: b"%d" % step},
        condition=condition,
    )


Change = Callable[[int, Entry], Entry | None]


def sign_again(run: Path, change: Change, *, seed: str = TRAINER) -> None:
    """Write the ledger anew, every entry as `change` gives it (None: left out), with the trainer's own signature."""
    directory = run / rundir.LEDGER
    leaves = list(LedgerDirectory(directory).entries())
    entries = (change(index, entry) for index, entry in enumerate(map(decode, leaves)))  # pyright: ignore
    changed = [encode(entry) for entry in entries if entry is not None]
    for name in ("checkpoint", "tile"):
        (shutil.rmtree if (directory / name).is_dir() else Path.unlink)(directory / name)
    with Log.create(directory, origin=signer(run).name, signer=signer(run, seed)) as log:
        log.append(changed)


def with_blob(run: Path, entry: Entry, name: str, content: bytes) -> Entry:
    """The entry with another blob of that name, which is there."""
    blob = Blob(sha256=write_blob(run / rundir.LEDGER, content), size=len(content))
    return replace(entry, blobs={**entry.blobs, name: blob})


def rewrite(run: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Write the ledger anew from what `change` makes of its leaves, with the trainer's own signature."""
    directory = run / rundir.LEDGER
    leaves = change(list(LedgerDirectory(directory).entries()))
    for name in ("checkpoint", "tile"):
        (shutil.rmtree if (directory / name).is_dir() else Path.unlink)(directory / name)
    with Log.create(directory, origin=signer(run).name, signer=signer(run)) as log:
        log.append(leaves)


def again(step: int) -> bytes:
    """The entry that takes back this step and all behind it."""
    decision = Decision(
        step=step, action="re-execution", rule="other-bits", parameters={}, condition=None,
        subjects=(), layers=(), evidence={}, blobs={},
    )  # fmt: skip
    return encode(decision)


def executed_again(leaves: list[bytes], first: Callable[[Entry], Entry], *, closed: bool = True) -> list[bytes]:
    """Steps 5 to 9 twice: first as `first` makes them, then as they were."""
    entries = [decode(leaf) for leaf in leaves]
    begins = next(i for i, e in enumerate(entries) if isinstance(e, State) and e.step == 5) + 1
    ends = next(i for i, e in enumerate(entries) if isinstance(e, State) and e.step == 10) + 1
    before = [encode(first(entry)) for entry in entries[begins : ends - (not closed)]]  # pyright: ignore
    return [*leaves[:begins], *before, again(5), *leaves[begins:]]
