"""The journal of a governed run: turns the numbers of a step into entries, commitments and blobs of its ledger.

It knows no training loop. A loop calls, in this order,

    begin(step, state)          once: the place in the ledger from which the run continues
    for each step:
        profile, decision       measurements and decisions made before the step's entry
        step                    the step itself
        segment                 every so many steps and at the end: their numbers and the state, made durable
        trunk                   where another run made the steps so far: which one
    end                         once

A checkpoint of training may be written only while `settled`: right after `segment`. After a crash the run then begins
at a state that is on record, and what it executes again is compared with the ledger (writer.py).

**Secrets.** The salts of all commitments and the keys of encrypted blobs follow from the secrets of the run's classes
(provenance/commitments.py, runlog/run_keys.py). `private/secrets` of the run holds them in the order of the genesis;
the last one is for numbers over several classes. Destroying a secret erases what was committed to under it. After that
no commitment and no blob can be made with it; only a replay meets this case, and it leaves the placeholder out of its
comparison.

The numbers of confidential classes are encrypted before they are stored, and with them those over several classes;
commitments are to the plain numbers.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.entries import entropy_profile as profile_numbers
from explorer.entries.entropy_profile import LayerProfiles
from explorer.entries.fields import Blob, LedgerState, write_float
from explorer.entries.heads import MAX_BLOBS
from explorer.entries.kinds import Decision, End, Entry, Genesis, Profile, State, Step, TrainingState, Trunk, encode
from explorer.entries.numbers import Floats, StepNumbers, encode_class, encode_joint
from explorer.entries.slots import slots_root
from explorer.errors import LedgerError, ProvenanceError
from explorer.governance.spool import ALL, JOINT, NUMBERS, SKETCHES, RecordedStep, Segment, Spool
from explorer.governance.writer import Writer
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.note import Signer
from explorer.provenance.commitments import DESTROYED, Salts, commit, new_salts, read_salts, write_salts
from explorer.provenance.encryption import OVERHEAD, salt_of, seal
from explorer.provenance.routing_weights import Admission
from explorer.runlog.run_keys import OwnKeys
from explorer.runlog.run_ledger import class_of
from explorer.runlog.tensors import BLOB as TENSORS
from explorer.runlog.tensors import Tensors

EVIDENCE = "evidence"  # blobs of a decision: evidence/<class>
WHOLE = "progress [0, 1]"  # the phase of a run without a policy


class Book(Protocol):
    """Destination of entries: a ledger under way, or one that a replay is compared with."""

    @property
    def directory(self) -> Path: ...
    def begin(self, step: int) -> TrainingState | None: ...
    def write_blob(self, content: bytes) -> str: ...
    def put(self, leaf: bytes, *, step: int) -> None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class Journal:
    """Entries of one run, made from the numbers of its steps."""

    def __init__(
        self,
        book: Book,
        *,
        genesis: Genesis,
        secrets: Salts,
        leaves: NDArray[np.uint8],
        spool: Spool | None,
        confidential: frozenset[str],
    ) -> None:
        """Use `open`; a replay, which writes nothing, has a book of its own and no spool.

        Args:
            book: where the entries go.
            genesis: the first entry of the run; its classes give the order of all numbers.
            secrets: one for each class, and the last for numbers over several.
            leaves: leaf hashes of the tag table, rows x 32.
            spool: where the numbers are also written as Parquet; None: nowhere.
            confidential: classes whose numbers are encrypted.
        """
        if len(secrets) != len(genesis.classes) + 1:
            raise ProvenanceError(
                f"{len(secrets)} secrets for {len(genesis.classes)} classes; expected one for each and the joint one"
            )
        most = (MAX_BLOBS - 3) // 2  # of a segment: two blobs for each class; and joint numbers, slots and tensors
        if len(genesis.classes) > most:
            raise LedgerError(f"{len(genesis.classes)} classes; a segment of at most {most} is recorded")
        self.genesis = genesis
        self._book, self._leaves, self._spool = book, leaves, spool
        keys = OwnKeys(secrets=secrets, classes=genesis.classes)
        self._sealer = Sealer(keys, confidential=confidential)
        self._segment = Segment(genesis.classes, first=genesis.begins)

    @classmethod
    def open(
        cls,
        run: Path,
        *,
        genesis: Genesis,
        signer: Signer,
        leaves: NDArray[np.uint8],
        confidential: frozenset[str] = frozenset(),
        ranks: int | None = None,
    ) -> Self:
        """Begin the ledger in a run's directory, or continue it with so many processes, by default those of the
        genesis. Numbers of `confidential` classes are encrypted.

        Raises `LedgerError` if it is another run's, and `ProvenanceError` if the secrets of its classes are gone.
        """
        # Secrets come before the first entry: a ledger with commitments whose salts were lost would be unverifiable.
        secrets = open_secrets(run, genesis)
        if gone := OwnKeys(secrets=secrets, classes=genesis.classes).erased:
            raise ProvenanceError(f"{run}: the secret of class {min(gone)!r} was destroyed: the run cannot continue")
        book = Writer.open(run / rundir.LEDGER, genesis=genesis, signer=signer, ranks=ranks)
        try:
            return cls(
                book,
                genesis=genesis,
                secrets=secrets,
                leaves=leaves,
                spool=Spool(run, genesis, confidential=confidential),
                confidential=confidential,
            )
        except BaseException:
            book.close()
            raise

    @property
    def directory(self) -> Path:
        """Return the directory of the ledger."""
        return self._book.directory

    @property
    def settled(self) -> bool:
        """Return whether everything that was recorded is durable, so that training may write a checkpoint."""
        return not self._segment.steps

    @property
    def head(self) -> LedgerState:
        """Return the ledger as far as it is durable."""
        checkpoint = LedgerDirectory(self.directory).checkpoint()
        return LedgerState(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex())

    def begin(self, step: int, state: TrainingState | None) -> None:
        """Continue after this many steps. Raises `LedgerError` unless the ledger records this state at that step; None:
        it is that of a trunk, which is to be recorded."""
        self._segment = Segment(self.genesis.classes, first=step)
        recorded = self._book.begin(step)
        if recorded is not None and recorded != state:
            raise LedgerError(
                f"step {step}: training continues from another state than the ledger records: found {state}, "
                f"expected {recorded}; delete the checkpoint to continue from an earlier one"
            )

    def step(
        self,
        step: int,
        *,
        rows: NDArray[np.int64],
        examples: Sequence[int],
        quarantined: int,
        updated: Sequence[bool],
        admission: Admission | None = None,
        numbers: StepNumbers | None = None,
        sketches: Floats | None = None,
        estimated: bool = False,
    ) -> None:
        """Record one step.

        Args:
            step: its number, from 0.
            rows: of the tag table, in the order of the slots.
            examples: how many each class of the genesis had.
            quarantined: slots that stayed empty because their examples are in quarantine.
            updated: by layer, whether the step may have changed it.
            admission: the admission table in force; None: the run has no policy.
            numbers: contributions; None: none were measured.
            sketches: of the classes with numbers, k L 64.
            estimated: whether the numbers follow from the sketches.
        """
        record = RecordedStep(step=step, rows=rows, examples=tuple(examples), numbers=numbers)
        # A class without numbers in this step has no commitment, which is not the same as a commitment to zeros.
        commitments: list[str | None] = [None] * len(self.genesis.classes)
        for place, index in enumerate(numbers.classes if numbers else ()):
            assert numbers is not None
            commitments[index] = self._commit(self.genesis.classes[index], Step, step, encode_class(numbers, place))
        # The admission table is stored with the first step of a segment that uses it and named by its digest after
        # that, so that each segment can be read without the ones before it.
        first = admission is not None and admission.digest not in self._segment.tables
        entry = Step(
            step=step,
            phase=str(admission.phase) if admission else WHOLE,
            slots=slots_root(rows, self._leaves).hex(),
            examples=record.examples,
            numbers=tuple(commitments),
            joint=None if numbers is None else self._commit(ALL, Step, step, encode_joint(numbers)),
            quarantined=quarantined,
            weights=admission.digest if admission else None,
            updated="".join("1" if flag else "0" for flag in updated),
            estimated=estimated,
            blobs=self._blobs({"weights": admission.content} if admission and first else {}, Step, step),
        )
        self._put(entry, step)
        self._segment.add(record, sketches)
        if admission:
            self._segment.tables.add(admission.digest)

    def profile(self, profiles: LayerProfiles) -> None:
        """Record a profile of the probes."""
        step, commitments, contents = profiles.step, {}, {}
        for place, index in enumerate(profiles.classes):
            name, content = self.genesis.classes[index], profile_numbers.encode_class(profiles, place)
            commitments[name] = self._commit(name, Profile, step, content)
            contents[f"{NUMBERS}/{name}"] = content
        contents[JOINT] = profile_numbers.encode_joint(profiles)
        joint = self._commit(ALL, Profile, step, contents[JOINT])
        blobs = self._blobs(contents, Profile, step)
        self._put(Profile(step=step, probes=profiles.probes, classes=commitments, joint=joint, blobs=blobs), step)
        if self._spool:
            self._spool.write_entropy(profiles)

    def decision(
        self,
        step: int,
        *,
        action: str,
        rule: str,
        parameters: Mapping[str, float],
        subjects: Sequence[str],
        layers: Sequence[str],
        evidence: Mapping[str, bytes],
        condition: str | None = None,
    ) -> None:
        """Record a decision made after this many steps.

        Args:
            step: the number of steps done.
            action: one of `entries.kinds.Decision`, such as freeze or activation.
            rule: the name of the rule that decided.
            parameters: thresholds of the rule.
            subjects: class paths; none: all.
            layers: names of layers; none: all.
            evidence: by class, the canonical bytes of the numbers that decided.
            condition: of the policy, if the decision switches one on.
        """
        commitments = {name: self._commit(name, Decision, step, content) for name, content in evidence.items()}
        entry = Decision(
            step=step,
            action=action,  # pyright: ignore[reportArgumentType]  (checked when the entry is encoded)
            rule=rule,
            parameters={name: write_float(value) for name, value in parameters.items()},
            condition=condition,
            subjects=tuple(subjects),
            layers=tuple(layers),
            evidence=commitments,
            blobs=self._blobs({f"{EVIDENCE}/{name}": content for name, content in evidence.items()}, Decision, step),
        )
        self._put(entry, step)

    def segment(self, step: int, state: TrainingState, *, tensors: Tensors | None = None) -> None:
        """Close the segment after this many steps, with the state that they led to and the tensors of that state; all
        of it is durable afterwards."""
        # The spool comes first: written again after a crash it has the same bytes, while a committed segment whose
        # spool is missing would never be executed again.
        if self._spool:
            self._spool.write_contributions(self._segment.steps)
        contents = self._segment.blobs() | ({} if tensors is None else {TENSORS: tensors.content})
        blobs = self._blobs(contents, Step, self._segment.first)
        sketches = [contents.get(f"{SKETCHES}/{path}") for path in self.genesis.classes]
        committed = tuple(
            None if content is None else self._commit(path, Step, step, content)
            for path, content in zip(self.genesis.classes, sketches, strict=True)
        )
        self._put(State(step=step, state=state, blobs=blobs, sketches=committed if any(committed) else ()), step)
        self._segment = Segment(self.genesis.classes, first=step)
        self._book.commit()

    def sum_sketches(self, sketches: Mapping[int, Floats]) -> None:
        """Take the sums of the sketches of the segment, by class, from a record of its steps."""
        self._segment.sketches |= sketches

    def trunk(self, step: int, *, run: str, ledger: LedgerState, state: TrainingState) -> None:
        """Record that another run made the steps so far, whose ledger this was then. Raises `LedgerError` for steps
        that are in no segment yet."""
        if not self.settled:
            raise LedgerError(f"the trunk of {step} steps: {len(self._segment.steps)} of them have no state entry yet")
        self._put(Trunk(step=step, run=run, ledger=ledger, state=state, blobs={}), step)
        self._book.commit()

    def end(
        self,
        step: int,
        state: TrainingState,
        *,
        tensors: Tensors,
        metrics: Mapping[str, float],
        outcome: str = "finished",
    ) -> None:
        """Record the end of the run. Raises `LedgerError` for steps that are in no segment yet: close it first."""
        if not self.settled:
            raise LedgerError(f"the end after {step} steps: {len(self._segment.steps)} of them have no state entry yet")
        numbers = {name: write_float(value) for name, value in metrics.items()}
        blobs = self._blobs({TENSORS: tensors.content}, End, step)
        entry = End(step=step, outcome=outcome, state=state, metrics=numbers, blobs=blobs)  # pyright: ignore
        self._put(entry, step)
        self._book.commit()

    def close(self) -> None:
        """Release the ledger, without the steps that are in no segment yet."""
        self._book.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, entry: Entry, step: int) -> None:
        self._book.put(encode(entry), step=step)

    def _blobs(self, contents: Mapping[str, bytes], of: type[Entry], first: int) -> dict[str, Blob]:
        """Store blobs, encrypted where the class is confidential. `of` and `first` take part in deriving the keys."""
        stored = {
            name: self._sealer.sealed(name, content, kind=of.KIND, first=first) for name, content in contents.items()
        }
        return {
            name: Blob(sha256=self._book.write_blob(content), size=len(content)) for name, content in stored.items()
        }

    def _commit(self, path: str, of: type[Entry], step: int, content: bytes) -> str:
        """Return the commitment to content of a class, or of several for *."""
        # The steps of a segment share one key, so that a grant opens whole segments; other entries have their own keys.
        first = self._segment.first if of is Step else step
        return self._sealer.commit(path, content, kind=of.KIND, first=first, step=step)


# --- the secrets of a run's classes ---


def open_secrets(run: Path, genesis: Genesis) -> Salts:
    """Return the secrets of the run, and make them when it begins.

    Raises `ProvenanceError` where a ledger was written with secrets that are not there.
    """
    path, ledger = run / rundir.SECRETS, run / rundir.LEDGER
    if not path.exists():
        if (ledger / CHECKPOINT).exists() and LedgerDirectory(ledger).checkpoint().size:
            raise ProvenanceError(f"{path}: missing, and the ledger next to it was written with it")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # In place whole or not at all: a crash leaves a temporary file that the next attempt does not read.
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        write_salts(temporary, new_salts(len(genesis.classes) + 1))
        temporary.rename(path)
        rundir.flush_directory(path.parent)
    return read_salts(path)


def read_secrets(run: Path, genesis: Genesis) -> Salts:
    """Return the secrets that are left: none of them where the file is absent."""
    path = run / rundir.SECRETS
    return read_salts(path) if path.exists() else Salts(content=DESTROYED * (len(genesis.classes) + 1))


NOTHING = hashlib.sha256(b"").hexdigest()  # in place of what cannot be made without a secret


class Sealer:
    """Commitments and encryption of one run."""

    def __init__(self, keys: OwnKeys, *, confidential: frozenset[str]) -> None:
        self._keys = keys
        # Numbers over several classes would give away the confidential one: the others' can be subtracted from them.
        self._sealed = confidential | {ALL} if confidential else confidential

    def commit(self, path: str, content: bytes, *, kind: str, first: int, step: int) -> str:
        """Return the commitment of this step's entry to content of a class, or of several for *.

        Without the secret the result is `NOTHING`, which a replay does not compare.
        """
        key = self._keys.of(path, kind, first)
        return NOTHING if key is None else commit(salt_of(key, step), content).hex()

    def sealed(self, name: str, content: bytes, *, kind: str, first: int) -> bytes:
        """Return a blob as it is stored; without the secret, zeros of its size."""
        path = class_of(name)
        if path not in self._sealed:
            return content
        key = self._keys.of(path, kind, first)
        return bytes(len(content) + OVERHEAD) if key is None else seal(key, content, kind=kind, name=name, first=first)
