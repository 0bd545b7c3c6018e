"""One attempt at a run of a place: what it takes over, what it publishes while it works, and how it ends.

An attempt works in a directory of its machine, an ordinary run directory. It begins with the newest checkpoint that any
attempt published, and publishes its own as they appear. All of that only saves time: a run's bits do not depend on
where it began again.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from explorer import run_files, rundir
from explorer.errors import PlaceError
from explorer.place.leases import Claim
from explorer.place.published_sweep import CheckpointAt, Finding, Published, ResultAt, RunAt, compared
from explorer.run_files import ResultRecord, RunRecord

CHECKPOINT = "step-*.json"

log = logging.getLogger(__name__)


class Attempt:
    """The work on one run under one claim."""

    def __init__(
        self, published: Published, claim: Claim, directory: Path, *, newest: Callable[[Path], int] | None = None
    ) -> None:
        """`newest` returns a number that grows with each checkpoint in a run directory; None: as Explorer's runs write
        them, the step."""
        self._published = published
        self._claim = claim
        self._directory = directory
        self._newest_in = newest or newest_step
        self._step = -1  # of the checkpoint that was published last
        self._saved = False  # whether there may be one
        self._known: dict[str, str] = {}  # files that this attempt published, by digest
        self._needed: list[set[str]] = []  # digests in its newest two checkpoints

    def begin(self, planned: RunAt) -> int:
        """Write what the run needs into the directory; return the step of the checkpoint that it continues, 0 for none.

        A checkpoint that is damaged is skipped, and the one before it tried: the steps in between are made again.
        """
        self._published.give(planned, self._directory)
        for checkpoint in self._checkpoints():
            try:
                self._published.download(checkpoint.run_id, checkpoint.epoch, checkpoint.files, self._directory)
            except PlaceError as error:
                log.warning("checkpoint of step %d: %s; continuing from the one before it", checkpoint.step, error)
                continue
            return checkpoint.step
        return 0

    def _checkpoints(self) -> Sequence[CheckpointAt]:
        if self._claim.epoch == 1:  # no attempt was before this one
            return ()
        keys = [listed.key for listed in self._published.objects.list(f"checkpoints/{self._claim.run_id}/")]
        stored = [self._published.find(CheckpointAt, key) for key in keys]
        return sorted(filter(None, stored), key=lambda checkpoint: -checkpoint.step)

    def save(self) -> None:
        """Publish the directory as it is, if it has a newer checkpoint than the last one that was published."""
        # The run continues meanwhile. What was copied while the newest checkpoint stayed the same is what a crash then
        # would have left: other files only grow, and are cut back to the checkpoint when the run is resumed.
        before = self._newest()
        if before <= self._step:
            return
        try:
            files = self._published.upload(self._directory, self._claim.run_id, self._claim.epoch, known=self._known)
        except OSError:  # a file went while it was read: the run wrote its next checkpoint
            return
        if self._newest() != before:
            return
        self._saved = True
        self._published.write(
            f"checkpoints/{self._claim.run_id}/{self._claim.epoch:08d}.json",
            CheckpointAt(run_id=self._claim.run_id, epoch=self._claim.epoch, step=before, files=files),
        )
        self._step = before
        # An attempt that reads the older checkpoint now may still need its files: they go one checkpoint later.
        self._needed = [*self._needed[-1:], set(files.digests.values())]
        for digest in set(self._known) - set().union(*self._needed):
            self._published.objects.remove(f"attempts/{self._claim.run_id}/{self._claim.epoch:08d}/{digest}")
            del self._known[digest]

    def _newest(self) -> int:
        return self._newest_in(self._directory)

    def finish(self) -> Finding | None:
        """Publish the result, once. If another attempt was first with another result, return that finding.

        Raises `PlaceError` if the place refuses; then nothing is published.
        """
        claim = self._claim
        result = run_files.read(ResultRecord, self._directory / rundir.RESULT)
        files = self._published.upload(self._directory, claim.run_id, claim.epoch, known=self._known)
        mine = ResultAt(run_id=claim.run_id, epoch=claim.epoch, host=claim.host, files=files, result=result)
        if self._published.create(f"results/{claim.run_id}.json", mine):
            self._clear(keep=set(files.digests.values()))
            return None
        first = self._published.find(ResultAt, f"results/{claim.run_id}.json")
        assert first is not None  # it could not be created
        return self._second(mine, first)

    def _second(self, mine: ResultAt, first: ResultAt) -> Finding | None:
        """Compare a result that came second with the first."""
        one, other = compared(first.result), compared(mine.result)
        differs = tuple(name for name in one if one[name] != other[name])
        if not differs:
            self._clear(keep=set())
            return None
        # The first attempt may have removed files of this one, which it did not know to be evidence.
        files = self._published.upload(self._directory, mine.run_id, mine.epoch, known={})
        finding = Finding(
            run_id=mine.run_id, epoch=mine.epoch, first=first.epoch, host=mine.host, differs=differs, files=files
        )
        self._published.write(f"findings/{mine.run_id}/{mine.epoch:08d}.json", finding)
        return finding

    def _clear(self, *, keep: set[str]) -> None:
        """Remove what this attempt published and no reader needs any more: its checkpoint, and files but those of the
        result."""
        run, epoch = self._claim.run_id, f"{self._claim.epoch:08d}"
        if self._saved:
            self._published.objects.remove(f"checkpoints/{run}/{epoch}.json")
        for digest in set(self._known) - keep:
            self._published.objects.remove(f"attempts/{run}/{epoch}/{digest}")


def newest_step(directory: Path) -> int:
    """Return the step of the newest checkpoint in a run directory; -1: there is none."""
    names = [path.stem for path in (directory / rundir.CHECKPOINT).glob(CHECKPOINT)]
    return max((int(name.removeprefix("step-")) for name in names), default=-1)


def collect(
    published: Published,
    record: RunRecord,
    directory: Path,
    *,
    delegated: bool = False,
    check: Callable[[Path], None] = lambda directory: None,
) -> ResultAt:
    """Write the published result of a run into its directory, whose own attempts it replaces.

    delegated  whether the run has a key of its own, and signed with it
    check      gets the directory when all files but `result.json` are there: what it raises leaves a run without a
               result

    Raises `PlaceError` for damaged files, for a result that is another run's, and for a delegated run that was
    published with another record.
    """
    run_id = record.run_id
    where = f"{published.objects.url}/results/{run_id}.json"
    result = published.find(ResultAt, f"results/{run_id}.json")
    if result is None:
        raise PlaceError(f"{published.objects.url}: run {run_id!r:.200} has no result")
    if result.run_id != run_id or result.result.run_id != run_id or rundir.RESULT not in result.files.digests:
        raise PlaceError(f"{where}: not the result of this run")
    first = [name for name in result.files.digests if name != rundir.RESULT]
    with rundir.locked(directory, what=f"run {run_id}"):
        for left in directory.rglob(".*.tmp"):  # of a process that was killed while it wrote; no other one writes now
            left.unlink()
        key = _give_key(published, record, directory) if delegated else None
        try:
            published.download(run_id, result.epoch, result.files, directory, only=first)
        finally:
            if key is not None:
                key.unlink()  # it has opened what was sealed for it, and signs nothing here
        run_files.write(directory / rundir.RUN, record)
        check(directory)
        published.download(run_id, result.epoch, result.files, directory, only=[rundir.RESULT])
        if run_files.read(ResultRecord, directory / rundir.RESULT) != result.result:
            raise PlaceError(f"{where}: its files have another result")
        (directory / rundir.FAILURE).unlink(missing_ok=True)
    return result


def _give_key(published: Published, record: RunRecord, directory: Path) -> Path | None:
    planned = published.run(record.run_id)
    if planned.run != record:
        raise PlaceError(f"{published.objects.url}/runs/{record.run_id}.json: not the run that is planned here")
    return published.give_key(planned, directory)
