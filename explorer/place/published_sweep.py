"""A sweep at a place: its plan, what every run needs, and what came of it.

    plan.json                          the classes of machines, and the runs of each in order
    runs/<run>.json                    a run's record, its class of machines, and the digests of its documents
    given/<sha256>                     a document of runs, or a file of the command that trains them
    claims/<run>/<epoch>.json          which worker has the run (leases.py)
    attempts/<run>/<epoch>/<sha256>    a large file that this attempt published
    checkpoints/<run>/<epoch>.json     the files of the attempt's newest checkpoint
    results/<run>.json                 created once: the files of the finished run
    failures/<run>.json                why the run is not tried again
    findings/<run>/<epoch>.json        a second result that differs from the first
    profiles/<class>/<key>.json        step times of a recipe
    permits/<driver>                   calls that a start of the sweep made elsewhere stop once it is gone

A place holds one sweep. Execution is at least once: workers may die, or be cut off and go on. Publication is exactly
once: `results/<run>.json` can be created only once. An attempt that comes second compares what it has with the result.
Training is deterministic, so they are equal; where they are not, both are kept and the difference is a finding.

Files are stored below their attempt, by their digest: attempts never write over each other, and a reader checks what it
gets. Small files are in the record that names them, since a request to a bucket takes longer than their bytes do.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from explorer import run_files, rundir
from explorer.errors import PlaceError
from explorer.machine_class import Machine
from explorer.objects import MAX_OBJECT, Missing, Objects, open_objects
from explorer.place.leases import Claim, forgive
from explorer.provenance.keys import replace_private
from explorer.run_files import OF_A_RUN, ResultRecord, RunRecord
from explorer.runlog.delegating import DELEGATION, RUN_KEY, open_sealed, receive, seal
from explorer.runlog.documents import SALTS_FILE
from explorer.schema import from_json, parse_json, record, to_json

MAX_JSON = 16 * 2**20  # bytes of a record
MAX_RUNS = 1_000_000
MAX_CLASSES = 1000
MAX_MESSAGE = 10_000  # characters
MAX_TASK = 256 * 2**20  # bytes of the files of a command, all together
MAX_TASK_FILES = 1000
AT_ONCE = 16  # requests for records; most of their time is waiting
FILES_AT_ONCE = 4  # files of a run that are held in memory
SMALL = 2**18  # bytes of a file that is kept in a record
MAX_SMALL = 2**20  # bytes of all of them in one record
OWN = (rundir.LOCK, rundir.RUN, RUN_KEY, f"{rundir.PRIVATE}/{SALTS_FILE}")
"""Files of a run directory that no attempt publishes: every machine has its own, or gets them from the plan. The signed
documents are among them, in `governance/`."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FailureKind = Literal["exception", "diverged", "set aside"]
Record = TypeVar("Record")
Item = TypeVar("Item")


@record
class ClassAt:
    """A class of machines in `plan.json`, with its runs."""

    machine: Machine
    runs: Annotated[tuple[str, ...], Field(max_length=MAX_RUNS)]  # in the order in which they are executed
    profile: bool  # whether step times are to be measured there, before the first run

    @property
    def measuring(self) -> str:
        """The name that a worker claims to measure them, in place of a run's."""
        return f"step-times-{self.machine.label}"

    @property
    def profiles(self) -> str:
        """The folder of the step times."""
        return f"profiles/{self.machine.label}/"


@record
class PlanAt:
    """`plan.json`."""

    format: Literal[1] = 1
    sweep: Annotated[str, Field(min_length=1, max_length=200)]
    classes: Annotated[tuple[ClassAt, ...], Field(min_length=1, max_length=MAX_CLASSES)]

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs of all classes."""
        return tuple(run_id for own in self.classes for run_id in own.runs)


@record
class TaskAt:
    """A command or notebook of the user's that trains runs, in words of its specification."""

    directory: Annotated[str, Field(max_length=4096)]  # at home, for people
    files: Annotated[dict[str, Digest], Field(max_length=MAX_TASK_FILES)]  # by their path in the directory
    programs: tuple[str, ...]  # of the files, those that can be executed
    named: tuple[str, ...]  # `files`
    env: tuple[str, ...]
    timeout: float | None


