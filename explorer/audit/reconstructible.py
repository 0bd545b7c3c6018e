"""The third condition: every update is ledgered so that it can be reconstructed.

- Entries follow one another without a gap. A state and the end follow the last step.
- Every step has numbers, and they are geometrically possible. The numbers of a profile fit its probes.
- Everything that an entry names is present and has its digest.
- Every commitment opens: all of them where the secrets of the classes are present, else those that the reader has keys
  for.

Numbers that were erased leave the condition open where the project's ledger has an entry about it, and contradict it
otherwise. Sealed content is checked only by digest and size; without a grant it leaves the condition open.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.audit.conditions import Judgement
from explorer.audit.history import profile_faults
from explorer.audit.judge import Audited, Judge
from explorer.entries.heads import Head, check_sequence, read_head
from explorer.entries.kinds import KINDS, Decision, Profile
from explorer.entries.numbers import StepNumbers
from explorer.errors import ExplorerError, LedgerError
from explorer.ledger.storage import blob_path, read_blob
from explorer.provenance.commitments import commit
from explorer.provenance.encryption import salt_of
from explorer.runlog.run_keys import JOINT, Keys, NoKeys, OwnKeys
from explorer.runlog.run_ledger import Missing, Placed, RunLedger, Segment
from explorer.runlog.segments import SegmentNumbers, open_commitments, open_sketches

# --- commitments of profiles and decisions ---

MAX_BYTES = 2**24


def open_entries(run: RunLedger, keys: Keys, *, sealed: Callable[[str], None]) -> Iterator[tuple[int, str, str, str]]:
    """Open the commitments of profiles and decisions; yield entry, class path, commitment in the entry, commitment
    computed from the content. `sealed` is called with the name of each blob that does not open.

    Raises `LedgerError` for a blob that is damaged or sealed with another key.
    """
    for placed in run.read(sorted((*run.outline.profiles, *run.outline.past_profiles)), Profile):
        contents = {path: (f"numbers/{path}", committed) for path, committed in placed.entry.classes.items()}
        contents[JOINT] = ("joint", placed.entry.joint)
        yield from _opened(run, placed, contents, keys, sealed)
    for placed in run.read(run.outline.decisions, Decision):
        contents = {path: (f"evidence/{path}", committed) for path, committed in placed.entry.evidence.items()}
        yield from _opened(run, placed, contents, keys, sealed)


def _opened(
    run: RunLedger,
    placed: Placed[Any],
    contents: dict[str, tuple[str, str]],
    keys: Keys,
    sealed: Callable[[str], None],
) -> Iterator[tuple[int, str, str, str]]:
    step = placed.entry.step
    for path, (name, committed) in contents.items():
        content, key = run.find(placed, name, max_bytes=MAX_BYTES), keys.of(path, placed.entry.KIND, step)
        if content is Missing.SEALED:
            sealed(name)
        elif key is not None and not isinstance(content, Missing):
            yield placed.index, path, committed, commit(salt_of(key, step), content).hex()


# --- possible numbers ---

TOLERANCE = 1e-2  # of the smallest eigenvalue of the cosines: products may have been summed with only ten bits
SHORTEST = 1e-20  # shorter vectors count as this long: their squares underflow in single precision


def impossible(numbers: StepNumbers) -> NDArray[np.int64]:
    """Return the layers whose numbers no gradients and no update can have. Numbers that are not finite are skipped."""
    # Inner products of real vectors form a positive semidefinite matrix: here of the classes' gradients and, as the
    # last row and column, the update. As cosines, layers of any scale are judged by one tolerance.
    gram, dots = numbers.gram.astype(np.float64), numbers.dots.T.astype(np.float64)
    lengths = np.column_stack([(numbers.weights * numbers.norms.astype(np.float64)).T, np.sqrt(numbers.updates)])
    products = np.concatenate([gram, dots[:, None, :]], axis=1)
    products = np.concatenate([products, np.append(dots, np.square(lengths[:, -1:]), axis=1)[:, :, None]], axis=2)
    finite = np.isfinite(products).all(axis=(1, 2)) & np.isfinite(lengths).all(axis=1)
    scales = np.maximum(lengths[finite], SHORTEST)
    cosines = products[finite] / scales[:, :, None] / scales[:, None, :]
    diagonal = np.arange(cosines.shape[1])
    cosines[:, diagonal, diagonal] = 1.0
    return np.flatnonzero(finite)[np.linalg.eigvalsh(cosines)[:, 0] < -TOLERANCE]


# --- the condition ---


class Reconstructible(Judge):
    """Judge of completeness: of the whole ledger first, then of each segment's numbers."""

    name = "reconstructible"
    says = "every update is ledgered so that it can be reconstructed: no step, state or number is missing"

    def __init__(self, audited: Audited, judgement: Judgement) -> None:
        super().__init__(audited, judgement)
        run = audited.run
        self._keys: Keys = NoKeys()
        with judgement.reading():
            self._keys = run.keys
        if isinstance(self._keys, NoKeys):
            # Only a note: the secrets are the trainer's, and no auditor has them. The numbers are bound without them:
            # their state's entry names each blob by its digest. A commitment adds that the step had the same numbers.
            judgement.note("commitments were not opened: the secrets of the classes are missing")
        elif isinstance(self._keys, OwnKeys):
            for path in sorted(self._keys.erased):
                self._destroyed(path)
        with self._judgement.reading():
            check_sequence(self._heads())
        self._ends()
        with judgement.reading():
            self._compare(open_entries(run, self._keys, sealed=self._sealed))
            for index, fault in profile_faults(run):
                judgement.contradict(index, fault)

    def unreadable(self, segment: Segment, error: ExplorerError) -> None:
        # To the other conditions this is a gap; to this one, which requires all numbers, it is a contradiction.
        self._judgement.contradict(segment.state.index, str(error))

    def segment(self, segment: Segment, numbers: SegmentNumbers) -> None:
        self._judgement.count("segments")
        for placed in numbers.steps:
            self._judgement.count("steps")
            if placed.entry.joint is None:
                self._judgement.contradict(placed.index, f"step {placed.entry.step}: nothing was measured")
        for name, why in numbers.missing.items():
            if why is Missing.SEALED:
                self._sealed(name)
        with self._judgement.reading(segment.state.index):
            self._compare(open_commitments(numbers, self._keys))
            self._compare(open_sketches(self._run, segment, self._keys))
        if not numbers.missing:
            with self._judgement.reading(segment.state.index):
                for placed, step in numbers.by_step():
                    self._judgement.count("numbers", step.weights.size)
                    for at in impossible(step):
                        words = f"step {placed.entry.step}: no gradients and no update have the numbers of"
                        self._judgement.contradict(placed.index, f"{words} {self._run.genesis.layers[at]}")

    def _compare(self, opened: Iterable[tuple[int, str, str, str]]) -> None:
        """Compare commitments with those computed from the contents."""
        for index, path, expected, computed in opened:
            self._judgement.count("commitments")
            if computed != expected:
                words = f"{path}: its numbers are not those that the entry committed to"
                self._judgement.contradict(index, words, expected=expected, found=computed)

    def _destroyed(self, path: str) -> None:
        """Judge a destroyed secret: of a class, or of numbers over several (*)."""
        name = "joint" if path == JOINT else f"numbers/{path}"
        if self._withheld.entries(name):
            self._withheld.tell(self._judgement, name, Missing.NOT_HERE)
        else:
            of = "numbers over several classes" if path == JOINT else path
            self._judgement.contradict(None, f"{of}: the secret was destroyed, and {self._withheld.without}")

    def _sealed(self, name: str) -> None:
        self._withheld.tell(self._judgement, name, Missing.SEALED)

    def _ends(self) -> None:
        """Check that a state closes the last step, and that the ledger has an end."""
        # A run that a deletion made by structure has no step of its own, so there is nothing to close.
        run, last = self._run, self._run.outline.states[-1:]
        no_step = run.genesis.start is not None and run.begins == run.steps
        if not no_step and (not last or last[0][0] != run.steps):
            latest = f"the last one is after {last[0][0]}" if last else "there is none"
            self._judgement.contradict(None, f"no state after {run.steps} steps: {latest}")
        if run.outline.end is None:
            self._judgement.contradict(None, "the ledger has no end: the run is unfinished, or its end was cut off")

    def _heads(self) -> Iterator[Head]:
        """Yield the heads of all entries, and check that their blobs are present."""
        for index, leaf in enumerate(self._run.ledger.entries()):
            self._judgement.count("entries")
            head = read_head(leaf)
            if (head.kind, head.version) not in KINDS:
                # Kept and reported, never skipped: an unknown entry may say anything about the run.
                words = f"an entry of a kind that is not known here: {head.kind} v{head.version}"
                self._judgement.contradict(index, words)
            for name, blob in head.blobs.items():
                self._blob(index, name, blob.sha256, blob.size)
            yield head

    def _blob(self, index: int, name: str, digest: str, size: int) -> None:
        directory = self._run.ledger.path
        if not (directory / blob_path(digest)).exists():
            if self._withheld.entries(name):
                self._judgement.count("erased blobs")
                self._withheld.tell(self._judgement, name, Missing.NOT_HERE)
            else:
                self._judgement.contradict(index, f"{name}: the blob is {self._withheld.words(name)}", expected=digest)
            return
        try:
            content = read_blob(directory, digest)
        except LedgerError as error:
            self._judgement.contradict(index, f"{name}: {error}")
            return
        self._judgement.count("blobs")
        if len(content) != size:
            self._judgement.contradict(index, f"{name}: {len(content)} bytes", expected=size, found=len(content))
