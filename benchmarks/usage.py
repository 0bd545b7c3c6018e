"""Statements of use for a thousand parties: how long they take to make and to check, and how large a party's file is.

    python benchmarks/usage.py [CLASSES] [STEPS]        writes benchmarks/usage.md

The run is generated and not trained; everything else is real: signed documents, a tag table, a ledger with commitments
and cosigned checkpoints, numbers of 24 layers, and the code that states and checks. Checks are timed in one process,
file by file, and once as a command with its start-up. Sizes are of the files as they are handed out.
"""

import hashlib
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from options import options, verdict, whole
from pages import write_page

from explorer import rundir
from explorer.entries.fields import Blob
from explorer.entries.kinds import End, Entry, Genesis, Sources, State, Step, TrainingState, encode
from explorer.entries.numbers import StepNumbers, diagonal, encode_class, encode_joint
from explorer.entries.slots import encode_slots, slots_root
from explorer.ledger.cosign import cosign
from explorer.ledger.log import Log
from explorer.ledger.storage import write_blob
from explorer.merkle import EMPTY_ROOT
from explorer.note import Algorithm, Signer
from explorer.provenance.commitments import commit
from explorer.provenance.description import Days, Description
from explorer.provenance.encryption import reading_key, salt_of
from explorer.provenance.envelope import write_envelope
from explorer.provenance.keys import public_text, write_key
from explorer.provenance.policy import FORMAT, POLICY, Quarantine, RoutingPolicy, Rule, TaxonomyReference
from explorer.provenance.regions import depths_of
from explorer.provenance.routing_weights import admit, bind
from explorer.provenance.signing import sign_document
from explorer.provenance.spellings import format_time
from explorer.provenance.tag_attestation import attest, verify_tags
from explorer.provenance.tags_file import Row, write_table
from explorer.provenance.taxonomy import FORMAT as TAXONOMY_FORMAT
from explorer.provenance.taxonomy import TAXONOMY, Source, Taxonomy, TaxonomyClass
from explorer.provenance.trust import FORMAT as TRUST_FORMAT
from explorer.provenance.trust import Authority, AuthorityKey, Quorum, Role, Trust, write_trust
from explorer.release.usage_statement import verify_usage
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.run_ledger import RunLedger

ROOT = Path(__file__).resolve().parents[1]
CLASSES, STEPS = 1_000, 400
LAYERS = tuple(f"blocks.{at}.{part}" for at in range(12) for part in ("attention", "mlp"))
EVERY, PRESENT, EACH = 4, 24, 8  # steps of a segment, classes of a batch, examples of each
ROWS = 20  # of the tag table, of each class
NOW = int(time.time())
DAY = 86_400
SINCE, UNTIL = (format_time(NOW + days * DAY) for days in (-200, 2_000))
PEOPLE = {"dg": Role.DATA_GOVERNANCE, "mr": Role.MODEL_RISK, "trainer": Role.TRAINER, "auditor": Role.AUDITOR}
KEYS = {name: Ed25519PrivateKey.generate() for name in PEOPLE}


def name_of(person: str) -> str:
    return f"example.com/{person}"


def trust() -> Trust:
    """Four authorities, of whom the trainer signs the ledger and the others may cosign."""
    authorities = tuple(
        Authority(
            name=name_of(person),
            role=role,
            branches=("part",) if role is Role.DATA_GOVERNANCE else (),
            keys=(AuthorityKey(public_key=public_text(KEYS[person]), not_before=SINCE, not_after=UNTIL),),
        )
        for person, role in PEOPLE.items()
    )
    quorum = Quorum(documents=dict.fromkeys(PEOPLE.values(), 1), checkpoints={Role.TRAINER: 1})
    return Trust(format=TRUST_FORMAT, name="example.com/lab", authorities=authorities, quorum=quorum)


BELIEVED = trust()


