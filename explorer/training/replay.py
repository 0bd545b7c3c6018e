"""Replay: execute steps of a recorded run again, and compare them with its ledger entry by entry, bit for bit.

Replay starts from the newest checkpoint at or before the first step: one that was kept before a class's first
admission, the one that a deletion took over, one to resume from, or the initial state, which follows from the seed.
Everything from there on is compared: each step with its slots, counts and commitments, decisions and profiles, and at
the end of each segment the state of training and the digests of all numbers. Nothing is written. On another machine or
build the bits may differ without any fault; so the differences in machine and software are reported first.

Commitments need the classes' secrets. Where a secret was destroyed or is not available here, the numbers are compared
by the blobs of their segments, and the report lists the commitments that were not compared. Blobs of a confidential
class need its secret too: without it neither is compared.
"""

import dataclasses
import hashlib
import logging
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.costing import Duration
from explorer.engine.checkpoint import Checkpoint, load_checkpoint
from explorer.engine.loop import Loop
from explorer.engine.stepping import Place, time_steps
from explorer.entries.heads import Head, read_head
from explorer.entries.kinds import Genesis, State, TrainingState, decode
from explorer.errors import CheckpointError, LedgerError, RunError
from explorer.governance.credentials import leaves_of
from explorer.governance.journal import Journal, read_secrets
from explorer.governance.layers import shared_names
from explorer.governance.recorder import Recorder, beginning, training_state
from explorer.governance.shared_state import Session
from explorer.governance.spool import ALL, NUMBERS, SKETCHES
from explorer.governance.writer import History, Recorded, is_aside
from explorer.ledger.storage import LedgerDirectory
from explorer.provenance.routing_weights import confidential
from explorer.recipes import machine
from explorer.run_files import Plan, RunRecord
from explorer.runlog.run_keys import OwnKeys
from explorer.runlog.target import Target, counterfactual
from explorer.runlog.tensors import chunk_of
from explorer.training.ledgered import STRATEGY
from explorer.training.profile import WARMUP, WINDOW_SECONDS, WINDOWS, rehearsed
from explorer.training.run import build_loop, documents_in
from explorer.training.run_plan import recipe_of

INITIAL = "the initial state"

log = logging.getLogger(__name__)


# --- comparison with a ledger ---

NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """First difference between the ledger and the replay."""

    entry: int  # its number in the ledger
    kind: str
    step: int
    field: str  # dotted
    expected: str  # on record
    found: str


class Differs(Exception):
    """Signal that ends a replay at its first difference."""

    def __init__(self, difference: Difference) -> None:
        self.difference = difference


