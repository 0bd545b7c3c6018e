"""The ledger's figures: appending, opening, verifying, proving; memory and start-up.

    python benchmarks/ledger.py [--leaves N] [--rounds N] [--directory DIR]        writes benchmarks/ledger.md

DIR is where ledgers are written, some 400 MB for a million leaves a round; it should be on a real disk, since flushing
is part of what is measured. Rounds are interleaved: each takes every figure once. One thread throughout.
"""

import argparse
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from options import verdict, whole
from pages import write_page

from explorer import merkle
from explorer.ledger.log import AT_ONCE, INTERVAL, MAX_OPEN, Log
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.trust_anchor import anchor_of
from explorer.ledger.verify import verify
from explorer.note import Algorithm, Signer

KEY = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)  # of a ledger for this benchmark only
SIGNER = Signer(name="example.com/benchmark", algorithm=Algorithm.ED25519, private_key=KEY)
BATCH = 10_000
PROOFS = 300
SMALL = 1_000
WRITER = ("dd", "if=/dev/urandom", "of=other", "bs=1M", "count=256", "status=none")
NOW = 1_800_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One line of the table."""

    name: str
    unit: str
    measure: Callable[["Bench"], float]
    target: str = ""
    decimals: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Where a round finds its ledgers: one of `leaves` entries and a small one, which `append` has written."""

    place: Path
    leaves: int

    @property
    def large(self) -> Path:
        return self.place / "large"

    @property
    def small(self) -> Path:
        return self.place / "small"


def entries(start: int, stop: int) -> list[bytes]:
    """Entries like those of a training run: RFC 8785 JSON of some 150 bytes."""
    return [
        b'{"kind":"step","loss":"0x1.%013xp+0","rows":[%d,%d,128],"root":"%064x","version":1}' % (n * n, n, n % 7, n)
        for n in range(start, stop)
    ]


def write(directory: Path, leaves: int) -> float:
    """Seconds that appending takes, the last commit included; making the entries is not."""
    seconds = 0.0
    with Log.create(directory, origin=SIGNER.name, signer=SIGNER) as log:
        for start in range(0, leaves, BATCH):
            batch = entries(start, min(start + BATCH, leaves))
            before = time.perf_counter()
            log.append(batch)
            seconds += time.perf_counter() - before
        before = time.perf_counter()
        log.commit()
        return seconds + time.perf_counter() - before


def append(bench: Bench) -> float:
    write(bench.small, SMALL)
    return bench.leaves / write(bench.large, bench.leaves)


def commit_one(bench: Bench) -> float:
    with Log.create(bench.place / "steps", origin=SIGNER.name, signer=SIGNER) as log:
        before = time.perf_counter()
        for entry in entries(0, 100):
            log.append([entry])
            log.commit()
        return (time.perf_counter() - before) * 1000 / 100


def open_large(bench: Bench) -> float:
    before = time.perf_counter()
    Log.open(bench.large, signer=SIGNER).close()
    return (time.perf_counter() - before) * 1000


def verify_large(bench: Bench) -> float:
    before = time.perf_counter()
    check(bench.large)
    return bench.leaves / (time.perf_counter() - before)


def check(directory: Path) -> None:
    found = verify(directory, anchor=anchor_of([SIGNER.verifier.vkey]), now=NOW)
    assert found.ok, found.findings


def prove_inclusions(bench: Bench) -> float:
    return proofs(bench)[0]


def check_inclusions(bench: Bench) -> float:
    return proofs(bench)[1]


def prove_consistencies(bench: Bench) -> float:
    return proofs(bench)[2]


def check_consistencies(bench: Bench) -> float:
    return proofs(bench)[3]


def proofs(bench: Bench) -> list[float]:
    """Milliseconds for making and checking an inclusion proof, then a consistency proof, at random places."""
    ledger, pick, size = LedgerDirectory(bench.large), random.Random(1), bench.leaves
    root, read = ledger.checkpoint().root, ledger.read_hashes
    spent = [0.0] * 4
    for _ in range(PROOFS):
        index, old = pick.randrange(size), pick.randrange(1, size)
        leaf, old_root = merkle.leaf_hash(next(ledger.entries(index, index + 1))), merkle.root(old, read)
        times = [time.perf_counter()]
        inclusion = merkle.prove_inclusion(size, index, read)
        times.append(time.perf_counter())
        merkle.check_inclusion(inclusion, size=size, index=index, leaf=leaf, root=root)
        times.append(time.perf_counter())
        consistency = merkle.prove_consistency(old, size, read)
        times.append(time.perf_counter())
        merkle.check_consistency(consistency, old_size=old, old_root=old_root, new_size=size, new_root=root)
        times.append(time.perf_counter())
        spent = [sum_ + after - before for sum_, before, after in zip(spent, times, times[1:], strict=False)]
    return [sum_ * 1000 / PROOFS for sum_ in spent]


def verify_command(bench: Bench) -> float:
    """The whole process, start-up included."""
    explorer = shutil.which("explorer", path=str(Path(sys.executable).parent)) or "explorer"
    command = [explorer, "ledger", "verify", str(bench.small), "--vkey", SIGNER.verifier.vkey]
    before = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - before