@record
class RunAt:
    """`runs/<run>.json`."""

    format: Literal[2] = 2
    run: RunRecord
    machine: Machine  # of its class
    given: dict[str, Digest]  # documents, by their path in the run directory
    task: TaskAt | None = None  # None: a recipe of Explorer's


@record
class Files:
    """Files of a run directory, by their path in it, as an attempt published them."""

    digests: dict[str, Digest]
    small: dict[str, str]  # the contents of those that are not in `attempts/`, in base 64


@record
class CheckpointAt:
    """`checkpoints/<run>/<epoch>.json`."""

    format: Literal[2] = 2
    run_id: str
    epoch: int
    step: int
    files: Files


@record
class ResultAt:
    """`results/<run>.json`."""

    format: Literal[2] = 2
    run_id: str
    epoch: int
    host: str
    files: Files
    result: ResultRecord


@record
class FailureAt:
    """`failures/<run>.json`."""

    format: Literal[1] = 1
    run_id: str
    epoch: int
    host: str
    kind: FailureKind
    message: str


@record
class Finding:
    """`findings/<run>/<epoch>.json`: an attempt came second, with another result."""

    format: Literal[2] = 2
    run_id: str
    epoch: int  # of this attempt
    first: int  # of the attempt whose result counts
    host: str
    differs: tuple[str, ...]  # what is not equal
    files: Files


def compared(result: ResultRecord) -> dict[str, Any]:
    """Return what has to be equal in two executions of a run; times, memory and restarts may differ."""
    return {
        # What recording took is a time too.
        "metrics": {name: value for name, value in result.metrics.items() if name not in OF_A_RUN},
        "steps": result.steps,
        "examples": result.examples,
        "state_digest": result.state_digest,
    }


