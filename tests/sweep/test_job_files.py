"""Job files for schedulers: what they say, and that a scheduler that requeues brings a sweep to its end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from explorer.errors import SweepError
from explorer.place.leases import claims_of, end, take
from explorer.sweep.at_place import publish
from explorer.sweep.job_files import Jobs, job_file
from explorer.sweep.run_at import missing_at
from tests.builders import CPU, H200
from tests.sweep.sweeps import ROOT, SPEC, execute, outcomes, plan, spec

JOBS = Jobs(sweep="My Sweep!", place="s3://bucket/runs/mine", runs=4, hardware=CPU)

# A scheduler in forty lines: it runs an array one after another, and again what was requeued.
SBATCH = """#!/usr/bin/env python3
import os, pathlib, re, subprocess, sys
script = pathlib.Path(sys.argv[1])
first, last = map(int, re.search(r"^#SBATCH --array=(\\d+)-(\\d+)", script.read_text(), re.M).groups())
queue = pathlib.Path(os.environ["FAKE_QUEUE"])
restarts = {}
waiting = list(range(first, last + 1))
while waiting:
    index = waiting.pop(0)
    queue.unlink(missing_ok=True)
    done = subprocess.run(
        ["bash", str(script)],
        env={**os.environ, "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(index),
             "SLURM_RESTART_COUNT": str(restarts.get(index, 0))},
    )
    if queue.exists():
        assert queue.read_text().strip() == f"7_{index}"
        restarts[index] = restarts.get(index, 0) + 1
        waiting.append(index)
    print(f"task {index}: {'requeued' if queue.exists() else done.returncode}", flush=True)