def peak_of(what: str, directory: Path, leaves: int) -> float:
    """The peak memory in MB of a process that appends or verifies, and does nothing else."""
    command = [sys.executable, __file__, "--peak", what, "--leaves", str(leaves), "--directory", str(directory)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peak(what: str, directory: Path, leaves: int) -> None:
    if what == "append":
        write(directory, leaves)
    else:
        check(directory)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


FIGURES = (
    Figure(
        name=f"append, durable every {INTERVAL:,} leaves", unit="leaves/s", target="at least 200,000", measure=append
    ),
    Figure(name="append and commit a single entry", unit="ms", measure=commit_one, decimals=2),
    Figure(name="open for appending", unit="ms", measure=open_large),
    Figure(name="verify", unit="leaves/s", target="at least 300,000", measure=verify_large),
    Figure(name="make an inclusion proof", unit="ms", target="below 1", measure=prove_inclusions, decimals=3),
    Figure(name="check an inclusion proof", unit="ms", target="below 1", measure=check_inclusions, decimals=3),
    Figure(name="make a consistency proof", unit="ms", target="below 1", measure=prove_consistencies, decimals=3),
    Figure(name="check a consistency proof", unit="ms", target="below 1", measure=check_consistencies, decimals=3),
    Figure(
        name=f"`explorer ledger verify`, {SMALL:,} leaves, start-up included",
        unit="s",
        target="below 0.3",
        measure=verify_command,
        decimals=2,
    ),
)


def one_by_one(files: Sequence[IO[bytes]]) -> None:
    for file in files:
        os.fsync(file.fileno())


def at_once(files: Sequence[IO[bytes]]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda file: os.fsync(file.fileno()), files))


def everything_first(files: Sequence[IO[bytes]]) -> None:
    os.sync()
    one_by_one(files)


FLUSHES = {
    "one after the other": one_by_one,
    f"{AT_ONCE} at a time, as the ledger does": at_once,
    "after `os.sync`, as it did before": everything_first,
}


def flush_time(how: Callable[[Sequence[IO[bytes]]], None], directory: Path) -> float:
    """Milliseconds for making 128 new files durable, tiles and bundles in turn."""
    directory.mkdir()
    with ExitStack() as opened:
        files = [opened.enter_context((directory / str(n)).open("xb", buffering=0)) for n in range(MAX_OPEN)]
        for number, file in enumerate(files):
            file.write(os.urandom(8_192 if number % 2 else 40_000))
        before = time.perf_counter()
        how(files)
        spent = time.perf_counter() - before
    shutil.rmtree(directory)
    return spent * 1000


def flushes(place: Path, rounds: int) -> list[str]:
    """Each way in turn, on an idle disk and while a program writes 256 MB in every round."""
    lines = ["| making 128 files durable (ms) | idle disk | while a program writes |", "|---|---|---|"]
    found: dict[tuple[str, bool], list[float]] = {}
    for _ in range(rounds):
        for busy in (False, True):
            for name, how in FLUSHES.items():
                with subprocess.Popen(WRITER, cwd=place) if busy else nullcontext() as writer:
                    time.sleep(0.2 if busy else 0)
                    found.setdefault((name, busy), []).append(flush_time(how, place / "flush"))
                    if writer is not None:
                        writer.kill()
                os.sync()  # so that each begins on a disk with nothing left to write
    for name in FLUSHES:
        idle, busy = (statistics.median(found[name, each]) for each in (False, True))
        lines.append(f"| {name} | {idle:.0f} | {busy:.0f} |")
    return lines


def machine(directory: Path) -> str:
    """Describe the machine that the figures depend on."""
    processors = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in processors if line.startswith("model name")), "")
    where = subprocess.run(["df", "--output=fstype", directory], capture_output=True, text=True).stdout.split()[-1]
    return f"{model}, {os.cpu_count()} cores, {where}, Linux {platform.release()}, Python {platform.python_version()}"


def table(found: dict[str, list[float]]) -> list[str]:
    lines = ["| figure | median | best | worst | unit | target |", "|---|---|---|---|---|---|"]
    for figure in FIGURES:
        values = found[figure.name]
        rate = figure.unit.endswith("/s")
        best, worst = (max(values), min(values)) if rate else (min(values), max(values))
        shown = " | ".join(f"{value:,.{figure.decimals}f}" for value in (statistics.median(values), best, worst))
        judged = verdict(statistics.median(values), figure.target, decimals=figure.decimals)
        lines.append(f"| {figure.name} | {shown} | {figure.unit} | {judged} |")
    return lines


def memory(place: Path, leaves: int) -> list[str]:
    """Does memory grow with the log? Both sizes in processes of their own."""
    sizes = (leaves // 10, leaves)
    appended = [peak_of("append", place / f"memory-{size}", size) for size in sizes]
    verified = [peak_of("verify", place / f"memory-{size}", size) for size in sizes]
    lines = [f"| peak memory (MB) | {sizes[0]:,} leaves | {sizes[1]:,} leaves |", "|---|---|---|"]
    for name, values in (("append", appended), ("verify", verified)):
        lines.append(f"| {name} | {values[0]:.1f} | {values[1]:.1f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--leaves", type=whole(10), default=1_000_000)
    parser.add_argument("--rounds", type=whole(), default=5)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--peak", choices=("append", "verify"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        peak(given.peak, given.directory, given.leaves)
        return
    found: dict[str, list[float]] = {figure.name: [] for figure in FIGURES}
    with tempfile.TemporaryDirectory(dir=given.directory) as place:
        for number in range(given.rounds):
            bench = Bench(place=Path(place) / str(number), leaves=given.leaves)
            for figure in FIGURES:
                found[figure.name].append(figure.measure(bench))
                print(f"round {number + 1}: {figure.name}: {found[figure.name][-1]:,.3f} {figure.unit}", flush=True)
        lines = [
            "# The ledger",
            "",
            f"{given.leaves:,} leaves of some 150 bytes; {given.rounds} interleaved rounds, one thread. "
            f"{machine(given.directory)}. Made by `benchmarks/ledger.py`.",
            "",
            *table(found),
            "",
            *memory(Path(place), given.leaves),
            "",
            *flushes(Path(place), given.rounds),
        ]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
