"""What executes a sweep is killed, stopped, cut off and refused, at random moments: is the sweep as undisturbed?

`python benchmarks/chaos.py [--rounds 200]` executes a sweep of 4 runs on digits, 2 of them governed, again and again:
in turn by workers of a place and by a Dask cluster, at a bucket that fails and at a directory (`chaos_scene.py`). In
every round one of these is done, a random moment after some run has been claimed:

    worker      SIGKILL to a worker
    kernel      SIGKILL to a kernel, in which a run trains
    driver      SIGKILL to `sweep run`, which the same command continues
    nanny       SIGKILL to the process that looks after a worker of Dask
    scheduler   SIGKILL to Dask's scheduler
    ingester    SIGKILL to `store ingest` or `store rebuild`; another one follows
    stop        SIGSTOP to a worker and its kernel until their lease is over, then SIGCONT
    preempt     SIGTERM to a worker, or to Dask's nanny; SIGUSR1 to a worker of a place
    disk        the worker's scratch is full for a while
    cut         the worker's network link is down until its lease is over

What ended is started again. Every sweep that is complete is compared with one that nothing disturbed: all files of all
run directories, byte for byte, ledgers and their signatures included, and all tables of the database. LEFT_OUT lists
what may differ. So that ledgers can be equal, all sweeps have the same keys and, as an execution that was interrupted
before its first step would have left them, the same secrets of the governed runs.

As a control one result is altered: the comparison and the place have to notice it.
"""

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psutil
import yaml

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.chaos_scene import (  # noqa: E402
    EXPLORER,
    LEASE,
    SHARE,
    Disk,
    Network,
    Refused,
    Scene,
    bucket_server,
    commands_of,
    copy_place,
    environment,
    family,
    new_bucket,
    reached_at,
)
from benchmarks.options import options, whole  # noqa: E402
from benchmarks.pages import write_page  # noqa: E402
from explorer import rundir  # noqa: E402
from explorer.place.attempt import Attempt  # noqa: E402
from explorer.place.leases import SLACK, Claim, claims_of, key_of  # noqa: E402
from explorer.place.published_sweep import CheckpointAt, Files, Published, ResultAt  # noqa: E402
from explorer.store.ingest import ingest  # noqa: E402
from explorer.store.published import database, opened  # noqa: E402
from explorer.sweep.at_place import publish  # noqa: E402
from explorer.sweep.execute import Settings, run_sweep  # noqa: E402
from explorer.sweep.plan import Plan, make_plan  # noqa: E402
from explorer.sweep.run_at import Worker, missing_at, run_any  # noqa: E402
from explorer.sweep.spec import load_spec  # noqa: E402
from tests.place.faulty_server import FaultyServer  # noqa: E402
from tests.training.governed_for_tests import documents, recipe  # noqa: E402

METHODS = [{"routing": {"policy": "lower"}}, "contributions", {"recorder": {"every": 4}}]
PATIENCE = 8.0  # seconds until some run is claimed; then the round does not wait any longer
PAUSE = 2.0  # seconds between that and the disturbance, at most
MOST = 12  # rounds of one sweep, which then is left in peace
AWAY = LEASE + SLACK + 1.0  # seconds after which others may have taken a run
KINDS: Mapping[str, tuple[str, ...]] = {
    "place": ("stop", "cut", "worker", "disk", "preempt", "driver", "kernel", "ingester"),
    "dask": ("scheduler", "worker", "nanny", "driver", "stop", "kernel", "preempt", "ingester"),
}

# --- what is compared ---

LEFT_OUT = {
    "`result.json`": "times, memory, energy, the measured rate of the device, how often it was resumed, and whether"
    " other runs trained meanwhile",
    "`notebook.ipynb`": "all but the source of its cells: times, ids of messages, the scratch directory",
    "`governance/source.json`": "the moment of planning, and where the trainer's key is",
    "tables": "columns and the metric with those, with times that follow from them, and with digests of `result.json`",
}
OF_RESULT = ("timings", "timed_steps", "finished_at", "peak_memory", "resumed", "contended", "clock", "energy")
TIMES = ("ledger_seconds_per_step",)  # metrics
OF_TABLES = {
    *("timed_steps", "finished_at", "peak_memory", "resumed", "contended", "clock", "time_source"),
    *("utilisation", "energy_kwh"),
    *("ledger_overhead", "own_step", "rest", "rest_low", "rest_high", "deletion_class"),  # the one that takes longest
    *("version", "content"),  # digests of files with times
}


