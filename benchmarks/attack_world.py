"""The world of `attacks.py`: small governed runs with real ledgers, and an attacker who has all of their keys.

The runs are of the digits in four classes, simulated provenance: one denied to the first half of the depth, one
admitted late, one open, one in a sealed region of its own. Authorities, documents, keys and cosignatures are those of
a demonstration; every run is trained once and copied for each attack.

A forger here is the trainer, and the quorum cosigns whatever it is shown. `Forged` changes entries and blobs of a copy,
recomputes everything that follows from them, and signs. `ask` then puts the copy to the verbs that should refuse it.
"""

import contextlib
import io
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from explorer import run_files, rundir
from explorer.cli.app import app
from explorer.data.digits import Digits
from explorer.disclosure import verifier
from explorer.disclosure.pack import make_pack, write_pack
from explorer.entries.fields import Blob
from explorer.entries.kinds import Genesis, State, Step, decode, encode
from explorer.entries.numbers import StepNumbers, encode_class, encode_joint
from explorer.errors import ExplorerError
from explorer.ledger.cosign import cosign
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory, read_blob, write_blob
from explorer.note import Algorithm, Signer
from explorer.provenance.commitments import commit
from explorer.provenance.encryption import salt_of
from explorer.provenance.keys import read_key
from explorer.provenance.policy import RoutingPolicy, Rule, read_policy
from explorer.provenance.regions import SealedRegion
from explorer.provenance.taxonomy import read_taxonomy
from explorer.provenance.trust import Trust, read_trust
from explorer.recipes.recipe import build_recipe
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.documents import Documents, keep, read_documents
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.segments import read_numbers
from explorer.runlog.tensors import BLOB as TENSORS
from explorer.runlog.tensors import Tensors, parse_tensors
from explorer.training.demonstration import COSIGNERS, KEYS, NAME_OF_TRAINER, demonstrate
from explorer.training.run import execute
from explorer.training.run_plan import plan_run
from explorer.yaml_document import read_document