def documents(run: Path, classes: Sequence[str]) -> tuple[Genesis, np.ndarray, bytes]:
    """Signed documents of a run in which every class trains everything; its genesis, tag leaves and weights table."""
    place = run / rundir.GOVERNANCE
    place.mkdir(parents=True)
    write_trust(place / "trust.json", BELIEVED)
    taxonomy = Taxonomy(
        format=TAXONOMY_FORMAT,
        name="parts",
        version=1,
        issued=SINCE,
        expires=UNTIL,
        classes=tuple(
            TaxonomyClass(path=path, definition=f"What {path} licenses.", personal_data=False, source=Source.LICENSED)
            for path in ("part", *classes)
        ),
    )
    policy = RoutingPolicy(
        format=FORMAT,
        name="all",
        version=1,
        issued=SINCE,
        expires=UNTIL,
        taxonomy=TaxonomyReference(name=taxonomy.name, version=taxonomy.version, digest=taxonomy.digest),
        quarantine=Quarantine.REFUSE,
        rules=(Rule(classes=("part",), weight=1.0),),
    )
    signing: dict[str, Any] = {"trust": BELIEVED, "now": NOW}
    for name, value, kind, by in (("taxonomy", taxonomy, TAXONOMY, "dg"), ("policy", policy, POLICY, "mr")):
        write_envelope(place / f"{name}.json", sign_document(value, kind, [KEYS[by]], where=name, **signing))  # pyright: ignore
    rows = [
        Row(hashlib.sha256(b"%d" % at).digest(), classes[at % len(classes)], f"source {at % 100}", name_of("dg"))
        for at in range(ROWS * len(classes))
    ]
    write_table(place / "tags.parquet", rows)
    said = Description(
        standards_version="1.0.0",
        title="A benchmark",
        identifier="urn:example:benchmark",
        location="https://data.example.com/benchmark",
        issuer=name_of("dg"),
        description="Records that are only numbers.",
        origin_geography="none",
        issue_date="2026-01-01",
        generated=Days(first="2026-01-01", last="2026-01-01"),
        method="counted",
        format="UTF-8 text",
        confidentiality="public",
        licence="MIT",
        intended_use="measuring",
        proprietary=False,
    )
    about: dict[str, Any] = {"taxonomy": taxonomy, **signing}
    span: dict[str, Any] = {"description": said, "issued": SINCE, "expires": UNTIL, "keys": [KEYS["dg"]]}
    envelope = attest(place / "tags.parquet", **span, **about)
    write_envelope(place / "tags.json", envelope)
    rundir.write_json(place / "source.json", {"private": str(run), "judged": NOW})
    tags = verify_tags(place / "tags.parquet", envelope.content, where="tags.json", **about)
    routing = bind(policy, taxonomy, where="policy")
    table = admit(routing, classes=classes, layers=depths_of(LAYERS), progress=0.0).content
    some = "0" * 64
    genesis = Genesis(
        run=run.name,
        recipe=some,
        code=some,
        environment=some,
        data=some,
        tags={"train": Sources(root=tags.root, attestation=tags.attestation)},
        taxonomy=taxonomy.digest,
        policy=policy.digest,
        trust=BELIEVED.digest,
        judged=NOW,
        strategy="microbatch",
        seed=0,
        initial=EMPTY_ROOT.hex(),
        begins=0,
        start=None,
        classes=tuple(classes),
        layers=LAYERS,
        parents=(),
        blobs={},
    )
    return genesis, tags.tags.leaves, table


def numbers_of(present: np.ndarray, chance: np.random.Generator) -> StepNumbers:
    """Numbers of gradients of eight parameters a layer, under plain descent."""
    gradients = chance.normal(size=(len(present), len(LAYERS), 8))
    norms = np.linalg.norm(gradients, axis=2).astype(np.float32)
    gram = np.einsum("cle,dle->lcd", gradients, gradients).astype(np.float32)
    gram = np.triu(gram, 1) + np.triu(gram, 1).transpose(0, 2, 1)
    weights = np.ones_like(norms)
    gram[:, range(len(present)), range(len(present))] = diagonal(weights, norms).T
    update = -0.1 * gradients.sum(0)
    return StepNumbers(
        classes=tuple(present.tolist()),
        weights=weights,
        norms=norms,
        dots=np.einsum("cle,le->cl", gradients, update).astype(np.float32),
        gram=gram,
        updates=np.square(update).sum(1).astype(np.float32),
    )