def differences(calm: Path, runs: Path) -> list[str]:
    """Name the files of run directories, and the columns of the database, in which two executions differ."""
    ours, others = _contents(calm), _contents(runs)
    return sorted(name for name in ours.keys() | others.keys() if ours.get(name) != others.get(name))


def _contents(runs: Path) -> dict[str, object]:
    content: dict[str, object] = {}
    for path in (path for path in runs.rglob("*") if path.is_file()):
        name = path.relative_to(runs).as_posix()
        if name.startswith("_store/") or path.parent == runs or path.name == rundir.LOCK:
            continue  # the database follows, table by table
        if path.name == "source.json" and path.parent.name == rundir.GOVERNANCE:
            continue
        content[name] = _READERS.get(path.name, Path.read_bytes)(path)
    with opened(database(runs)) as connection:
        tables = "SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        for (table,) in connection.execute(tables).fetchall():
            content |= {f"table {table}, {name}": values for name, values in _columns(connection, table)}
    return content


def _result(path: Path) -> object:
    result = json.loads(path.read_bytes())
    metrics = {name: value for name, value in result["metrics"].items() if name not in TIMES}
    kept = {name: value for name, value in result.items() if name not in OF_RESULT}
    operations = {name: result["flops"][name] for name in ("phases", "total")}
    return {**kept, "metrics": metrics, "flops": operations}


def _notebook(path: Path) -> object:
    """Return the source of the cells, but for the line with the scratch directory."""
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_bytes())["cells"]]
    return ["\n".join(line for line in cell.splitlines() if not line.startswith("directory = ")) for cell in cells]


_READERS: dict[str, Callable[[Path], object]] = {rundir.RESULT: _result, rundir.NOTEBOOK: _notebook}


def _columns(connection: duckdb.DuckDBPyConnection, table: str) -> Iterator[tuple[str, list[object]]]:
    found = connection.execute(f'FROM "{table}"')
    names = [column[0] for column in found.description or ()]
    rows = [dict(zip(names, values, strict=True)) for values in found.fetchall()]
    for name in names:
        if name not in OF_TABLES and "seconds" not in name:
            yield name, [row[name] for row in rows if row.get("metric") not in TIMES]


# --- the sweep ---


@dataclass(frozen=True)
class Work:
    """The specification of the sweep, a place where it is published and nothing is done, and its calm execution."""

    spec: Path
    place: Path
    calm: Path

    def plan(self, runs: Path) -> Plan:
        return make_plan(load_spec(self.spec), runs=runs)


def prepare(directory: Path) -> Work:
    """Publish the sweep, execute a copy in peace, and give the secrets that were made there to all later ones."""
    usual = recipe()
    content = {
        "name": "chaos",
        "task": usual["task"],
        # Automatic evaluations depend on the time that a run takes.
        "train": {**usual["train"], "epochs": 2.0, "evaluations": 2},
        "baseline": "typed",
        "recipes": {"typed": [], "routed": METHODS},
        "budgets": [0.5, 1.0],
        "seeds": [0],
        "governance": str(documents(directory / "documents")),
    }
    work = Work(spec=directory / "chaos.yaml", place=directory / "published", calm=directory / "calm")
    work.spec.write_text(yaml.safe_dump(content))
    published, place = publish(work.plan(work.calm), str(work.place)), str(directory / "place")
    copy_place(work.place, place)
    execute_here(work, place, work.calm)
    at = Published.at(place)
    for run_id in at.plan().runs:
        result = at.find(ResultAt, f"results/{run_id}.json")
        assert result is not None
        if (digest := result.files.digests.get(rundir.SECRETS)) is not None:
            files = Files(digests={rundir.SECRETS: digest}, small={rundir.SECRETS: result.files.small[rundir.SECRETS]})
            found = CheckpointAt(run_id=run_id, epoch=1, step=0, files=files)
            published.write(f"checkpoints/{run_id}/00000001.json", found)
            # An attempt that was preempted has left them.
            before = Claim(run_id=run_id, epoch=1, holder="", host="", hardware="", begun=0, until=0, ended="preempted")
            published.write(key_of(run_id, 1), before)
    return work


def execute_here(work: Work, place: str, runs: Path) -> None:
    """Execute what is missing at a place in this process, bring everything back, and bring the database up to it."""
    run_any(Worker(place=place, engine="inline"), on_end=lambda ended: None)
    assert run_sweep(work.plan(runs), Settings(engine="inline", workers=1, profile=False, place=place)).complete
    ingest(runs)