POLICIES = Path(__file__).resolve().parents[1] / "notebooks" / "policies"
DATA = Digits(simulated_classes=4)
DENIED, LATE, OPEN, SEALED = (f"simulated/class-{number:02d}" for number in range(4))
CLASSES = (DENIED, LATE, OPEN, SEALED)
TASK = {"dataset": {"digits": {"simulated_classes": 4}}, "model": {"resnet8": {"width": 0.5, "norm": "group"}}}
TRAIN = {"epochs": 0.24, "batch_size": 24, "optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-3}}}
EVERY = 4  # steps of a segment
STEPS = 9  # of a run
REGION = SealedRegion(name="own", branch=SEALED, layers=("stages.2.*",), rank=2)
ADMITTED = Rule(classes=("simulated",), weight=1.0)
RULES = {
    "attacked": (
        Rule(classes=(SEALED,), weight=0.0),
        Rule(classes=(DENIED,), depth=(0.0, 0.5), weight=0.0),
        Rule(classes=(LATE,), progress=(0.0, 0.5), weight=0.0),
        Rule(classes=(LATE,), layers=("stages.0.*",), weight=0.0),
        ADMITTED,
    ),
    "freed": (Rule(classes=(SEALED,), weight=0.0), ADMITTED),
}
METHODS = ("contributions", {"entropy": {"probes": 4, "profiles": 2}})
AVERAGE = {"ema": {"half_life": 0.2}}


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """One of the runs that are attacked, or that something is taken from."""

    policy: str = "attacked"
    seed: int = 0
    methods: tuple[Any, ...] = ()
    model: Mapping[str, Any] | None = None  # None: the usual one
    train: Mapping[str, Any] | None = None  # settings that are not the usual ones


RUNS = {
    "main": Plan(),
    "twin": Plan(seed=1),
    "freed": Plan(policy="freed"),
    "averaged": Plan(methods=(AVERAGE,)),
}


class World:
    """Authorities, documents, and finished runs that are signed and cosigned."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = int(time.time())
        template = read_policy(read_document(POLICIES / "simulated.policy.yaml"))
        policies: list[RoutingPolicy] = [
            replace(template, name=name, rules=rules, sealed=(REGION,)) for name, rules in RULES.items()
        ]
        self.taxonomy = read_taxonomy(read_document(POLICIES / "simulated.taxonomy.yaml"))
        self.governance = demonstrate(
            root / "_governance", DATA, data=None, taxonomy=self.taxonomy, policies=policies, now=self.now
        )
        self.trust_file = self.governance / "trust.json"
        self.trust: Trust = read_trust(self.trust_file)
        self.keys = {name: read_key(self.governance / file, None) for name, file in KEYS.items()}
        self.trained: dict[str, Path] = {}
        self._copies = 0
        self._deleted: tuple[Path, Path] | None = None

    def documents(self, policy: str) -> Documents:
        return read_documents(self.governance, policy=policy, now=self.now)

    def run(self, name: str) -> Path:
        """A finished run, trained at the first call."""
        if name not in self.trained:
            self.train(name, RUNS[name])
        return self.trained[name]

    def copy(self, name: str) -> Path:
        """A copy of a run in a directory of runs of its own."""
        self._copies += 1
        run = self.run(name)
        place = self.root / "copies" / f"{self._copies:04d}"
        shutil.copytree(run, place / "attacked" / run.name)
        return place / "attacked" / run.name

    def scratch(self) -> Path:
        """An empty directory."""
        self._copies += 1
        made = self.root / "scratch" / f"{self._copies:04d}"
        made.mkdir(parents=True)
        return made

    def gate(self) -> Path:
        """The file of the gate that all models are put to."""
        path = self.root / "gate.yaml"
        path.write_text(GATE)
        return path

    def deleted(self) -> tuple[Path, Path]:
        """A run that had a sealed class, and the run that its deletion made, certified."""
        if self._deleted is None:
            old = self.copy("main")
            out = old.parents[1] / "deletions"
            command("delete", "run", old, SEALED, "--trust", self.trust_file, "--out", out)
            (new,) = (path for path in out.iterdir() if path.is_dir())
            self.cosign(new)
            status, text = command("delete", "certify", new, "--old", old, "--trust", self.trust_file)
            if status:
                raise ValueError(f"no certificate to attack: {text}")
            self._deleted = old, new
        return self._deleted

    def discard(self, run: Path) -> None:
        """Remove a copy, which nothing needs any more."""
        shutil.rmtree(run.parents[1])

    def sign(self, run: Path, leaves: Sequence[bytes], *, now: int | None = None, origin: str | None = None) -> None:
        """Rewrite the ledger with these entries: the trainer signs, all witnesses cosign."""
        directory = run / rundir.LEDGER
        origin = origin or f"{NAME_OF_TRAINER}/{run.name}"
        for name in ("checkpoint", "tile", "witness"):
            path = directory / name
            if path.exists():
                (shutil.rmtree if path.is_dir() else Path.unlink)(path)
        signer = Signer(name=origin, algorithm=Algorithm.ED25519, private_key=self.keys[NAME_OF_TRAINER])
        with Log.create(directory, origin=origin, signer=signer) as log:
            log.append(leaves)
        self.cosign(run, now=now)

    def cosign(self, run: Path, *, now: int | None = None) -> None:
        """Everybody who may cosigns the ledger of a run, remembering nothing."""
        self.cosign_at(run / rundir.LEDGER, now=now)

    def cosign_at(self, directory: Path, *, now: int | None = None) -> None:
        """The same for the ledger in a directory."""
        anchor = anchor_of_trust(self.trust, origin=LedgerDirectory(directory).checkpoint().origin)
        for name in COSIGNERS:
            signer = Signer(name=name, algorithm=Algorithm.COSIGNATURE, private_key=self.keys[name])
            with tempfile.TemporaryDirectory() as memory:
                done = cosign(
                    directory, signer=signer, state=Path(memory), anchor=anchor, now=self.now if now is None else now
                )
            if done.path is None:
                raise ValueError(
                    f"{directory}: {name} cosigns nothing that does not verify: {done.verification.findings}"
                )

    def train(self, name: str, plan: Plan) -> Path:
        """Train a run and have it cosigned."""
        documents = self.documents(plan.policy)
        methods = [{"routing": {"policy": plan.policy}}, *METHODS, {"recorder": {"every": EVERY}}, *plan.methods]
        record = plan_run(
            build_recipe(
                name,
                task={**TASK, "model": plan.model or TASK["model"]},
                train={**TRAIN, **(plan.train or {})},
                methods=methods,
                where=name,
            ),
            sweep="attacked",
            baseline=name,
            tuning=None,
            ssr=1.0,
            seed=plan.seed,
            threads=1,
            data=None,
            documents=documents,
        )
        directory = self.root / "runs" / "attacked" / record.run_id
        keep(documents, directory)
        run_files.write(directory / rundir.RUN, record)
        execute(directory)
        self.cosign(directory)
        self.trained[name] = directory
        return directory


class Forged:
    """A copy of a run in the hands of an attacker who holds all of its keys.

    `entries` are changed in place or through the helpers; an entry may be bytes. Nothing is written before `sign`, but
    for blobs, which are named by their digests and so in no one's way.
    """

    def __init__(self, world: World, run: Path) -> None:
        self.world, self.run = world, run
        self.ledger = RunLedger(run)
        self.entries: list[Any] = [decode(leaf) for leaf in self.ledger.ledger.entries()]
        self.genesis: Genesis = self.ledger.genesis

    def places(self, kind: type) -> list[int]:
        """The numbers of the entries of a kind."""
        return [index for index, entry in enumerate(self.entries) if isinstance(entry, kind)]

    def change(self, kind: type, change: Callable[[Any], Any], *, at: int | None = None) -> None:
        """Change all entries of a kind, or the one of this place among them."""
        places = self.places(kind)
        for index in places if at is None else [places[at]]:
            self.entries[index] = change(self.entries[index])

    def fields(self, kind: type, *, at: int | None = None, **changes: Any) -> None:
        """Give fields of entries of a kind other values."""
        self.change(kind, lambda entry: replace(entry, **changes), at=at)

    def content(self, entry: Any, name: str) -> bytes:
        """A blob that an entry names."""
        return read_blob(self.run / rundir.LEDGER, entry.blobs[name].sha256)

    def with_blob(self, entry: Any, name: str, content: bytes) -> Any:
        """The entry with another blob of this name, which is there."""
        blob = Blob(sha256=write_blob(self.run / rundir.LEDGER, content), size=len(content))
        return replace(entry, blobs={**entry.blobs, name: blob})

    def without_blob(self, entry: Any, name: str) -> Any:
        return replace(entry, blobs={each: blob for each, blob in entry.blobs.items() if each != name})

    def tensors(self, entry: Any) -> Tensors:
        """The list of tensors that an entry names."""
        return parse_tensors(self.content(entry, TENSORS), where="attack")

    def with_tensors(self, entry: Any, tensors: Tensors) -> Any:
        """The entry with another list of tensors, and the roots that follow from it."""
        changed = self.with_blob(entry, TENSORS, tensors.content)
        parameters, buffers, optimizer = tensors.roots
        if isinstance(entry, Genesis):
            return replace(changed, initial=parameters)
        state = replace(entry.state, parameters=parameters, buffers=buffers, optimizer=optimizer)
        return replace(changed, state=state)

    def key(self, path: str, kind: str, first: int) -> bytes:
        """A reading key of the run, from its secrets."""
        found = self.ledger.keys.of(path, kind, first)
        assert found is not None
        return found

    def commitment(self, path: str, kind: str, *, first: int, step: int, content: bytes) -> str:
        """An honest commitment to some content."""
        return commit(salt_of(self.key(path, kind, first), step), content).hex()

    def numbers(self, change: Callable[[Step, StepNumbers], StepNumbers]) -> None:
        """Give steps other numbers, committed to, with the blobs of their segments, as if they were true."""
        for segment in self.ledger.segments():
            contents: dict[str, list[bytes]] = {}
            for placed, numbers in read_numbers(self.ledger, segment).by_step():
                step = self.entries[placed.index]
                self.entries[placed.index] = self.committed(step, change(step, numbers), segment.first, contents)
            state = self.entries[segment.state.index]
            self.entries[segment.state.index] = self.closed(state, contents)

    def committed(self, step: Step, numbers: StepNumbers, first: int, contents: dict[str, list[bytes]]) -> Step:
        """A step that commits to these numbers, which are added to the contents of its segment."""
        classes = self.genesis.classes
        commitments: list[str | None] = [None] * len(classes)
        for place, index in enumerate(numbers.classes):
            content = encode_class(numbers, place)
            contents.setdefault(f"numbers/{classes[index]}", []).append(content)
            path = classes[index]
            commitments[index] = self.commitment(path, Step.KIND, first=first, step=step.step, content=content)
        joint = encode_joint(numbers)
        contents.setdefault("joint", []).append(joint)
        committed = self.commitment(JOINT, Step.KIND, first=first, step=step.step, content=joint)
        return replace(step, numbers=tuple(commitments), joint=committed)

    def sketched(self, state: State, name: str, sketches: np.ndarray) -> State:
        """A state with other sketches of a class, committed to."""
        content, path = sketches.astype("<f4").tobytes(), name.partition("/")[2]
        made = self.with_blob(state, name, content)
        first = max((each.stop for each in self.ledger.spans() if each.stop < state.step), default=self.ledger.begins)
        committed = [*made.sketches]
        committed[self.genesis.classes.index(path)] = self.commitment(
            path, Step.KIND, first=first, step=state.step, content=content
        )
        return replace(made, sketches=tuple(committed))

    def closed(self, state: State, contents: Mapping[str, list[bytes]]) -> State:
        """A state whose blobs are these numbers."""
        for name, parts in contents.items():
            state = self.with_blob(state, name, b"".join(parts))
        return state

    def sign(self, *, now: int | None = None) -> None:
        """Rewrite the ledger, signed and cosigned."""
        leaves = [entry if isinstance(entry, bytes) else encode(entry) for entry in self.entries]
        self.world.sign(self.run, leaves, now=now)

    def other(self, name: str) -> "Forged":
        """Another run of this world, to take something from."""
        return Forged(self.world, self.world.run(name))

    def take(self, other: "Forged", entry: Any) -> Any:
        """An entry of another run, with its blobs."""
        for blob in entry.blobs.values():
            write_blob(self.run / rundir.LEDGER, read_blob(other.run / rundir.LEDGER, blob.sha256))
        return entry


GATE = f"""\
format: explorer/gate/v1
name: attacked
ledger: full
rules:
  - {{deny: {{branch: {DENIED}, depth: [0, 0.5]}}}}
  - {{conforms: true}}
"""


def ask(world: World, run: Path, verbs: Iterable[str]) -> dict[str, str]:
    """What each verb says against a run; empty: nothing, it is accepted."""
    return {verb: VERBS[verb](world, run) for verb in verbs}


SAYS = "explorer: "  # before an error on the command line


def command(*words: object) -> tuple[int, str]:
    """The command line, in this process: exit status, and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            app([str(word) for word in words])
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        except ExplorerError as error:
            print(f"{SAYS}{error}")
            status = 1
    return status, out.getvalue()


def _ledger(world: World, run: Path) -> str:
    return said(*command("ledger", "verify", run / rundir.LEDGER, "--trust", world.trust_file, "--contents"))


def _conform(world: World, run: Path) -> str:
    status, text = command("conform", run, "--trust", world.trust_file, "--json")
    if not status:
        return ""
    try:
        found = json.loads(text)
    except ValueError:
        return said(status, text)
    judged = [
        *found["ledger"]["findings"],
        *(each["message"] for one in found["conditions"] for each in one["contradictions"]),
    ]
    unseen = [f"cannot be told: {each['message']}" for one in found["conditions"] for each in one["untold"]]
    return (judged or unseen)[0]


def _gate(world: World, run: Path) -> str:
    status, text = command("attest", run, "--trust", world.trust_file)
    if status:
        return f"attest: {said(status, text)}"
    status, text = command(
        "verify", run / "model", "--gate", world.gate(), "--trust", world.trust_file, "--ledger", run
    )
    fails = [line.strip() for line in text.splitlines() if "FAILS" in line]
    return "" if not status else (fails or [said(status, text)])[0]


def _pack(world: World, run: Path) -> str:
    """Check the pack that Explorer makes, without its report, with the verifier in it."""
    path = run.parent / "run.pack.zip"
    settings: dict[str, Any] = {"key": world.keys[NAME_OF_TRAINER], "trust": world.trust, "now": int(time.time())}
    fault = refusal(lambda: write_pack(path, make_pack(RunLedger(run), grants={}, report=None, **settings)))
    return f"pack: {fault}" if fault else verified(path, world.trust_file)


def _replay(world: World, run: Path) -> str:
    status, text = command("replay", run)
    lines = [line.strip() for line in text.splitlines()]
    differs = [line for line in lines if line.startswith("entry ")]
    return "" if not status else (differs or [said(status, text)])[0]


def verified(pack: Path, trust: Path) -> str:
    """What verify.py says against a pack; empty: all that it checked holds."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = verifier.main([str(pack), "--trust", str(trust)])
    lines = [line.strip() for line in out.getvalue().splitlines()]
    first = lines.index("does not hold") + 1 if "does not hold" in lines else 0
    return "" if not status else lines[first]


def said(status: int, text: str) -> str:
    """The line that says why, of a verb that refused."""
    if not status:
        return ""
    if SAYS in text:
        return text.rpartition(SAYS)[2].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines[1:] if re.match(r"(entry|checkpoint|tile|blobs|- |FAIL|[a-z/]+: )", line)]
    return (telling or lines or [f"exit status {status}"])[0]


VERBS: dict[str, Callable[[World, Path], str]] = {
    "ledger verify": _ledger,
    "conform": _conform,
    "gate": _gate,
    "verify.py": _pack,
    "replay": _replay,
}


TRAINER, READER, OUTSIDER = "trainer", "reader", "outsider"
"""Who attacks: the holder of all keys of the run and its quorum; the holder of a copy; the maker of a file."""

SENTENCES = {
    "host": "They do not show that the host ran what it says it ran.",
    "name": "Every trainer in your trust file, for ledgers whose names begin with no other trainer's.",
    "checkpoint": "Without the ledger (`ledger: checkpoint`) the trainer's word is taken for the claims",
    "dated back": "only its signer vouches for the date of a document",
    "unchecked": "Every file of a pack is bound by a signature, by the ledger or by the first entry, or `verify.py` "
    "names it under",
    "layers": "The order of the layers, and their other names, are the ledger's word until a replay",
    "card": "the shape of its inputs and the number of its outputs are the trainer's word",
    "metadata": "Metadata in the header of a model's file is no claim",
    "replay": "Replay does, for a reader who has the data and the same machine and build",
    "own trust": "Copies of it inside a run or a pack are shown and never believed.",
    "observations": "a distributor may leave out observations",
}
"""Sentences of SECURITY.md that say what is accepted, by a short name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """One change of one thing, and the gain of the attacker."""

    section: str
    name: str
    breaks: str  # the invariant
    gains: str
    act: Callable[[World], dict[str, str]]  # carries it out and asks: what each verb says; empty: it accepts
    who: str = TRAINER
    known: bool = False  # reported by others, or refused before: not written after the fixes
    accepted: str | None = None  # a key of SENTENCES, where the documents say that it is accepted
    by: tuple[str, ...] = ()  # the verbs of which one has to refuse; none: any but a replay


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Outcome of an attack."""

    attack: Attack
    answers: Mapping[str, str]

    @property
    def refused(self) -> dict[str, str]:
        """The answers of those who refuse it."""
        return {verb: said for verb, said in self.answers.items() if said}

    @property
    def verdict(self) -> str:
        """Refused by a verb that has to; else accepted as the documents say; else open."""
        asked = self.attack.by or [verb for verb in self.answers if verb != "replay"]
        if "open" in self.answers:  # in words, where no verb says it
            return "OPEN"
        if any(self.answers.get(verb) for verb in asked):
            return "refused"
        return "documented" if self.attack.accepted else "OPEN"


ATTACKS: list[Attack] = []


def attack(section: str, name: str, breaks: str, gains: str, **more: Any) -> Callable[[Any], Any]:
    """Put a function of a world into the table of attacks."""

    def add(act: Callable[[World], dict[str, str]]) -> Callable[[World], dict[str, str]]:
        ATTACKS.append(Attack(section=section, name=name, breaks=breaks, gains=gains, act=act, **more))
        return act

    return add


def refusal(act: Callable[[], object]) -> str:
    """What an error of Explorer's says; empty where there is none."""
    try:
        act()
    except ExplorerError as error:
        return str(error)
    return ""
