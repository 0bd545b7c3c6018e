"""The third condition: every update is ledgered so that it can be reconstructed.

The entries follow one another without a gap and come to an end; the end and a state follow the last step; every step
has numbers, and such as are geometrically possible; everything that an entry names is present and has its digest. Where
the secrets of the classes are present too, every commitment is opened, and otherwise those that the reader has keys
for. The numbers of a profile have to be such as its probes can have. Where secret and numbers of a class were erased,
and the project's ledger says so, the condition cannot be told; erased without such an entry, they contradict it. For
sealed content only digest and size are checked: the condition cannot be told without a grant.
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
    """Entry, class path, what was committed, what was found; of every content that is here and has a key. `sealed` is
    told the name of each blob that does not open.

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

TOLERANCE = 1e-2  # of the smallest eigenvalue of the cosines: products may be summed in as little as ten bits
SHORTEST = 1e-20  # shorter vectors count as this long: their squares are lost in single precision


def impossible(numbers: StepNumbers) -> NDArray[np.int64]:
    """Return the layers in which no gradients and no update have these numbers. What is not finite says nothing."""
    gram, dots = numbers.gram.astype(np.float64), numbers.dots.T.astype(np.float64)
    lengths = np.column_stack([(numbers.weights * numbers.norms.astype(np.float64)).T, np.sqrt(numbers.updates)])
    products = np.concatenate([gram, dots[:, None, :]], axis=1)
    products = np.concatenate([products, np.append(dots, np.square(lengths[:, -1:]), axis=1)[:, :, None]], axis=2)
    finite = np.isfinite(products).all(axis=(1, 2)) & np.isfinite(lengths).all(axis=1)
    scales = np.maximum(lengths[finite], SHORTEST)
    cosines = products[finite] / scales[:, :, None] / scales[:, None, :]
    each = np.arange(cosines.shape[1])
    cosines[:, each, each] = 1.0
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
            # A note: the secrets are the trainer's own, and no auditor has them. The numbers are here, and the entry of
            # their state names each blob by its digest; a commitment adds that the step said the same.
            judgement.note("commitments were not opened: the secrets of the classes are not here")
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
        # Whatever the other conditions cannot judge here, this one is about: numbers that cannot be read are missing.
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
        """Commitments, and what they should have been."""
        for index, path, expected, found in opened:
            self._judgement.count("commitments")
            if found != expected:
                words = f"{path}: its numbers are not those that the entry committed to"
                self._judgement.contradict(index, words, expected=expected, found=found)

    def _destroyed(self, path: str) -> None:
        """The secret of a class, * for that of numbers over several."""
        name = "joint" if path == JOINT else f"numbers/{path}"
        if self._withheld.entries(name):
            self._withheld.tell(self._judgement, name, Missing.NOT_HERE)
        else:
            of = "numbers over several classes" if path == JOINT else path
            self._judgement.contradict(None, f"{of}: the secret was destroyed, and {self._withheld.without}")

    def _sealed(self, name: str) -> None:
        self._withheld.tell(self._judgement, name, Missing.SEALED)

    def _ends(self) -> None:
        """The end, and a state behind the last step."""
        run, last = self._run, self._run.outline.states[-1:]
        begun_there = run.genesis.start is not None and run.begins == run.steps  # no step of its own: nothing to close
        if not begun_there and (not last or last[0][0] != run.steps):
            found = f"the last one is after {last[0][0]}" if last else "there is none"
            self._judgement.contradict(None, f"no state after {run.steps} steps: {found}")
        if run.outline.end is None:
            self._judgement.contradict(None, "the ledger has no end: the run is unfinished, or its end was cut off")

    def _heads(self) -> Iterator[Head]:
        """Yield all entries, whose blobs have to be here."""
        for index, leaf in enumerate(self._run.ledger.entries()):
            self._judgement.count("entries")
            head = read_head(leaf)
            if (head.kind, head.version) not in KINDS:
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