class Comparison:
    """Book of a journal that writes nothing: every entry has to be the one that the ledger has next."""

    def __init__(self, run: Path, genesis: Genesis, *, confidential: frozenset[str]) -> None:
        """Compare with the ledger in a run's directory, using the secrets that are there."""
        self.directory = run / rundir.LEDGER
        self.counts: dict[str, int] = {}  # of equal entries, by kind; and of blobs
        self._genesis, self._confidential = genesis, confidential
        self._secrets = read_secrets(run, genesis)
        self._missing = OwnKeys(secrets=self._secrets, classes=genesis.classes).erased
        self._uncompared = commitments(genesis, self._missing, confidential=confidential)
        self._recorded: Iterator[Recorded] = iter(())

    def journal(self, leaves: NDArray[np.uint8]) -> Journal:
        """Return the journal of the replay; `leaves` are the leaf hashes of the tag table, rows x 32."""
        return Journal(
            self,
            genesis=self._genesis,
            secrets=self._secrets,
            leaves=leaves,
            spool=None,
            confidential=self._confidential,
        )

    def begin(self, step: int) -> TrainingState | None:
        recorded, self._recorded = History(self.directory).state(step)
        state = decode(recorded.leaf)
        if isinstance(state, Genesis):
            return state.start
        return state.state if isinstance(state, State) else None

    def write_blob(self, content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()

    def put(self, leaf: bytes, *, step: int) -> None:
        """Compare an entry with the next one of the ledger. Raises `Differs` where they differ."""
        # Who made the steps is no result of executing them; of a trunk `explorer conform` compares the two ledgers.
        rest = (entry for entry in self._recorded if not is_aside(entry.head))
        head, expected = read_head(leaf), next(rest, None)
        if expected is None:
            raise LedgerError(f"{self.directory}: ends before the {head.kind} at step {step}, which would be next")
        # Entries with other bytes may still be equal in every field that can be compared here.
        if leaf != expected.leaf:
            for name, wanted, here in differences(expected.head, head, uncompared=self._uncompared):
                raise Differs(
                    Difference(
                        entry=expected.number, kind=head.kind, step=step, field=name, expected=wanted, found=here
                    )
                )
        self.counts[head.kind] = self.counts.get(head.kind, 0) + 1
        compared = sum(f"blobs.{name}" not in self._uncompared for name in head.blobs)
        self.counts["blobs"] = self.counts.get("blobs", 0) + compared

    def commit(self) -> None: ...

    def close(self) -> None: ...

    def report(self, **more: Any) -> "Replayed":
        """Return the report of the replay, of which `more` are further fields."""
        sealed = self._missing & (self._confidential | {ALL}) if self._confidential else frozenset[str]()
        return Replayed(
            entries=sum(self.counts.values()) - self.counts.get("blobs", 0),
            steps=self.counts.get("step", 0),
            states=self.counts.get("state", 0),
            blobs=self.counts.get("blobs", 0),
            secrets_missing=tuple(sorted(self._missing)),
            sealed_missing=tuple(sorted(sealed)),
            **more,
        )


def differences(recorded: Head, replayed: Head, *, uncompared: Collection[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield field, recorded and replayed value, wherever two entries differ.

    A field in `uncompared` differs only if one of the two has no value for it.
    """
    then, now = _comparable(recorded), _comparable(replayed)
    if SKETCHES not in recorded.fields:  # of an earlier version, which has blobs of sketches and no commitments
        now = {name: value for name, value in now.items() if not name.startswith(f"{SKETCHES}.")}
    for name in sorted(then.keys() | now.keys()):
        values = then.get(name, NOTHING), now.get(name, NOTHING)
        if values[0] != values[1] and not (name in uncompared and NOTHING not in values):
            yield name, *values


def commitments(genesis: Genesis, classes: Set[str], *, confidential: Set[str]) -> frozenset[str]:
    """Return the fields that need a secret of these classes: their commitments and sealed blobs, in entries of all
    kinds."""
    numbers = {
        f"{of}.{place}" for of in (NUMBERS, SKETCHES) for place, name in enumerate(genesis.classes) if name in classes
    }
    named = {f"{of}.{name}" for of in ("classes", "evidence") for name in classes}
    joint = {"joint"} if ALL in classes else set[str]()
    sealed = {f"blobs.{of}/{name}" for of in (NUMBERS, SKETCHES, "evidence") for name in classes & confidential}
    return frozenset(numbers | named | joint | sealed | ({"blobs.joint"} if joint and confidential else set()))


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the values of nested objects, by dotted name."""
    values: dict[str, str] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            values |= flat(inner, f"{prefix}{key}.")
        elif isinstance(inner, list | tuple):
            values |= flat({str(place): item for place, item in enumerate(inner)}, f"{prefix}{key}.")
        elif inner is not None:
            values[f"{prefix}{key}"] = str(inner)
    return values


def _comparable(head: Head) -> dict[str, str]:
    blobs = {name: f"{blob.sha256}, {blob.size} bytes" for name, blob in head.blobs.items()}
    return flat({"kind": head.kind, **head.fields, "blobs": blobs})


# --- replay ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Elsewhere:
    """Difference in machine or software between the recording and here."""

    what: str
    recorded: str
    here: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """Result of a replay."""

    run: str
    first: int
    last: int  # exclusive
    start: int  # the step at which execution began, at or before the first
    source: str  # of the state that it began with, in words
    environment: tuple[Elsewhere, ...]
    entries: int  # found equal, as the following
    steps: int
    states: int
    blobs: int
    secrets_missing: tuple[str, ...]  # classes, and * for numbers over several: their commitments were not compared
    sealed_missing: tuple[str, ...]  # those of them whose blobs are sealed: their numbers were not compared at all
    difference: Difference | None

    @property
    def equal(self) -> bool:
        """Return whether everything was equal to the record."""
        return self.difference is None


def replay(
    run: Path,
    *,
    steps: tuple[int, int] | None = None,
    data: Path | None = None,
    private: Path | None = None,
    on_environment: Callable[[tuple[Elsewhere, ...]], None] = lambda environment: None,
) -> Replayed:
    """Execute steps of a recorded run again, and compare them.

    Args:
        run: the run's directory.
        steps: the range [first, last); None: all that are on record.
        data: the directory of data sets.
        private: where the salts of the tags are now, if not where the run had them.
        on_environment: gets the differences in machine and software before anything is executed.

    Raises `RunError` or `LedgerError` for a run without a ledger, or of other data or documents, and for steps that are
    not on record. A difference is no error: it is in the report.
    """
    # --- the run as it is on record ---
    ledger = run / rundir.LEDGER
    if ledger.exists() and not (run / rundir.RUN).exists():
        raise RunError(
            f"{run}: the run of a custom loop: only its owner's code executes its steps. Give a function that"
            " trains by the `govern` it is handed: explorer.replay(directory, train) in Python, or --loop MODULE:train"
        )
    record = run_files.read(RunRecord, run / rundir.RUN)
    genesis = _genesis(ledger, record)
    first, last = _range(ledger, steps, begins=genesis.begins)
    environment = elsewhere(run, record)
    on_environment(environment)
    # --- a loop that writes nothing ---
    documents = documents_in(run, record, private=private)
    loop = build_loop(record, data=data, documents=documents, elsewhere=bool(environment))
    session = loop.state.resource(Session)
    session.chunk = chunk_of(genesis, ledger)
    sealed = confidential(session.routing, genesis.classes)
    comparison = Comparison(run, genesis, confidential=sealed)
    # --- execution; pointless where the first entry differs already ---
    difference = _initial(loop, genesis, record, data)
    checkpoint = None if difference else newest(run, record.run_id, first)
    if difference is None and genesis.begins > (checkpoint.step if checkpoint else 0):
        raise RunError(f"run {record.run_id}: begins after {genesis.begins} steps, and no checkpoint of then is here")
    if difference is None:
        try:
            with comparison.journal(_leaves(loop)) as journal:
                _execute(loop, journal, checkpoint, last)
        except Differs as caught:
            difference = caught.difference
    return comparison.report(
        run=record.run_id,
        first=first,
        last=last,
        start=checkpoint.step if checkpoint else 0,
        source=f"the checkpoint of step {checkpoint.step}" if checkpoint else INITIAL,
        environment=environment,
        difference=difference,
    )


def elsewhere(run: Path, record: Plan) -> tuple[Elsewhere, ...]:
    """Return the differences between here and where the run was recorded: hardware, packages, Python, our own code."""
    then = rundir.read_json(run / rundir.ENVIRONMENT)
    if not isinstance(then, dict):
        raise RunError(f"{run / rundir.ENVIRONMENT}: damaged: expected a JSON object")
    recorded, here = flat(then), flat(machine.environment(record.identity.get("code", ())))
    if isinstance(record, RunRecord):  # the record of a custom loop does not have its threads
        recorded |= flat({"hardware": dataclasses.asdict(record.hardware)})
        # No bit depends on the number of processes, so a replay makes the steps of all of them by itself.
        of_run = record.hardware
        own = dataclasses.replace(machine.hardware(threads=of_run.threads), world_size=of_run.world_size)
        here |= flat({"hardware": dataclasses.asdict(own)})
    return tuple(
        Elsewhere(what=name, recorded=recorded.get(name, NOTHING), here=here.get(name, NOTHING))
        for name in sorted(recorded.keys() | here.keys())
        # The digest of all code is left out: only `training_code` can change a bit.
        if recorded.get(name, NOTHING) != here.get(name, NOTHING) and name != "code"
    )


def newest(run: Path, run_id: str, step: int) -> Checkpoint | None:
    """Return the newest undamaged checkpoint at or before this step; None: there is none."""
    paths = [path for name in (rundir.KEPT, rundir.CHECKPOINT) for path in (run / name).glob("step-*.json")]
    for path in sorted(paths, key=lambda path: path.stem, reverse=True):
        try:
            checkpoint = load_checkpoint(path, run_id=run_id)
        except CheckpointError as error:
            log.warning("%s; going back to the one before it", error)
            continue
        if checkpoint.step <= step:
            return checkpoint
    return None


def _execute(loop: Loop, journal: Journal, checkpoint: Checkpoint | None, last: int) -> None:
    loop.state.resource(Session).journal = journal
    if checkpoint is not None:
        loop.restore(checkpoint.tensors, step=checkpoint.step)
    loop.call("before_fit")
    while loop.state.step < last:
        loop.step()
    if last == loop.state.total_steps and History(journal.directory).ended():
        loop.call("after_fit")
        loop.evaluate()
        loop.call("after_run")


def _genesis(ledger: Path, record: RunRecord) -> Genesis:
    """Return the first entry. Raises `LedgerError` unless it is that of this run."""
    if not ledger.exists():
        recorded = Recorder.name in record.methods
        why = "it was recorded, and is not here" if recorded else f"its recipe has no {Recorder.name!r}"
        why = run_files.given_up(record) or why
        raise RunError(f"run {record.run_id}: has no ledger: {why}")
    entry = decode(next(LedgerDirectory(ledger).entries(0, 1)))
    if not isinstance(entry, Genesis) or entry.recipe != digest(record.identity):
        raise LedgerError(f"{ledger}: not the ledger of run {record.run_id}: its first entry names another recipe")
    return entry


def _range(ledger: Path, steps: tuple[int, int] | None, *, begins: int) -> tuple[int, int]:
    stop = begins + sum(entry.head.kind == "step" for entry in History(ledger).entries())
    if begins == stop:
        raise LedgerError(f"{ledger}: no step is on record in it: it begins after {begins}, and nothing was trained")
    first, last = steps or (begins, stop)
    if not begins <= first < last <= stop:
        raise LedgerError(
            f"{ledger}: steps {first}:{last}; expected a range within {begins}:{stop}, which is on record"
        )
    return first, last


def _initial(loop: Loop, genesis: Genesis, record: RunRecord, data: Path | None) -> Difference | None:
    """Return the first difference between the first entry and the loop at step 0."""
    session = loop.state.resource(Session)
    pairs: dict[str, tuple[Any, Any]] = {
        "strategy": (genesis.strategy, STRATEGY),
        "initial": (genesis.initial, training_state(loop.state, step=0).parameters),
        "classes": (genesis.classes, session.classes),
        "layers": (genesis.layers, tuple(layer.name for layer in session.layers)),
        "shared": (genesis.shared, shared_names(session.layers)),
    }
    if genesis.methods is not None:  # an older ledger states none of this
        pairs["methods"] = genesis.methods, {method.name: method.traits for method in loop.methods}
    if genesis.fitted is not None:
        pairs["fitted"] = genesis.fitted, dict(recipe_of(record).dataset.fitted_on(data))
    for name, content in beginning(loop.state).items():
        if name in genesis.blobs:  # ledgers of earlier versions have none
            pairs[f"blobs.{name}"] = genesis.blobs[name].sha256, hashlib.sha256(content).hexdigest()
    for name, (expected, here) in pairs.items():
        if expected != here:
            return Difference(entry=0, kind=genesis.KIND, step=0, field=name, expected=str(expected), found=str(here))
    return None


def _leaves(loop: Loop) -> Any:
    tags = loop.state.resource(Session).tags
    assert tags is not None  # a run with a ledger has verified tags
    return leaves_of(tags, examples=len(loop.setting.batches.dataset.train))


# --- the step time of a future replay ---

PLACES = 5  # of the range, at which steps are timed


def measure_replay(run: Path, target: Target, *, steps: range, data: Path | None) -> Duration:
    """Measure the time of one of these steps without the target: the mean over places of medians and quartiles.

    The speed of a step depends on its place in training, since the policy admits other classes to other layers there,
    and on the examples that are left out. So the steps themselves are timed, on the machine as it is now. The caller
    makes sure that nothing else keeps the machine busy. Raises the errors of `build_loop`.
    """
    record = run_files.read_recipe_run(
        run, what="--profile", instead="name the function that trained this one as well: --loop MODULE:FUNCTION"
    )
    places = [
        Place(step=steps.start + (2 * at + 1) * len(steps) // (2 * PLACES), total_steps=record.steps)
        for at in range(PLACES)
    ]
    documents = documents_in(run, record)
    with rehearsed(counterfactual(record, target), data=data, documents=documents) as loop:
        counts = [_warm(loop, place) for place in places]
        # Round after round over all places, so that a machine that drifts drifts for all of them.
        windows = [
            [time_steps(loop, place, count=count) for place, count in zip(places, counts, strict=True)]
            for _ in range(WINDOWS)
        ]
    quartiles = [statistics.quantiles(seconds, n=4) for seconds in zip(*windows, strict=True)]
    low, middle, high = (statistics.mean(values) for values in zip(*quartiles, strict=True))
    return Duration(seconds=middle, low=low, high=high)


def _warm(loop: Loop, place: Place) -> int:
    """Warm the step up, and return how often it fits into a window."""
    time_steps(loop, place, count=WARMUP)
    return max(1, round(WINDOW_SECONDS / time_steps(loop, place, count=1)))
