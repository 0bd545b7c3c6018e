"""A place as workers on several hosts leave it: claims, results, failures and findings, written as they write them."""

import os
from pathlib import Path

from explorer.machine_class import Machine
from explorer.place.leases import Claim, Ending, encoded, key_of
from explorer.place.published_sweep import ClassAt, Files, Finding, PlanAt, Published
from tests.builders import CPU

RUNS = tuple(
    f"resnet8-digits-{recipe}-ssr{ssr:g}-s{seed}-{number:08x}"
    for number, (ssr, seed, recipe) in enumerate(
        (ssr, seed, recipe) for ssr in (0.5, 1.0) for seed in (0, 1) for recipe in ("baseline", "mixed")
    )
)
HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202egnp.exe"


class WrittenPlace:
    """A sweep of eight runs at a directory, and what happens to it, at moments in seconds since 1970."""

    def __init__(self, directory: Path, *, runs: tuple[str, ...] = RUNS) -> None:
        self.published = Published.at(str(directory))
        self.directory = directory
        machine = Machine(hardware=CPU, versions={"torch": "2.13.0"})
        own = ClassAt(machine=machine, runs=runs, profile=False)
        self.measuring = own.measuring
        self.published.write("plan.json", PlanAt(sweep="mine", classes=(own,)))

    def claim(
        self, run_id: str, host: str, begun: float, until: float, ended: Ending | None = None, *, epoch: int = 1
    ) -> Claim:
        """Let a worker of a host hold a run from one moment to another; it works on, or is lost, if it did not end."""
        claim = Claim(
            run_id=run_id,
            epoch=epoch,
            holder=f"{begun:032.3f}",
            host=host,
            hardware=CPU.name,
            begun=begun,
            until=until,
            ended=ended,
        )
        self._put(key_of(run_id, epoch), encoded(claim), until)
        return claim

    def done(self, run_id: str, host: str, begun: float, until: float, *, epoch: int = 1) -> None:
        """Let a worker finish a run. Its result has no content: a state is told by its name and moment."""
        self._put(f"results/{run_id}.json", b"{}", until)
        self.claim(run_id, host, begun, until, "done", epoch=epoch)

    def differs(self, run_id: str, host: str) -> None:
        """Let a second result differ from the first."""
        files = Files(digests={}, small={})
        found = ("metrics", "state_digest")
        finding = Finding(run_id=run_id, epoch=2, first=1, host=host, differs=found, files=files)
        self.published.write(f"findings/{run_id}/00000002.json", finding)

    def _put(self, key: str, content: bytes, moment: float) -> None:
        self.published.objects.put(key, content)
        os.utime(self.directory / key, (moment, moment))


def eventful(directory: Path, now: float) -> WrittenPlace:
    """A place where three hosts, one of them with a hostile name, finished, lost, failed, and contradicted runs."""
    at = WrittenPlace(directory)
    at.done(RUNS[0], "node-7", now - 700, now - 600)
    at.claim(RUNS[1], "node-8", now - 700, now - 650, "preempted")
    at.done(RUNS[1], "node-7", now - 600, now - 500, epoch=2)
    at.claim(RUNS[2], "node-8", now - 400, now - 300)  # its lease ended long ago
    failed = at.claim(RUNS[3], "node-8", now - 290, now - 280, "failed")
    at.published.fail(failed, "diverged", "the loss is nan at step 36")
    aside = at.claim(RUNS[4], "node-8", now - 270, now - 260, "dead kernel")
    at.published.fail(aside, "set aside", "set aside after 3 attempts that ended in the middle")
    at.claim(RUNS[5], HOSTILE, now - 50, now + 60)
    at.claim(RUNS[6], "node-7", now - 20, now + 60)
    at.differs(RUNS[0], "node-8")
    return at
