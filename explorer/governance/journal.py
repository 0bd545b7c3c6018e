"""The journal of a governed run: from what happened in a step to the entries, commitments and blobs of its ledger.

It knows no training loop. A loop calls, in this order,

    begin(step, state)          once: the place in the ledger from which the run continues
    for each step:
        profile, decision       what was measured and decided before the step's entry
        step                    the step itself
        segment                 every so many steps and at the end: their numbers, the state, all of it durable
    end                         once

The numbers of confidential classes are sealed before they are anybody else's, and with them those over several classes
(provenance/sealing.py); commitments are to what was sealed.

A checkpoint of training may be written only while `settled`: right after `segment`. After a crash the run then begins
at a state that is on record, and what it executes again is compared (writer.py).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.entries import entropy_profile as profile_numbers
from explorer.entries.entropy_profile import LayerProfiles
from explorer.entries.fields import Blob, write_float
from explorer.entries.heads import MAX_BLOBS
from explorer.entries.kinds import Decision, End, Entry, Genesis, Profile, State, Step, TrainingState, encode
from explorer.entries.numbers import Floats, StepNumbers, encode_class, encode_joint
from explorer.entries.slots import slots_root
from explorer.errors import LedgerError, ProvenanceError
from explorer.governance.class_secrets import Sealer, erased, open_secrets
from explorer.governance.spool import ALL, JOINT, NUMBERS, SKETCHES, RecordedStep, Segment, Spool
from explorer.governance.writer import Writer
from explorer.note import Signer
from explorer.provenance.commitments import Salts
from explorer.provenance.routing_weights import Admission
from explorer.runlog.run_keys import OwnKeys
from explorer.runlog.tensors import BLOB as TENSORS
from explorer.runlog.tensors import Tensors

EVIDENCE = "evidence"  # blobs of a decision: evidence/<class>
WHOLE = "progress [0, 1]"  # the phase of a run without a policy


class Book(Protocol):
    """Where entries go: a ledger under way, or one that a replay is compared with."""

    @property
    def directory(self) -> Path: ...
    def begin(self, step: int) -> TrainingState | None: ...
    def write_blob(self, content: bytes) -> str: ...
    def put(self, leaf: bytes, *, step: int) -> None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class Journal:
    """Entries of one run, made from numbers."""

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
        """Use `open`. `leaves` are the leaf hashes of the tag table, rows x 32; without a spool none is written."""
        if len(secrets) != len(genesis.classes) + 1:
            raise ProvenanceError(
                f"{len(secrets)} secrets for {len(genesis.classes)} classes; expected one for each and the joint one"
            )
        most = (MAX_BLOBS - 3) // 2  # two blobs for each class; joint numbers, slots and tensors
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
    ) -> Self:
        """Begin the ledger in a run's directory, or go on with it. `confidential` classes are sealed.

        Raises `LedgerError` if it is another run's, and `ProvenanceError` if the secrets of its classes are gone.
        """
        secrets = open_secrets(run, genesis)
        if gone := erased(secrets, genesis):
            raise ProvenanceError(f"{run}: the secret of class {min(gone)!r} was destroyed: the run cannot go on")
        book = Writer.open(run / rundir.LEDGER, genesis=genesis, signer=signer)
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
        """Of the ledger."""
        return self._book.directory

    @property
    def settled(self) -> bool:
        """Return whether everything that was recorded is durable, so that training may write a checkpoint."""
        return not self._segment.steps

    def begin(self, step: int, state: TrainingState) -> None:
        """Go on after so many steps. Raises `LedgerError` if the ledger does not know this state at that step."""
        self._segment = Segment(self.genesis.classes, first=step)
        recorded = self._book.begin(step)
        if recorded is not None and recorded != state:
            raise LedgerError(
                f"step {step}: training goes on from another state than the ledger records: found {state}, "
                f"expected {recorded}; delete the checkpoint to go on from an earlier one"
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
    ) -> None:
        """One step. `rows` of the tag table in the order of the slots; `examples` by class; `updated` by layer."""
        record = RecordedStep(step=step, rows=rows, examples=tuple(examples), numbers=numbers)
        first = admission is not None and admission.digest not in self._segment.tables
        commitments: list[str | None] = [None] * len(self.genesis.classes)
        for place, index in enumerate(numbers.classes if numbers else ()):
            assert numbers is not None
            commitments[index] = self._commit(self.genesis.classes[index], Step, step, encode_class(numbers, place))
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
            blobs=self._blobs({"weights": admission.content} if admission and first else {}, Step, step),
        )
        self._put(entry, step)
        self._segment.add(record, sketches)
        if admission:
            self._segment.tables.add(admission.digest)

    def profile(self, profiles: LayerProfiles) -> None:
        """What was measured on the probes."""
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
        """What was decided, and by class the canonical bytes of the numbers that decided it."""
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
        """Close the segment after so many steps, with the state that they led to and the tensors that it is the state
        of; all of it is durable afterwards."""
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

    def end(
        self,
        step: int,
        state: TrainingState,
        *,
        tensors: Tensors,
        metrics: Mapping[str, float],
        outcome: str = "finished",
    ) -> None:
        """The run is done. Steps that stand in no segment yet raise `LedgerError`: close it first."""
        if not self.settled:
            raise LedgerError(f"the end after {step} steps: {len(self._segment.steps)} of them have no state entry yet")
        numbers = {name: write_float(value) for name, value in metrics.items()}
        blobs = self._blobs({TENSORS: tensors.content}, End, step)
        entry = End(step=step, outcome=outcome, state=state, metrics=numbers, blobs=blobs)  # pyright: ignore
        self._put(entry, step)
        self._book.commit()

    def close(self) -> None:
        """Let others have the ledger, without what is in no segment yet."""
        self._book.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, entry: Entry, step: int) -> None:
        self._book.put(encode(entry), step=step)

    def _blobs(self, contents: Mapping[str, bytes], of: type[Entry], first: int) -> dict[str, Blob]:
        """Store blobs, sealed where that is due. `of` and `first` are what the keys of numbers are derived with."""
        stored = {
            name: self._sealer.sealed(name, content, kind=of.KIND, first=first) for name, content in contents.items()
        }
        return {
            name: Blob(sha256=self._book.write_blob(content), size=len(content)) for name, content in stored.items()
        }

    def _commit(self, path: str, of: type[Entry], step: int, content: bytes) -> str:
        """Return the commitment to content of a class, or of several for *."""
        first = self._segment.first if of is Step else step
        return self._sealer.commit(path, content, kind=of.KIND, first=first, step=step)
