"""A made-up governed run for tests of what reads ledgers: five classes, a GPT of three blocks, nothing trained.

Everything beside the numbers is real: documents signed by everybody who has to, tags, ledger, commitments, spool. Of
its classes one trains everywhere, one half as strongly, one late and above the middle, one in its own sealed region
alone, and one nowhere. Some examples nobody vouches for.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.data.digits import Digits
from explorer.entries.entropy_profile import LayerProfiles, joint_row
from explorer.entries.fields import Blob
from explorer.entries.kinds import Genesis, Sources
from explorer.entries.numbers import Floats, StepNumbers, diagonal
from explorer.governance import METHODS
from explorer.governance.journal import Journal
from explorer.ledger.storage import write_blob
from explorer.note import Algorithm, Signer
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import FORMAT, POLICY, Quarantine, RoutingPolicy, Rule, TaxonomyReference
from explorer.provenance.regions import ADAPTER, SealedRegion, depths_of, with_adapters
from explorer.provenance.routing_weights import Admission, Admissions, bind, confidential
from explorer.provenance.signing import Kind, sign_document
from explorer.provenance.tag_attestation import attest, verify_tags
from explorer.provenance.tags_file import Row, write_table
from explorer.provenance.taxonomy import FORMAT as TAXONOMY_FORMAT
from explorer.provenance.taxonomy import TAXONOMY, Source, Taxonomy, TaxonomyClass
from explorer.provenance.trust import Role, Trust, write_trust
from tests.audit.governed_run import RECORDED, write_environment
from tests.builders import run_record
from tests.provenance import people
from tests.provenance.people import EXPIRES, GOVERNANCE, ISSUED, NOW, RISK, YEAR_BEGINS, YEAR_ENDS, private
from tests.provenance.tables import DESCRIPTION, commitment
from tests.tensors_for_tests import state, tensors, write_model

TRAINER = "example.com/trainer"
CLASSES = ("open/apache", "open/bsd", "open/mit", "personal/customer", "withheld")
BLOCK = ("norm1", "attention.qkv", "attention.out", "norm2", "mlp.up", "mlp.down")
LAYERS = ("token", "position", *(f"blocks.{at}.{name}" for at in range(3) for name in BLOCK), "norm")
STEPS, EVERY, BATCH = 48, 12, 32
ROWS = 200
LATE = 1 / 3  # of training, when open/bsd is admitted

SIMULATED = tuple(f"simulated/class-{number:02d}" for number in range(5))


class Sample:
    """What is recorded. `classes` stand in the order of their roles above; `layers` are the model's."""

    def __init__(
        self,
        classes: tuple[str, ...] = CLASSES,
        layers: tuple[str, ...] = LAYERS,
        *,
        confidential: tuple[str, ...] = (),
    ) -> None:
        self.classes = classes
        self.taxonomy = _taxonomy(classes)
        self.trust = _trust(classes)
        self.policy = replace(_policy(classes, self.taxonomy), confidential=confidential)
        self.layers = with_adapters(self.policy.sealed, depths_of(layers))
        self.routing = bind(self.policy, self.taxonomy, where="policy.json")
        self.admissions = Admissions(self.routing, classes=classes, layers=self.layers)
        self.own = np.random.default_rng(3).normal(size=(len(classes), len(self.layers), 24))

    def admission(self, step: int) -> Admission:
        return self.admissions.at(step / STEPS)

    def examples(self, step: int) -> tuple[int, ...]:
        return (9, 6 + step % 2, 8, 5 - step % 2, 3)

    def rows(self, step: int) -> np.ndarray:
        """Rows of the tag table, in which the classes and the quarantine take turns: so many of each, mixed."""
        chance, kinds = np.random.default_rng(step), len(self.classes) + 1
        counts = (*self.examples(step), BATCH - sum(self.examples(step)))
        own = [chance.choice(np.arange(kind, ROWS, kinds), count, replace=False) for kind, count in enumerate(counts)]
        return chance.permutation(np.concatenate(own))

    def gradients(self, step: int) -> np.ndarray:
        """Unweighted, C L 24: what the classes have in common, what is their own, and chance."""
        chance = np.random.default_rng(step)
        common = np.random.default_rng(99).normal(size=(len(self.layers), 24))
        size = 1.0 / (1 + step / 20)
        return size * (common + 0.8 * self.own + 0.7 * chance.normal(size=self.own.shape))

    def numbers(self, step: int) -> tuple[StepNumbers, Floats]:
        """The numbers of a step and the sketches of its classes."""
        table = self.admission(step).weights
        classes = tuple(index for index in range(len(self.classes)) if table[index].any())
        weights = table[list(classes)].astype(np.float32)
        gradients = self.gradients(step)[list(classes)]
        weighted = gradients * weights[:, :, None]
        norms = np.where(weights > 0, np.linalg.norm(gradients, axis=2), 0).astype(np.float32)
        gram = np.einsum("cle,dle->lcd", weighted, weighted).astype(np.float32)
        gram = np.triu(gram, 1) + np.triu(gram, 1).transpose(0, 2, 1)
        gram[:, range(len(classes)), range(len(classes))] = diagonal(weights, norms).T
        update = -0.1 * weighted.sum(0)
        dots = np.where(weights > 0, np.einsum("cle,le->cl", weighted, update), 0).astype(np.float32)
        numbers = StepNumbers(
            classes=classes,
            weights=weights,
            norms=norms,
            dots=dots,
            gram=gram,
            updates=np.square(update).sum(1).astype(np.float32),
        )
        projection = np.random.default_rng(5).normal(size=(24, 64)) / 8
        return numbers, (weighted @ projection).astype(np.float32)

    def profile(self, step: int) -> LayerProfiles:
        """Deeper layers spread out less and tell the classes apart better, the more so the longer training lasts."""
        depth, done = np.array([layer.depth for layer in self.layers if ADAPTER not in layer.name]), step / STEPS
        entropy = 3.1 - (0.4 + 1.1 * done) * depth + 0.25 * np.sin(9 * depth)
        chi = 0.12 + done * (0.1 + 0.6 * depth)
        chance, p_value = np.full_like(depth, 0.1), 0.5 * np.exp(-20 * done * depth)
        spectrum = np.stack([entropy, np.exp(entropy), entropy * 0.9], 1)
        centred = spectrum + np.array([0.4, 5.0, 0.5])
        numbers = np.stack([*spectrum.T, chi, chance, p_value], 1)
        counts = [_taken_for(4 + round(8 * done * each)) for each in depth]
        rows = zip(numbers, centred, p_value, counts, strict=True)
        joint = np.stack([joint_row(each, less.tolist(), p, table) for each, less, p, table in rows])
        spectra = np.stack([np.hstack([spectrum, centred]) * (0.8 + 0.05 * index) for index in range(4)])
        return LayerProfiles(
            step=step, probes="a" * 64, classes=(0, 1, 2, 3), examples=(16, 16, 16, 8), spectra=spectra, joint=joint
        )


