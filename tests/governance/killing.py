"""Kills a governed run again and again and checks what is left of it: `python killing.py DIRECTORY KILLS SEED`.

A process of its own, without threads, so that it can fork the processes that it kills. Each of them continues the
run from its last checkpoint, and is killed some time after it has told of some of its steps.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.entries.heads import check_sequence, read_head
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from tests.governance.recorded import governed, train, with_secrets_of
from tests.ledger.ledgers import check

STEPS, EVERY = 60, 4

Progress = Callable[[int, int], None]
Train = Callable[[Path, Progress], None]  # a run to its end, from its last checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class Survived:
    """What came of it."""

    kills: int
    runs: int  # that were finished meanwhile, the last one included
    steps: int  # different ones after which a kill came
    again: int  # steps that a killed process had executed and the next one executed again
    resumed: int  # kills after which a checkpoint was there to go on from


def train_small(run: Path, on_progress: Progress) -> None:
    """A small run with a checkpoint after every segment."""
    train(run, governed(total_steps=STEPS, every=EVERY), checkpoint_seconds=0.0, on_progress=on_progress)


def entries(run: Path) -> list[bytes]:
    """What is durable."""
    ledger = run / rundir.LEDGER
    return list(LedgerDirectory(ledger).entries()) if (ledger / CHECKPOINT).exists() else []


def killed(run: Path, pick: random.Random, go_on: Train, *, most: int, patience: float) -> list[int]:
    """Let a process go on with the run and kill it; return the numbers of steps done that it told of."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        told = os.fdopen(writing, "w")
        go_on(run, lambda done, _: print(done, file=told, flush=True))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        lines = [line for _, line in zip(range(pick.randrange(most)), file, strict=False)]
        time.sleep(pick.uniform(0, patience))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines += file.readlines()
    return [int(line) for line in lines if line.endswith("\n")]


def survive(
    calm: Path,
    new: Callable[[int], Path],
    go_on: Train,
    verifies: Callable[[Path], bool],
    *,
    kills: int,
    seed: int,
    most: int,
    patience: float = 0.06,
) -> Survived:
    """Kill runs that should become what `calm` is, and check after every kill that nothing else becomes of them.

    `new(n)` makes the n-th run, with the calm one's secrets. A process is killed up to `patience` seconds after it has
    told of fewer than `most` steps.
    """
    pick, expected = random.Random(seed), entries(calm)
    run, runs, resumed, again, last = new(0), 1, 0, 0, 0
    seen: set[int] = set()
    for _ in range(kills):
        before = entries(run)
        told = killed(run, pick, go_on, most=most, patience=patience)
        again += sum(done <= last for done in told)
        last = max([last, *told])
        seen |= set(told[-1:])
        resumed += any((run / rundir.CHECKPOINT).glob("*.json"))
        after = entries(run)
        assert after[: len(before)] == before, "what was durable is gone"
        assert after == expected[: len(after)], "it was executed again with another result"
        assert not after or verifies(run / rundir.LEDGER)
        if after and read_head(after[-1]).kind == "end":  # it was faster than its killer
            _check_end(run, calm, go_on, verifies)
            run, runs, last = new(runs), runs + 1, 0
    _check_end(run, calm, go_on, verifies)
    return Survived(kills=kills, runs=runs, steps=len(seen), again=again, resumed=resumed)


def _check_end(run: Path, calm: Path, go_on: Train, verifies: Callable[[Path], bool]) -> None:
    """Finish the run in peace; then its ledger and its spool are those of the calm one."""
    go_on(run, lambda done, total: None)
    assert entries(run) == entries(calm)
    ledgers = (LedgerDirectory(each / rundir.LEDGER).checkpoint() for each in (run, calm))
    assert len(set(ledgers)) == 1
    assert check_sequence(map(read_head, entries(run))).finished
    assert verifies(run / rundir.LEDGER)
    assert spool(run) == spool(calm)


def spool(run: Path) -> dict[str, bytes]:
    """The files next to the ledger."""
    found = [path for name in (rundir.CONTRIBUTIONS, rundir.ENTROPY) for path in (run / name).glob("*")]
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in found}


def main(root: Path, kills: int, seed: int) -> None:
    calm = root / "calm"
    train_small(calm, lambda done, total: None)

    def new(number: int) -> Path:
        return with_secrets_of(calm, root / str(number))

    print(survive(calm, new, train_small, lambda ledger: check(ledger).ok, kills=kills, seed=seed, most=16))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