class Recording:
    """The entries of a run, a segment at a time."""

    def __init__(self, run: Path, genesis: Genesis, leaves: np.ndarray, table: bytes) -> None:
        self.ledger, self.genesis, self.leaves, self.table = run / rundir.LEDGER, genesis, leaves, table
        self.secrets = {path: os.urandom(32) for path in (*genesis.classes, "*")}
        self.chance = np.random.default_rng(0)

    def blob(self, content: bytes) -> Blob:
        return Blob(sha256=write_blob(self.ledger, content), size=len(content))

    def segment(self, first: int, stop: int) -> list[Entry]:
        entries: list[Entry] = []
        parts: dict[str, list[bytes]] = {}
        batches, classes, keys = [], self.genesis.classes, dict[str, bytes]()
        for step in range(first, stop):
            present = np.sort(self.chance.choice(len(classes), min(PRESENT, len(classes)), replace=False))
            picked = [self.chance.choice(ROWS, EACH, replace=False) * len(classes) + index for index in present]
            rows = np.concatenate(picked)
            numbers, examples = numbers_of(present, self.chance), np.zeros(len(classes), int)
            examples[present] = EACH
            contents = {classes[at]: encode_class(numbers, place) for place, at in enumerate(present.tolist())}
            contents["*"] = encode_joint(numbers)
            committed: dict[str, str] = {}
            for path, content in contents.items():
                if path not in keys:
                    keys[path] = reading_key(self.secrets[path], kind="step", class_path=path, first=first)
                committed[path] = commit(salt_of(keys[path], step), content).hex()
                parts.setdefault("joint" if path == "*" else f"numbers/{path}", []).append(content)
            batches.append(rows)
            digest = hashlib.sha256(self.table).hexdigest()
            entries.append(
                Step(
                    step=step,
                    phase="progress [0, 1]",
                    slots=slots_root(rows, self.leaves).hex(),
                    examples=tuple(examples.tolist()),
                    numbers=tuple(committed.get(path) for path in classes),
                    joint=committed["*"],
                    quarantined=0,
                    weights=digest,
                    updated="1" * len(LAYERS),
                    blobs={"weights": self.blob(self.table)} if step == first else {},
                )
            )
        blobs = {name: self.blob(b"".join(found)) for name, found in parts.items()}
        blobs["slots"] = self.blob(encode_slots(batches))
        entries.append(State(step=stop, state=self.state(stop), blobs=blobs))
        return entries

    def state(self, step: int) -> TrainingState:
        nothing = EMPTY_ROOT.hex()
        return TrainingState(parameters=nothing, buffers=nothing, optimizer=nothing, random=f"{step:064x}")