def _taken_for(right: int) -> np.ndarray:
    """What a probe takes 16, 16, 16 and 8 examples for: so many of each class for what they are, at most half of the
    last, and the others for the next class."""
    counts = np.zeros((4, 4), np.int64)
    for c, size in enumerate((16, 16, 16, 8)):
        counts[c, c] = min(right, size) if size == 16 else right // 2
        counts[c, (c + 1) % 4] = size - counts[c, c]
    return counts


def write_governed_run(runs: Path, *, sweep: str = "single", sample: Sample | None = None, steps: int = STEPS) -> Path:
    """Write the run's directory and return it; with fewer steps than all it is unfinished."""
    sample = Sample() if sample is None else sample
    record = run_record(recipe="governed", sweep=sweep, full_steps=STEPS, methods=RECORDED)
    record = replace(record, batch_size=BATCH)
    directory = runs / sweep / record.run_id
    run_files.write(directory / rundir.RUN, record)
    genesis, leaves = _govern(directory, sample, record.run_id)
    genesis = replace(genesis, recipe=digest(record.identity), environment=write_environment(directory))
    signer = Signer(name=f"example.com/{record.run_id}", algorithm=Algorithm.ED25519, private_key=private(TRAINER))
    sealed = confidential(sample.routing, sample.classes)
    names = [layer.name for layer in sample.layers]
    first = write_blob(directory / rundir.LEDGER, tensors(names, 0).content)
    listed = {"tensors": Blob(sha256=first, size=len(tensors(names, 0).content))}
    genesis = replace(genesis, initial=tensors(names, 0).roots[0], blobs=listed)
    with Journal.open(directory, genesis=genesis, signer=signer, leaves=leaves, confidential=sealed) as journal:
        journal.begin(0, state(names, 0))
        for step in range(steps):
            _record_step(journal, sample, step)
        if not journal.settled or not steps:
            journal.segment(steps, state(names, steps), tensors=tensors(names, steps))
        if steps == STEPS:
            journal.profile(sample.profile(steps))
            journal.segment(steps, state(names, steps), tensors=tensors(names, steps))
            journal.end(steps, state(names, steps), tensors=tensors(names, steps), metrics={"bits_per_byte": 2.75})
            write_model(directory, names, steps, sealed=sample.policy.sealed)
    return directory