class Published:
    """A sweep at a place."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    @classmethod
    def at(cls, url: str) -> "Published":
        """Return the sweep at a directory or a bucket. Raises `PlaceError` for a place that cannot be used."""
        return cls(open_objects(url))

    # --- the plan ---

    def publish(
        self,
        plan: PlanAt,
        runs: Sequence[RunRecord],
        *,
        given: Callable[[RunRecord], Mapping[str, bytes]] = lambda run: {},
        task: TaskAt | None = None,
        contents: Iterable[bytes] = (),
    ) -> None:
        """Publish a plan and its runs. Again with more runs: they are added, and those that are there stay.

        given     returns the files that a run needs, by path in its directory. It is called once for a run: the key of
                  a run that has begun cannot be exchanged.
        task      of runs that a command trains
        contents  of the task's files, which are asked for where there are new runs

        Raises `PlaceError` where the place holds another sweep.
        """
        known = self.find(PlanAt, "plan.json")
        if known is not None and known.sweep != plan.sweep:
            where = self.objects.url
            raise PlaceError(f"{where}: holds sweep {known.sweep!r}; expected an empty place, or {plan.sweep!r}")
        machines = [own.machine for own in plan.classes]
        same = () if known is None else (own for own in known.classes if own.machine in machines)
        old = {run_id for own in same for run_id in own.runs}
        machine_of = {run_id: own.machine for own in plan.classes for run_id in own.runs}

        def add(run: RunRecord) -> None:
            digests = {}
            for name, content in given(run).items():
                digests[name] = sha256(content)
                self.objects.put(f"given/{digests[name]}", content)
            at = RunAt(run=run, machine=machine_of[run.run_id], given=digests, task=task)
            self.write(f"runs/{run.run_id}.json", at)

        new = [run for run in runs if run.run_id not in old]
        for content in contents if new else ():
            self.objects.put(f"given/{sha256(content)}", content)
        self._all(new, add)
        self.write("plan.json", plan)  # last: a run that it names is there

    def plan(self) -> PlanAt:
        """Return the plan. Raises `PlaceError` where no sweep is published."""
        plan = self.find(PlanAt, "plan.json")
        if plan is None:
            raise PlaceError(f"{self.objects.url}: no sweep is published here; expected plan.json")
        return plan

    def run(self, run_id: str) -> RunAt:
        """Return what a run needs. Raises `PlaceError` for a run that is not published, or another one's record."""
        run = self.find(RunAt, f"runs/{run_id}.json")
        if run is None:
            raise PlaceError(f"{self.objects.url}: no run {run_id!r:.200} is published here")
        if run.run.run_id != run_id:
            raise PlaceError(
                f"{self.objects.url}/runs/{run_id}.json: the record of another run, {run.run.run_id!r:.200}"
            )
        return run

    def give(self, run: RunAt, directory: Path) -> None:
        """Write a run's record, and the files that it needs, into its directory.

        Raises `ProvenanceError` for files that are not those of a delegated run.
        """
        if run.given:
            receive({name: self._checked(f"given/{digest}", digest) for name, digest in run.given.items()}, directory)
        run_files.write(directory / rundir.RUN, run.run)

    def give_task(self, task: TaskAt, directory: Path) -> None:
        """Write the files of a command into an empty directory. Raises `PlaceError` for damaged ones, for names that
        lead elsewhere, and for more than `MAX_TASK` bytes."""
        room = MAX_TASK
        for name, digest in task.files.items():
            path = inside(directory, name)
            content = self._checked(f"given/{digest}", digest, max_bytes=room)
            room -= len(content)
            rundir.write_bytes(path, content)
            if name in task.programs:
                path.chmod(0o755)

    def give_key(self, run: RunAt, directory: Path) -> Path | None:
        """Write the key of a delegated run into its directory at home, where it opens what was sealed for it, and the
        delegation; return the key's path. None: the run has none."""
        if RUN_KEY not in run.given:
            return None
        content = {name: self._checked(f"given/{run.given[name]}", run.given[name]) for name in (RUN_KEY, DELEGATION)}
        replace_private(directory / RUN_KEY, content[RUN_KEY])
        rundir.write_bytes(directory / DELEGATION, content[DELEGATION])
        return directory / RUN_KEY

    # --- what an attempt publishes ---

    def upload(self, directory: Path, run_id: str, epoch: int, *, known: dict[str, str]) -> Files:
        """Publish the large files of a run directory; return all of them, the small ones with their contents. Secrets
        are sealed for the run's key.

        `known` has the names of the files that this attempt has published, by digest; it is extended.
        """

        def content_of(path: Path) -> bytes:
            content = path.read_bytes()
            if path.relative_to(directory).as_posix() == rundir.SECRETS:
                return seal(content, (directory / DELEGATION).read_bytes(), what=rundir.SECRETS)
            return content

        def publish(path: Path) -> str:
            content = content_of(path)
            digest = sha256(content)
            if digest not in known:
                self.objects.put(f"attempts/{run_id}/{epoch:08d}/{digest}", content)
                known[digest] = path.relative_to(directory).as_posix()
            return digest

        paths = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
        own = sorted(path for path in paths if _is_published(path.relative_to(directory)))
        digests, small, room = dict[Path, str](), dict[Path, bytes](), MAX_SMALL
        for path in sorted(own, key=lambda path: path.stat().st_size):
            if path.stat().st_size > min(SMALL, room):
                break
            small[path] = content_of(path)
            digests[path] = sha256(small[path])
            room -= len(small[path])
        large = [path for path in own if path not in small]
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            digests |= zip(large, pool.map(publish, large), strict=True)
        names = {path: path.relative_to(directory).as_posix() for path in own}
        return Files(
            digests={names[path]: digests[path] for path in own},
            small={names[path]: base64.b64encode(small[path]).decode() for path in own if path in small},
        )

    def download(
        self, run_id: str, epoch: int, files: Files, directory: Path, *, only: Iterable[str] | None = None
    ) -> None:
        """Write published files into a run directory, each one checked against its digest, private ones for their owner
        only. `only` names some of them; None: all."""

        def write(name: str) -> None:
            path = inside(directory, name)
            if _is_own(name):
                raise PlaceError(f"{name!r:.200} is not a file that comes from an attempt")
            digest = files.digests[name]
            if name in files.small:
                content = self._small(name, files.small[name], digest)
            else:
                content = self._checked(f"attempts/{run_id}/{epoch:08d}/{digest}", digest)
            if name == rundir.SECRETS:
                content = open_sealed(content, directory, what=name)
            if name.startswith(f"{rundir.PRIVATE}/"):
                replace_private(path, content)
            else:
                rundir.write_bytes(path, content)

        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            for _ in pool.map(write, sorted(files.digests if only is None else only)):
                pass

    def _small(self, name: str, encoded: str, digest: str) -> bytes:
        try:
            content = base64.b64decode(encoded, validate=True)
        except ValueError as error:
            raise PlaceError(f"{self.objects.url}: {name!r:.200}: damaged: {error}") from error
        return undamaged(content, digest, where=f"{self.objects.url}: {name!r:.200}")

    def fail(self, claim: Claim, kind: FailureKind, message: str) -> None:
        """Publish why a run is not tried again, unless that is known already."""
        failure = FailureAt(
            run_id=claim.run_id, epoch=claim.epoch, host=claim.host, kind=kind, message=message[:MAX_MESSAGE]
        )
        self.create(f"failures/{claim.run_id}.json", failure)

    def forgive(self) -> None:
        """Let runs that failed, or were set aside, be tried again: failures are removed, and losses forgiven."""
        for run_id in self.names("failures"):
            forgive(self.objects, run_id)
            self.objects.remove(f"failures/{run_id}.json")

    # --- records ---

    def write(self, key: str, value: object) -> None:
        """Write a record, in place of one that may be there."""
        self.objects.put(key, encode(value))

    def create(self, key: str, value: object) -> bool:
        """Write a record that is not there. False: there is another one."""
        return self.objects.create(key, encode(value))

    def find(self, kind: type[Record], key: str) -> Record | None:
        """Return a record; None if there is none. Raises `PlaceError` for a damaged one."""
        try:
            content = self.objects.read(key, max_bytes=MAX_JSON)
        except Missing:
            return None
        where = f"{self.objects.url}/{key}"
        value = parse_json(content, where=where, error=PlaceError, max_bytes=MAX_JSON)
        return from_json(kind, value, where=where, error=PlaceError)

    def has(self, key: str) -> bool:
        """Return whether there is an object of this name, which is empty or small."""
        try:
            self.objects.read(key, max_bytes=MAX_JSON)
        except Missing:
            return False
        return True

    def names(self, folder: str) -> set[str]:
        """Return the names of the runs with a record in `results/` or `failures/`."""
        return {PurePosixPath(listed.key).stem for listed in self.objects.list(f"{folder}/")}

    def _checked(self, key: str, digest: str, *, max_bytes: int = MAX_OBJECT) -> bytes:
        return undamaged(self.objects.read(key, max_bytes=max_bytes), digest, where=f"{self.objects.url}/{key}")

    def _all(self, items: Iterable[Item], act: Callable[[Item], None]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(act, items):
                pass


def _is_own(name: str) -> bool:
    return name in OWN or name.startswith(f"{rundir.GOVERNANCE}/")


def _is_published(path: Path) -> bool:
    """Return whether an attempt publishes this file of a run directory; drafts are hidden files."""
    return not _is_own(path.as_posix()) and not path.name.startswith(".")


def encode(value: object) -> bytes:
    """Return a record as the bytes of its JSON."""
    return json.dumps(to_json(value), allow_nan=False).encode()


def inside(directory: Path, name: str) -> Path:
    """Return the path of a file in a directory. Raises `PlaceError` for a name that leads elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or any(part in ("", ".", "..") or "\\" in part for part in name.split("/")):
        raise PlaceError(f"{name!r:.200} is not the name of a file in a run directory")
    return directory / path


def undamaged(content: bytes, digest: str, *, where: str) -> bytes:
    """Return a content that has this digest. Raises `PlaceError` that starts with `where`."""
    if (actual := sha256(content)) != digest:
        raise PlaceError(f"{where}: damaged: its digest is {actual}")
    return content


def sha256(content: bytes) -> str:
    """Return the name of a content."""
    return hashlib.sha256(content).hexdigest()
