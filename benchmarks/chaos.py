"""Workers of a place that are killed, stopped and told to go, at random moments: are the results as undisturbed?

`python benchmarks/chaos.py [--rounds 200]` executes a sweep of 12 runs on digits again and again, by two workers that
share a place with leases of one second. Every round does one of these things to a worker, after a random pause:

    kill       SIGKILL to the worker
    kernel     SIGKILL to its kernel, in which the run trains
    stop       SIGSTOP until its lease is over and the other worker may have its run, then SIGCONT
    preempt    SIGTERM, or SIGUSR1

A worker that ended is replaced. Whenever the sweep is complete its results are brought back and compared: metrics,
every measurement, and the digest of the trained state have to be those of the sweep that nothing disturbed. That a
different result is noticed is tested by `tests/place/test_attempt.py`.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.options import options, whole  # noqa: E402
from explorer.place.leases import claims_of  # noqa: E402
from explorer.place.objects import DirectoryObjects  # noqa: E402
from explorer.sweep.at_place import publish  # noqa: E402
from explorer.sweep.run_at import missing_at  # noqa: E402
from tests.sweep.sweeps import SPEC, execute, outcomes, plan, spec  # noqa: E402

WORK = spec(train={**SPEC["train"], "epochs": 4}, budgets=[0.5, 1.0], seeds=[0, 1, 2])  # 12 runs
LEASE = 1.0  # seconds
LONGEST_PAUSE = 6.0  # seconds before a disturbance
KINDS = ("kill", "kernel", "stop", "preempt")


@dataclass
class Chaos:
    """Two workers at a place, and what was done to them."""

    place: Path
    random: random.Random
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def keep_two(self) -> None:
        """Replace workers that ended."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < 2:
            command = [sys.executable, "-m", "explorer", "run-at", str(self.place), "--claim", "--lease", str(LEASE)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            self.workers.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )

    def disturb(self) -> None:
        """Do something to a worker, after a random pause."""
        self.keep_two()
        time.sleep(self.random.uniform(0, LONGEST_PAUSE))
        kind, worker = self.random.choice(KINDS), self.random.choice(self.workers)
        self.done[kind] += 1
        if kind == "kill":
            worker.kill()
        elif kind == "kernel":
            for child in _children(worker):
                child.kill()
        elif kind == "preempt":
            worker.send_signal(self.random.choice((signal.SIGTERM, signal.SIGUSR1)))
        else:
            worker.send_signal(signal.SIGSTOP)
            time.sleep(LEASE + 6)  # and the slack of clocks
            worker.send_signal(signal.SIGCONT)

    def close(self) -> None:
        for worker in self.workers:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
        for worker in self.workers:
            worker.wait()


def _children(worker: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return psutil.Process(worker.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@dataclass(frozen=True)
class Report:
    """What came of some rounds."""

    done: Counter[str]
    sweeps: int
    different: int  # sweeps with a result that is not the undisturbed one
    findings: int
    aside: int  # runs that were set aside, because workers died with them three times
    attempts: int  # of all runs together
    runs: int
    seconds: float


def rounds(number: int, directory: Path, *, seed: int = 0) -> Report:
    """Disturb sweeps so many times, and compare every one that is complete with the undisturbed one."""
    assert execute(directory / "calm", WORK).complete
    calm, draws, begun = outcomes(directory / "calm"), random.Random(seed), time.monotonic()
    done: Counter[str] = Counter()
    sweeps = different = findings = aside = attempts = 0
    while done.total() < number:
        here = directory / f"sweep-{sweeps}"
        place = here / "place"
        at = publish(plan(here / "planned", WORK), str(place))
        chaos = Chaos(place, draws)
        try:
            while missing_at(str(place)):
                if done.total() + chaos.done.total() < number:
                    chaos.disturb()
                else:
                    chaos.keep_two()
                    time.sleep(0.5)
        finally:
            chaos.close()
        done += chaos.done
        aside += len(at.names("failures"))
        execute(here / "runs", WORK, place=str(place))  # and what was set aside
        different += outcomes(here / "runs") != calm
        findings += sum(1 for _ in at.objects.list("findings/"))
        attempts += sum(len(claims_of(DirectoryObjects(place), run_id)) for run_id in at.plan().runs)
        sweeps += 1
        shutil.rmtree(here)
    return Report(
        done=done,
        sweeps=sweeps,
        different=different,
        findings=findings,
        aside=aside,
        attempts=attempts,
        runs=sweeps * len(calm),
        seconds=time.monotonic() - begun,
    )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=whole(), default=200, help="how often a worker is disturbed")
    parser.add_argument("--seed", type=whole(0), default=0, help="of the moments and the kinds")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch:
        report = rounds(chosen.rounds, Path(scratch), seed=chosen.seed)
    kinds = ", ".join(f"{kind} {report.done[kind]}" for kind in KINDS)
    lines = [
        "# Workers that die",
        "",
        f"`python benchmarks/chaos.py --rounds {chosen.rounds} --seed {chosen.seed}`, two workers on two cores.",
        "",
        "| | |",
        "| --- | --- |",
        f"| rounds | {report.done.total()}: {kinds} |",
        f"| sweeps of {report.runs // report.sweeps} runs completed | {report.sweeps} |",
        f"| sweeps with a result, a measurement or a digest that differs from the undisturbed | {report.different} |",
        f"| second results that differ from the first (findings) | {report.findings} |",
        f"| attempts for {report.runs} runs | {report.attempts} |",
        f"| runs set aside after three deaths, then executed by the driver | {report.aside} |",
        f"| minutes | {report.seconds / 60:.0f} |",
        "",
    ]
    (ROOT / "benchmarks" / "chaos.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