def _record_step(journal: Journal, sample: Sample, step: int) -> None:
    if step % 16 == 0:
        journal.profile(sample.profile(step))
    if step in (24, 36):
        journal.decision(
            step,
            action="freeze" if step == 24 else "re-open",
            rule="entropy-settled" if step == 24 else "representation-changed",
            parameters={"tolerance": 0.02},
            subjects=(sample.classes[1],),  # which the policy keeps out of the first layer anyway
            layers=(sample.layers[0].name,),
            evidence={sample.classes[2]: b"%d" % step},
        )
    admission, (numbers, sketches) = sample.admission(step), sample.numbers(step)
    journal.step(
        step,
        rows=sample.rows(step),
        examples=sample.examples(step),
        quarantined=BATCH - sum(sample.examples(step)),
        updated=(admission.weights.max(axis=0) > 0).tolist(),
        admission=admission,
        numbers=numbers,
        sketches=sketches,
    )
    if (step + 1) % EVERY == 0:
        names = [layer.name for layer in sample.layers]
        journal.segment(step + 1, state(names, step + 1), tensors=tensors(names, step + 1))


def _govern(directory: Path, sample: Sample, run_id: str) -> tuple[Genesis, np.ndarray]:
    """The public documents of the run, its genesis, and the leaf hashes of the tag table."""
    place = directory / rundir.GOVERNANCE
    place.mkdir()
    write_trust(place / "trust.json", sample.trust)
    documents: list[tuple[str, Any, Kind[Any], str]] = [
        ("taxonomy", sample.taxonomy, TAXONOMY, GOVERNANCE),
        ("policy", sample.policy, POLICY, RISK),
    ]
    for name, value, kind, by in documents:
        signing: Any = {"trust": sample.trust, "now": NOW, "where": name}
        write_envelope(place / f"{name}.json", sign_document(value, kind, [private(by)], **signing))
    paths = [*sample.classes, "quarantine"]
    write_table(
        place / "tags.parquet",
        [Row(commitment(at), paths[at % len(paths)], f"example {at % 7}.0", GOVERNANCE) for at in range(ROWS)],
    )
    believing: Any = {"taxonomy": sample.taxonomy, "trust": sample.trust, "now": NOW}
    envelope = attest(
        place / "tags.parquet",
        description=DESCRIPTION,
        issued=ISSUED,
        expires=EXPIRES,
        keys=[private(GOVERNANCE)],
        **believing,
    )
    write_envelope(place / "tags.json", envelope)
    rundir.write_json(place / "source.json", {"private": str(directory), "judged": NOW})
    tags = verify_tags(place / "tags.parquet", envelope.content, where="tags.json", **believing)
    genesis = Genesis(
        run=run_id,
        recipe="a" * 64,
        code="a" * 64,
        environment="c" * 64,
        data="d" * 64,
        tags={"train": Sources(root=tags.root, attestation=tags.attestation)},
        taxonomy=sample.taxonomy.digest,
        policy=sample.policy.digest,
        trust=sample.trust.digest,
        judged=NOW,
        strategy="microbatch",
        seed=0,
        initial="e" * 64,
        classes=sample.classes,
        layers=tuple(layer.name for layer in sample.layers),
        begins=0,
        start=None,
        parents=(),
        blobs={},
        methods={name: METHODS[name].traits for name in RECORDED},
        fitted=dict(Digits.fitted),
    )
    return genesis, tags.tags.leaves


def _taxonomy(classes: tuple[str, ...]) -> Taxonomy:
    branches = {"/".join(path.split("/")[:end]) for path in classes for end in range(1, path.count("/") + 2)}
    return Taxonomy(
        format=TAXONOMY_FORMAT,
        name="licences",
        version=1,
        issued=YEAR_BEGINS,
        expires=YEAR_ENDS,
        classes=tuple(
            TaxonomyClass(path=path, definition=f"All that is {path}.", personal_data=False, source=Source.PUBLIC)
            for path in sorted(branches)
        ),
    )


def _trust(classes: tuple[str, ...]) -> Trust:
    branches = tuple(sorted({path.split("/")[0] for path in classes}))
    governance = people.authority(GOVERNANCE, Role.DATA_GOVERNANCE, branches=branches)
    trainer = people.authority(TRAINER, Role.TRAINER)
    made = people.trust(governance, people.risk(), trainer)
    return run_files.from_json(
        Trust,
        run_files.to_json(made)
        | {"quorum": {"documents": {"data-governance": 1, "model-risk": 1}, "checkpoints": {"trainer": 1}}},
        where="trust",
    )


def _policy(classes: tuple[str, ...], taxonomy: Taxonomy) -> RoutingPolicy:
    full, late, half, sealed, _ = classes
    return RoutingPolicy(
        format=FORMAT,
        name="half-depth",
        version=1,
        issued=ISSUED,
        expires=EXPIRES,
        taxonomy=TaxonomyReference(name=taxonomy.name, version=taxonomy.version, digest=taxonomy.digest),
        quarantine=Quarantine.WEIGHT_ZERO,
        sealed=(SealedRegion(name="customer", branch=sealed, layers=("blocks.2.mlp.*",), rank=4),),
        rules=(
            Rule(classes=(late,), depth=(0.5, 1), progress=(LATE, 1), weight=1.0),
            Rule(classes=(full,), weight=1.0),
            Rule(classes=(half,), weight=0.5),
        ),
    )