# --- disturbances ---


@dataclass(frozen=True, kw_only=True)
class Chaos:
    """A sweep in progress, and what may be done to it."""

    scene: Scene
    place: str
    runs: Path
    random: random.Random
    environment: Mapping[str, str]  # of an ingester
    patience: float  # seconds
    disk: Disk | None
    network: Network | None

    def disturb(self, kind: str) -> bool | None:
        """Do this a random moment after some run was claimed; return whether one was. None: the sweep is complete."""
        claimed = self._until(lambda: any(claim.open(time.time()) for claim in self._claims()))
        self.scene.wait(self.random.uniform(0, PAUSE))
        if self.scene.complete():
            return None
        print(f"{time.strftime('%H:%M:%S')} {kind}", file=sys.stderr, flush=True)
        getattr(self, f"_{kind}", partial(self._kill, kind))()
        return claimed

    def _claims(self) -> Iterator[Claim]:
        published = Published.at(self.place)
        for run_id in missing_at(self.place):
            yield from claims_of(published.objects, run_id)[-1:]

    def _until(self, holds: Callable[[], object]) -> bool:
        """Wait until this holds, but not for too long; return whether it does."""
        until = time.monotonic() + self.patience
        while not (found := bool(holds())) and not self.scene.complete() and time.monotonic() < until:
            self.scene.wait(0.5)
        return found

    def _victim(self, kind: str) -> psutil.Process | None:
        """Return one of the processes of this kind, once there is any; None: the sweep ended before."""

        def found() -> list[psutil.Process]:
            known = {"worker": self.scene.workers, "kernel": self.scene.kernels}
            return known.get(kind, partial(self.scene.roles, kind))()

        self._until(found)
        return self.random.choice(processes) if (processes := found()) else None

    def _kill(self, kind: str) -> None:
        if (victim := self._victim(kind)) is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()

    def _stop(self) -> None:
        if (victim := self._victim("worker")) is not None:
            stopped = family(victim)
            for signalled in (signal.SIGSTOP, signal.SIGCONT):
                for process in stopped:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.send_signal(signalled)
                self.scene.wait(AWAY if signalled == signal.SIGSTOP else 0)

    def _preempt(self) -> None:
        nannies = self.scene.roles("nanny")
        victim = self.random.choice(nannies) if nannies else self._victim("worker")
        if victim is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGTERM if nannies else self.random.choice((signal.SIGTERM, signal.SIGUSR1)))

    def _ingester(self) -> None:
        def start(verb: str) -> subprocess.Popen[bytes]:
            command = [*EXPLORER, "store", verb, "--runs", str(self.runs)]
            with (self.scene.logs / "ingester.log").open("ab") as log:
                return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

        first = start(self.random.choice(("ingest", "rebuild")))
        self.scene.wait(self.random.uniform(0, PAUSE))
        first.kill()
        first.wait()
        assert start("ingest").wait() == 0, (self.scene.logs / "ingester.log").read_text()

    def _disk(self) -> None:
        assert self.disk is not None
        self.disk.fill()
        self.scene.wait(PAUSE)
        self.disk.empty()

    def _cut(self) -> None:
        assert self.network is not None
        self.network.cut()
        self.scene.wait(AWAY)
        self.network.mend()


# --- rounds ---


@dataclass
class Report:
    """What came of some rounds."""

    skipped: dict[str, str]  # kinds that this machine does not allow, and why
    done: Counter[tuple[str, str]] = field(default_factory=Counter)  # by engine and kind
    claimed: int = 0  # rounds while a run was claimed, and not while everything was starting again
    sweeps: Counter[tuple[str, str]] = field(default_factory=Counter)  # by engine and kind of place
    different: list[str] = field(default_factory=list)  # files and tables, with their sweep
    endings: Counter[str] = field(default_factory=Counter)  # of claims
    failures: Counter[str] = field(default_factory=Counter)  # of requests to a bucket
    runs: int = 0
    continued: int = 0  # runs that were taken over from a published checkpoint
    findings: int = 0
    tracebacks: int = 0
    control: tuple[str, ...] = ()  # what was noticed of a result that was altered
    seconds: float = 0.0


