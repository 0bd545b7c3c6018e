"""Job files: readable files for a scheduler, by which a published sweep needs no process of ours to drive it.

Both kinds are arrays of `explorer run-at PLACE --index N`, one for each class of machines. Every job measures the step
times of its class first, unless that is done: the first one to start does it, and the others are put back until it has.
What a scheduler has to know of a run is its exit status: 0 is done, 75 is to be called again, anything else is not
tried again.

    slurm       a script for each class, submitted by `sbatch FILE`; a preempted job gets USR1 two minutes before, and
                is queued again
    kubernetes  submitted by `kubectl apply -f FILE`: an indexed Job (batch/v1) for each class, whose pods are replaced
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from explorer.errors import SweepError, unknown
from explorer.run_files import Hardware

GRACE = 120  # seconds before a job is killed in which it publishes a checkpoint
TRIES = 20  # calls of one run at most, of which preemptions are most
PAUSE = 30  # seconds before a run that another worker holds is queued again


@dataclass(frozen=True, kw_only=True, slots=True)
class Jobs:
    """The runs of a published sweep for one class of machines, for a scheduler."""

    sweep: str
    place: str
    runs: int
    hardware: Hardware
    label: str | None = None  # of the class, where the sweep has several
    at_once: int | None = None  # jobs; None: as many as the scheduler starts
    image: str | None = None  # of a container that has explorer installed
    data: str | None = None  # directory of datasets on the workers
    commands: bool = False  # whether commands and notebooks of the user's train

    @property
    def name(self) -> str:
        """The names of sweep and class as schedulers accept them: a label of RFC 1123."""
        longest = 50 if self.label is None else 49 - len(self.label)
        name = re.sub(r"[^a-z0-9]+", "-", self.sweep.lower())[:longest].strip("-") or "sweep"
        return name if self.label is None else f"{name}-{self.label}"

    @property
    def cpus(self) -> int:
        """The cores of a run: all of its processes are on one node."""
        return self.hardware.threads * self.hardware.world_size

    def command(self, *options: str) -> list[str]:
        """Return the unit of work as a command."""
        own = () if self.label is None else ("--class", self.hardware.name)
        options = (*own, *options, *(("--commands",) if self.commands else ()))
        return ["explorer", "run-at", self.place, *options, *(() if self.data is None else ("--data", self.data))]


def slurm(jobs: Jobs) -> str:
    """Return a script for `sbatch`."""
    at_once = "" if jobs.at_once is None else f"%{jobs.at_once}"
    devices = jobs.hardware.devices
    gpu = f"#SBATCH --gpus-per-task={devices}\n" if devices else ""
    index = ' --index "$SLURM_ARRAY_TASK_ID"'
    return f"""#!/bin/bash
# {jobs.runs} runs of the sweep {jobs.sweep!r}, published at {jobs.place!r}; for {jobs.hardware.name!r}.
# Submit it with sbatch; then follow it with: explorer sweep run SPEC --at PLACE
# Nodes with that hardware only: name them as your site does, by a constraint or a partition, and take away one #.
##SBATCH --constraint=...
#SBATCH --job-name={jobs.name}
#SBATCH --array=0-{jobs.runs - 1}{at_once}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={jobs.cpus}
{gpu}#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=USR1@{GRACE}
export OMP_NUM_THREADS={jobs.hardware.threads}

# Called again later: preempted, or another worker has it. Slurm counts the restarts.
again() {{
    if [ "${{SLURM_RESTART_COUNT:-0}}" -ge {TRIES} ]; then exit 1; fi
    sleep {PAUSE}
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
    exit 0
}}

# The step times come first; this does nothing if they are measured.
srun {shlex.join(jobs.command("--profile"))} || {{ [ $? -eq 75 ] && again; exit 1; }}
srun {shlex.join(jobs.command())}{index} || {{ [ $? -eq 75 ] && again; exit 1; }}
"""


def kubernetes(jobs: Jobs) -> str:
    """Return a manifest for `kubectl apply`. Raises `SweepError` without a container's image."""
    if jobs.image is None:
        raise SweepError("--image: missing: expected the image of a container that has explorer installed")
    threads = str(jobs.hardware.threads)

    def resources() -> dict[str, str]:  # a new one for every use, or YAML would refer to the first
        devices = jobs.hardware.devices
        return {"cpu": str(jobs.cpus), **({"nvidia.com/gpu": str(devices)} if devices else {})}

    def container(name: str, command: list[str]) -> dict[str, Any]:
        return {
            "name": name,
            "image": jobs.image,
            "command": command,
            "env": [{"name": "OMP_NUM_THREADS", "value": threads}],
            "resources": {"requests": resources(), "limits": resources()},
        }

    # A pod that was evicted does not count; 1 ends its run, and 75 (or a lost pod) lets it be called again.
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailIndex", "onExitCodes": {"containerName": "run", "operator": "In", "values": [1]}},
    ]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": jobs.name},
        "spec": {
            "completionMode": "Indexed",
            "completions": jobs.runs,
            "parallelism": jobs.at_once or jobs.runs,
            "backoffLimitPerIndex": TRIES,
            "maxFailedIndexes": jobs.runs,
            "podFailurePolicy": {"rules": rules},
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": GRACE,
                    "initContainers": [container("step-times", jobs.command("--profile"))],
                    "containers": [container("run", jobs.command("--index", "$(JOB_COMPLETION_INDEX)"))],
                }
            },
        },
    }
    head = (
        f"# {jobs.runs} runs of the sweep {jobs.sweep!r}, published at {jobs.place!r}; for {jobs.hardware.name!r}.\n"
        "# Nodes with that hardware only: add a nodeSelector, as your cluster labels them, to spec.template.spec.\n"
    )
    return head + yaml.safe_dump(job, sort_keys=False)


KINDS: dict[str, Callable[[Jobs], str]] = {"slurm": slurm, "kubernetes": kubernetes}


def job_file(kind: str, jobs: Jobs) -> str:
    """Return the file for a kind of scheduler. Raises `SweepError` for an unknown one, and what that one refuses."""
    if kind not in KINDS:
        raise SweepError(unknown("scheduler", kind, KINDS))
    if any(character in jobs.place + jobs.sweep + jobs.hardware.name for character in "\n\r\0"):
        raise SweepError(f"{jobs.place!r:.200}: a place's name is one line")
    return KINDS[kind](jobs)


def job_files(kind: str, classes: Sequence[Jobs]) -> dict[str | None, str]:
    """Return the files for all classes by label: one for each, of Kubernetes a single one, with None for its label.

    Raises `SweepError` as `job_file` does.
    """
    files = {jobs.label: job_file(kind, jobs) for jobs in classes}
    return {None: "---\n".join(files.values())} if kind == "kubernetes" else files