def record(run: Path, classes: Sequence[str], steps: int) -> None:
    """Write the run; the first half cosigned a hundred days ago, all of it by another authority ten days ago."""
    genesis, leaves, table = documents(run, classes)
    recording = Recording(run, genesis, leaves, table)
    signer = Signer(name=f"example.com/{run.name}", algorithm=Algorithm.ED25519, private_key=KEYS["trainer"])
    Log.create(recording.ledger, origin=signer.name, signer=signer).close()
    halves = [(0, steps // 2 // EVERY * EVERY, "dg", 100), (steps // 2 // EVERY * EVERY, steps, "mr", 10)]
    for begins, ends, who, days in halves:
        with Log.open(recording.ledger, signer=signer) as log:
            if not begins:
                log.append([encode(genesis)])
            for first in range(begins, ends, EVERY):
                log.append(encode(each) for each in recording.segment(first, min(first + EVERY, ends)))
            if ends == steps:
                log.append(
                    [encode(End(step=steps, outcome="finished", state=recording.state(steps), metrics={}, blobs={}))]
                )
            log.commit()
        key = Signer(name=name_of(who), algorithm=Algorithm.COSIGNATURE, private_key=KEYS[who])
        anchor = anchor_of_trust(BELIEVED, origin=signer.name)
        found = cosign(recording.ledger, signer=key, state=run / "seen", anchor=anchor, now=NOW - days * DAY)
        if found.path is None:
            sys.exit(f"not cosigned: {found.verification.findings}")


def command(*arguments: object) -> float:
    """Wall seconds of a verb that has to succeed, as a process of its own."""
    start = time.perf_counter()
    verb = [sys.executable, "-m", "explorer", *map(str, arguments)]
    subprocess.run(verb, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return time.perf_counter() - start


def state(place: Path, by: str, out: str, *more: str) -> tuple[str, float, list[float], list[int], float]:
    """Return the statement, seconds to make it, milliseconds and bytes of each party's file, seconds to check it."""
    signing = ("--trust", place / "trust.json", "--key", place / "trainer.pem", "--out", place / out)
    made = command("usage", place / "run", "--by", by, *more, *signing)
    checks, sizes, whole = [], [], 0.0
    for path in sorted((place / out).iterdir()):
        content = path.read_bytes()
        start = time.perf_counter()
        verify_usage(content, trust=BELIEVED, now=NOW + 3_600, where=path.name)
        seconds = time.perf_counter() - start
        if path.name == "whole.json":
            whole = seconds
        else:
            checks.append(1e3 * seconds)
            sizes.append(len(content))
    words = f"by {by}" + ("" if not more else ", of a period")
    return words, made, checks, sizes, whole


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("classes", nargs="?", type=whole(2, 9_000), default=CLASSES)
    parser.add_argument("steps", nargs="?", type=whole(2 * EVERY), default=STEPS)
    asked = parser.parse_args()
    width = len(str(asked.classes))
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        record(place / "run", [f"part/{at:0{width}d}" for at in range(asked.classes)], asked.steps)
        write_trust(place / "trust.json", BELIEVED)
        write_key(place / "trainer.pem", KEYS["trainer"], None)
        entries = RunLedger(place / "run").ledger.checkpoint().size
        period = f"{format_time(NOW - 150 * DAY)}..{format_time(NOW - 50 * DAY)}"
        found = [
            state(place, "class", "all"),
            state(place, "class", "some", "--period", period),
            state(place, "source", "sources"),
        ]
        one = sorted((place / "all").glob("0*.json"))[asked.classes // 2]
        started = min(command("usage", "verify", one, "--trust", place / "trust.json") for _ in range(5))
    lines = [
        "# Statements of use",
        "",
        f"A generated run of {asked.classes:,} classes, {len(LAYERS)} layers and {asked.steps:,} steps: "
        f"{entries:,} entries, {PRESENT} classes a step, two cosigned checkpoints. On {os.cpu_count()} cores of "
        f"{platform.machine()}, Python {platform.python_version()}. Made by `benchmarks/usage.py`.",
        "",
        "| statement | parties | make, sign, write: seconds | a party's file, bytes: median, largest | target "
        "| check of a file, ms: median, slowest | target | check of the whole, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for words, made, checks, sizes, whole_seconds in found:
        size = f"{statistics.median(sizes):,.0f}, {max(sizes):,}"
        check = f"{statistics.median(checks):.1f}, {max(checks):.1f}"
        small = verdict(max(sizes), "below 10,000", decimals=0)
        quick = verdict(max(checks), "below 100", decimals=0)
        lines.append(
            f"| {words} | {len(sizes):,} | {made:.1f} | {size} | {small} | {check} | {quick} | {whole_seconds:.2f} |"
        )
    lines += [
        "",
        f"`explorer usage verify FILE --trust TRUST` as a command, start-up included: {started:.2f} s, the fastest of "
        "five.",
    ]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