"""
SCONTROL = """#!/bin/sh
[ "$1" = requeue ] && echo "$2" > "$FAKE_QUEUE"
"""
SRUN = """#!/bin/sh
shift  # the name of the command, which is not on this path
exec "$PYTHON" -m explorer "$@"
"""


def test_a_script_for_slurm_says_what_a_run_needs():
    content = job_file("slurm", JOBS)
    assert "#SBATCH --array=0-3\n" in content and "--gpus" not in content
    assert "#SBATCH --requeue" in content and "#SBATCH --signal=USR1@" in content
    assert "run-at s3://bucket/runs/mine --index" in content
    assert "#SBATCH --job-name=my-sweep\n" in content
    many = Jobs(sweep="s", place="/shared/a place", runs=9, hardware=H200, at_once=3, data="/data sets")
    content = job_file("slurm", many)
    assert "#SBATCH --array=0-8%3\n" in content and "#SBATCH --gpus-per-task=1" in content
    assert f"#SBATCH --cpus-per-task={H200.threads}" in content
    assert "run-at '/shared/a place' --data '/data sets' --index" in content


@pytest.mark.parametrize("name", ["$(touch pwned)", "`touch pwned`", "a'; touch pwned; '", 'a" && touch pwned "'])
def test_no_name_becomes_a_command(name, tmp_path):
    jobs = Jobs(sweep=name, place=f"/shared/{name}", runs=1, hardware=CPU, data=name)
    script = tmp_path / "job"
    script.write_text(job_file("slurm", jobs).replace("srun ", "printf '%s\\n' "))
    subprocess.run(["bash", str(script)], cwd=tmp_path, check=True, capture_output=True)
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


def test_a_manifest_for_kubernetes_says_what_a_run_needs():
    jobs = Jobs(sweep="s", place="gs://b/p", runs=9, hardware=H200, at_once=3, image="registry/explorer:1")
    content = job_file("kubernetes", jobs)
    assert "&id" not in content, "no references: people read it"
    job = yaml.safe_load(content)["spec"]
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (9, 3, "Indexed")
    pod = job["template"]["spec"]
    assert pod["initContainers"][0]["command"] == ["explorer", "run-at", "gs://b/p", "--profile"]
    assert pod["containers"][0]["command"][-2:] == ["--index", "$(JOB_COMPLETION_INDEX)"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


@pytest.mark.slow
def test_the_manifest_is_valid_by_the_published_schema():
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="pip install 'explorer[peers]'")
    job = yaml.safe_load(job_file("kubernetes", Jobs(sweep="s", place="p", runs=2, hardware=CPU, image="i")))
    kubernetes_validate.validate(job, "1.31", strict=True)
    job["spec"]["completion"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, "1.31", strict=True)


@pytest.mark.parametrize(
    ("kind", "jobs", "words"),
    [
        ("slrum", JOBS, "unknown scheduler 'slrum'; did you mean 'slurm'"),
        ("kubernetes", JOBS, "--image: missing"),
        ("slurm", Jobs(sweep="s", place="a\n#SBATCH --wrap=x", runs=1, hardware=CPU), "one line"),
    ],
)
def test_what_makes_no_job_file_is_named(kind, jobs, words):
    with pytest.raises(SweepError, match=re.escape(words)):
        job_file(kind, jobs)


@pytest.mark.slow
def test_a_scheduler_that_requeues_completes_the_sweep(tmp_path: Path):
    content = spec(budgets=[0.5])
    assert execute(tmp_path / "calm", content).complete
    planned = plan(tmp_path / "planned", content)
    at = publish(planned, str(tmp_path / "place"), profile=planned.classes)
    first = at.plan().runs[0]
    # A worker elsewhere has the first run for a while, and is then preempted.
    claim = take(at.objects, first, host="elsewhere", hardware="CPU", lease=3600)
    assert claim is not None
    binaries = tmp_path / "bin"
    binaries.mkdir()
    preempt = f"#!/bin/sh\nexec {sys.executable} {tmp_path / 'preempt.py'}\n"
    for name, script in {"sbatch": SBATCH, "scontrol": SCONTROL, "srun": SRUN, "sleep": preempt}.items():
        (binaries / name).write_text(script)
        (binaries / name).chmod(0o755)
    # What the job waits for: the other worker ends its claim meanwhile.
    (tmp_path / "preempt.py").write_text(
        "from explorer.place.leases import claims_of, end\n"
        "from explorer.objects import DirectoryObjects\n"
        f"objects = DirectoryObjects(__import__('pathlib').Path({str(tmp_path / 'place')!r}))\n"
        f"end(objects, claims_of(objects, {first!r})[0], 'preempted')\n"
    )
    script = tmp_path / "job.slurm"
    jobs = Jobs(sweep="tiny", place=str(tmp_path / "place"), runs=2, hardware=at.run(first).run.hardware)
    script.write_text(job_file("slurm", jobs))
    done = subprocess.run(
        ["sbatch", str(script)],
        env={
            **os.environ,
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "FAKE_QUEUE": str(tmp_path / "queue"),
        },
        capture_output=True,
        text=True,
        timeout=500,
    )
    tasks = [line for line in done.stdout.splitlines() if line.startswith("task")]
    assert tasks == ["task 0: requeued", "task 1: 0", "task 0: 0"], (done.stdout, done.stderr)
    assert missing_at(str(tmp_path / "place")) == []
    assert any(at.objects.list("profiles/")), "step times were measured first"
    assert execute(tmp_path / "runs", content, place=str(tmp_path / "place")).complete
    assert outcomes(tmp_path / "runs") == outcomes(tmp_path / "calm")


def test_a_claim_that_was_ended_is_free(tmp_path):
    at = publish(plan(tmp_path / "planned", SPEC), str(tmp_path / "place"))
    first = at.plan().runs[0]
    claim = take(at.objects, first, host="one", hardware="CPU")
    assert claim is not None and take(at.objects, first, host="two", hardware="CPU") is None
    end(at.objects, claim, "preempted")
    assert take(at.objects, first, host="two", hardware="CPU") is not None
    assert len(claims_of(at.objects, first)) == 2
