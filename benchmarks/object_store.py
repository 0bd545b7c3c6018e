"""Measure what a sweep takes longer in a bucket of an object store than in a directory of this machine.

    python benchmarks/object_store.py [--runs 1000]        writes benchmarks/object_store.md

The store is moto's S3 server on loopback, a process of its own that answers on the same cores as the runs train on.
Each sweep has two workers, which have trained before anything is timed. The local sweep is executed before the one in
the bucket and again after it: the second time is the control, what two sweeps of the same kind differ by.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from executors import SPEC
from options import meets, options, verdict, whole
from pages import write_page

from explorer import run_files, rundir
from explorer.objects import open_objects
from explorer.run_files import ResultRecord
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import load_spec
from explorer.sweep.workers import LocalProcesses

TARGET = "at most 1.3"
BUCKET = "sweeps"
FIRST = 10_000  # of the seeds of runs that only warm workers up


@contextmanager
def s3_server() -> Iterator[str]:
    """Start moto's server with an empty bucket; yield its address, which the usual variables have too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ.update(
        AWS_ENDPOINT_URL=url,
        AWS_ALLOW_HTTP="true",
        AWS_ACCESS_KEY_ID="benchmark",
        AWS_SECRET_ACCESS_KEY="benchmark",
        AWS_REGION="us-east-1",
    )
    try:
        _answering(f"{url}/moto-api/")
        urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"), timeout=60).close()
        yield url
    finally:
        server.terminate()
        server.wait()


def _answering(url: str, patience: float = 120) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def seconds(executor: LocalProcesses, seeds: list[int], *, place: str | None = None) -> tuple[float, dict[str, str]]:
    """Execute a sweep with these seeds; return seconds of the clock, and the digests of trained states by run.

    Raises `RuntimeError` if a run fails.
    """
    with tempfile.TemporaryDirectory() as runs:
        plan = make_plan(load_spec({**SPEC, "seeds": seeds}), runs=Path(runs))
        begun = time.perf_counter()
        summary = run_sweep(plan, Settings(profile=False, place=place, workers=2), executor=executor)
        took = time.perf_counter() - begun
        if not summary.complete:
            raise RuntimeError(f"the sweep is not complete: {summary.failures[:3]}")
        results = (run_files.read(ResultRecord, run.directory / rundir.RESULT) for run in plan.runs)
        return took, {result.run_id: str(result.state_digest) for result in results}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=whole(10, 5000), default=1000, help="of each sweep")
    runs = parser.parse_args().runs
    seeds, warm = list(range(runs)), list(range(FIRST, FIRST + 8))
    with s3_server(), LocalProcesses(2, threads=1) as executor:
        for place in (None, f"s3://{BUCKET}/warm"):
            seconds(executor, warm, place=place)
        before, local = seconds(executor, seeds)
        print(f"here: {before:.1f} s", flush=True)
        there, remote = seconds(executor, seeds, place=f"s3://{BUCKET}/timed")
        print(f"in a bucket: {there:.1f} s", flush=True)
        again, _ = seconds(executor, seeds)
        print(f"here again: {again:.1f} s", flush=True)
        place = open_objects(f"s3://{BUCKET}/timed")
        stored = sum(1 for folder in ("runs/", "claims/", "attempts/", "results/") for _ in place.list(folder))
    ratio = there / ((before + again) / 2)
    equal = sum(local[run] == remote[run] for run in local)
    lines: list[Any] = [
        "# A sweep in a bucket, and on this machine",
        "",
        f"Sweeps of {runs:,} runs of 7 steps (digits, resnet8 of half the width) on two workers with warm kernels. The"
        " store is moto's S3 server on loopback, which takes its time from the same two cores. Made by"
        f" `benchmarks/object_store.py --runs {runs}`.",
        "",
        "| | seconds | seconds a run |",
        "|---|---|---|",
        *(
            f"| {name} | {took:.1f} | {took / runs:.3f} |"
            for name, took in (("here", before), ("in a bucket", there), ("here again (control)", again))
        ),
        "",
        f"Time in the bucket over the mean of both times here: {ratio:.2f} ({verdict(ratio, TARGET)}). {equal:,} of"
        f" {runs:,} runs ended with the same bits. Objects in the bucket at the end: {stored / runs:.1f} a run.",
    ]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))
    sys.exit(0 if equal == runs and meets(ratio, TARGET) else 1)


if __name__ == "__main__":
    main()