class Deck:
    """Kinds in random order; each comes once before any comes again, as far as it is possible at the time."""

    def __init__(self, kinds: Sequence[str], draws: random.Random) -> None:
        self._kinds, self._random = kinds, draws
        self._left: list[str] = []

    def deal(self, possible: Callable[[str], bool]) -> str:
        if not any(map(possible, self._left)):
            self._left += self._random.sample(self._kinds, len(self._kinds))
        kind = next(filter(possible, self._left))
        self._left.remove(kind)
        return kind


def rounds(
    number: int,
    directory: Path,
    *,
    seed: int = 0,
    kinds: Mapping[str, Sequence[str]] = KINDS,
    patience: float = PATIENCE,
    on_sweep: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Disturb sweeps so many times, as often at each engine, and compare each one with the calm one.

    `patience` is how many seconds a round waits, at most, until some run is claimed.
    """
    begun, draws, skipped, allowed = time.monotonic(), random.Random(seed), {}, {}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(bucket_server())
        for kind, make in {"cut": Network, "disk": partial(Disk, directory / "scratch")}.items():
            try:
                allowed[kind] = stack.enter_context(contextlib.closing(make()))
            except Refused as refused:
                skipped[kind] = str(refused)
        report = Report(skipped=skipped)
        stage = Stage(prepare(directory), directory, server, allowed, draws, report, patience)
        decks = {engine: Deck([kind for kind in kinds[engine] if kind not in skipped], draws) for engine in kinds}
        todo = {engine: number // len(kinds) for engine in kinds}
        at_bucket = dict.fromkeys(kinds, True)
        while any(todo.values()):
            for engine in (engine for engine in kinds if todo[engine]):
                with stage.sweep(engine, at_bucket=at_bucket[engine]) as chaos:
                    left = min(MOST, todo[engine])
                    while not chaos.scene.complete():
                        if not left:
                            chaos.scene.wait(1.0)
                            continue
                        kind = decks[engine].deal(lambda kind: kind != "cut" or chaos.network is not None)
                        if (claimed := chaos.disturb(kind)) is not None:
                            report.done[engine, kind] += 1
                            report.claimed += claimed
                            left, todo[engine] = left - 1, todo[engine] - 1
                at_bucket[engine] = not at_bucket[engine]
                report.seconds = time.monotonic() - begun
                on_sweep(report)
        report.control = tuple(noticed(stage.work, directory))
    return report


@dataclass(frozen=True)
class Stage:
    """What all sweeps share."""

    work: Work
    directory: Path
    server: str  # of buckets
    allowed: Mapping[str, Any]  # the worker's disk and network
    random: random.Random
    report: Report
    patience: float

    @contextlib.contextmanager
    def sweep(self, engine: str, *, at_bucket: bool) -> Iterator[Chaos]:
        """Yield a sweep that is being executed; at the end it has to be complete, and is compared."""
        here = self.directory / "sweep"
        runs, logs = here / "runs", here / "logs"
        for made in (here, runs, logs):
            made.mkdir()
        place = new_bucket(self.server) if at_bucket else str(here / "place")
        copy_place(self.work.place, place)
        disk: Disk | None = self.allowed.get("disk")
        network: Network | None = self.allowed.get("cut") if at_bucket and engine == "place" else None
        commands = commands_of(
            engine, spec=self.work.spec, runs=runs, place=place, scratch=disk.directory if disk else None
        )
        usual = environment(logs)
        environments = dict.fromkeys(commands, usual)
        faulty: list[FaultyServer] = []
        with contextlib.ExitStack() as stack:

            def reached(host: str) -> dict[str, str]:
                made = FaultyServer(self.server, share=SHARE, seed=self.random.getrandbits(32), host=host)
                faulty.append(stack.enter_context(contextlib.closing(made)))
                return environment(logs, **reached_at(made.url))

            if at_bucket:
                usual = reached("127.0.0.1")
                environments = dict.fromkeys(commands, usual)
            if network is not None:
                commands["worker"] = [*network.inside, *commands["worker"]]
                environments["worker"] = reached(network.host)
            scene = stack.enter_context(contextlib.closing(Scene(commands, environments, logs)))
            yield Chaos(
                scene=scene,
                place=place,
                runs=runs,
                random=self.random,
                environment=usual,
                patience=self.patience,
                disk=disk,
                network=network,
            )
        self.report.sweeps[engine, "bucket" if at_bucket else "directory"] += 1
        for server in faulty:
            self.report.failures.update(server.failures)
        self.report.tracebacks += scene.tracebacks()
        ingest(runs)
        self.report.different += differences(self.work.calm, runs)
        self._add(Published.at(place))
        shutil.rmtree(here)

    def _add(self, at: Published) -> None:
        """Add what happened at a place."""
        report, now = self.report, time.time()
        report.findings += sum(1 for _ in at.objects.list("findings/"))
        for run_id in at.plan().runs:
            report.runs += 1
            report.endings.update(claim.ending(now) or "open" for claim in claims_of(at.objects, run_id))
            result = at.find(ResultAt, f"results/{run_id}.json")
            report.continued += result is not None and result.result.resumed > 0


def noticed(work: Work, directory: Path) -> Iterator[str]:
    """Alter one result; yield what differs for the comparison, and then for the place."""
    place, runs = directory / "altered", directory / "altered-runs"
    shutil.copytree(directory / "place", place)
    shutil.copytree(work.calm, runs)
    run = next(path for path in rundir.run_directories(runs / "chaos") if "routed" in path.name)
    result = rundir.read_json(run / rundir.RESULT)
    assert isinstance(result, dict)
    result["state_digest"] = result["state_digest"][::-1]
    rundir.write_json(run / rundir.RESULT, result)
    yield from (name for name in differences(work.calm, runs) if name.endswith(rundir.RESULT))
    published = Published.at(str(place))
    claim = Claim(run_id=run.name, epoch=99, holder="", host="zombie", hardware="", begun=0, until=0)
    finding = Attempt(published, claim, run).finish()
    if finding is not None and any(published.objects.list("findings/")):
        yield from finding.differs


# --- the page ---


def page(report: Report, *, asked: int, seed: int) -> str:
    """Return the report as Markdown."""
    figures = {
        "rounds": f"{report.done.total()} of {asked}",
        "of them while some run was claimed": report.claimed,
        "sweeps of 4 runs completed, and compared": ", ".join(
            f"{n} {' at a '.join(what)}" for what, n in report.sweeps.items()
        ),
        "files, ledgers and tables that differ from the undisturbed": len(report.different),
        "second results that differ from the first (findings)": report.findings,
        "tracebacks of Explorer": report.tracebacks,
        f"attempts for {report.runs} runs": ", ".join(f"{n} {how}" for how, n in report.endings.most_common()),
        "runs continued from a published checkpoint": report.continued,
        f"requests that failed ({SHARE:.0%})": ", ".join(f"{n} {how}" for how, n in report.failures.items()),
        "control, an altered result: noticed in": ", ".join(report.control) or "(at the end)",
        "minutes": f"{report.seconds / 60:.0f}",
    }
    names = list(dict.fromkeys(kind for engine in KINDS for kind in KINDS[engine]))
    return "\n".join(
        [
            "# Chaos",
            "",
            f"`python benchmarks/chaos.py --rounds {asked} --seed {seed}`, on two cores. The docstring of"
            " `benchmarks/chaos.py` says what is done and compared.",
            "",
            "| | |",
            "| --- | --- |",
            *(f"| {what} | {figure} |" for what, figure in figures.items()),
            "",
            "| disturbance | " + " | ".join(KINDS) + " |",
            "| --- |" + " ---: |" * len(KINDS),
            *(
                f"| {kind} | " + " | ".join(str(report.done[engine, kind] or "") for engine in KINDS) + " |"
                for kind in names
            ),
            "",
            *(f"Skipped: {kind}: {why}." for kind, why in report.skipped.items()),
            *(["Nothing was skipped."] if not report.skipped else []),
            "",
            "Left out of the comparison:",
            "",
            *(f"- {name}: {what}" for name, what in LEFT_OUT.items()),
            *(["", "Different: " + ", ".join(report.different)] if report.different else []),
            "",
        ]
    )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=whole(2), default=200, help="how often something is disturbed")
    parser.add_argument("--seed", type=whole(0), default=0, help="of the moments, the kinds and the failures")
    chosen = parser.parse_args()

    def write(report: Report) -> None:
        text = page(report, asked=chosen.rounds, seed=chosen.seed)
        write_page(ROOT / "benchmarks" / "chaos.md", text)
        print(text, flush=True)

    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch:
        report = rounds(chosen.rounds, Path(scratch), seed=chosen.seed, on_sweep=write)
    write(report)
    sys.exit(bool(report.different or report.findings or report.tracebacks) or len(report.control) < 2)


if __name__ == "__main__":
    main()
