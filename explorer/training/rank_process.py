"""The processes behind `torchrun.py`: the agent, which starts the ranks of a run and watches them, and a rank."""

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from explorer.errors import ExplorerError
from explorer.guardian import child_environment, die_with_parent
from explorer.training.run import train_as
from explorer.training.torchrun import AGENT, RANK, RANK_PROCESS

MESSAGE = 1000  # characters of an error: a pipe takes so many at once, so that messages of two ranks do not mix
PROGRESS_SECONDS = 0.2  # between two reports of progress

# --- the agent ---


def _be_agent(ranks: str, directory: str, options: str) -> None:
    from torch.distributed import run  # here, because a rank needs none of it

    die_with_parent(os.environ)
    # The ranks die with the agent, as the agent does with its parent.
    os.environ |= child_environment(threads=int(os.environ["OMP_NUM_THREADS"]))
    settings = ["--standalone", "--nproc-per-node", ranks, "--max-restarts", "0", "--module"]
    run.main([*settings, RANK_PROCESS, RANK, directory, options])


# --- a rank ---


def _be_rank(directory: str, options: str) -> int:
    die_with_parent(os.environ)
    rank = int(os.environ["RANK"])
    # Before torch looks for devices: each rank sees one only, as its first.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible else None
    local = int(os.environ["LOCAL_RANK"])
    os.environ["CUDA_VISIBLE_DEVICES"] = devices[local] if devices and local < len(devices) else str(local)
    channel = os.dup(1)
    os.dup2(2, 1)  # what a model prints is no message

    def say(**message: Any) -> None:
        os.write(channel, json.dumps({"rank": rank, **message}).encode() + b"\n")

    last = 0.0

    def on_progress(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= PROGRESS_SECONDS:
            last = time.monotonic()
            say(steps=[done, total])

    say(process=os.getpid())
    try:
        train_as(Path(directory), **json.loads(options), on_progress=on_progress)
    except KeyboardInterrupt:
        say(ended="stopped")
        return 0
    except Exception as error:
        if not isinstance(error, ExplorerError):
            traceback.print_exc()
        say(failed=[type(error).__name__, str(error)[:MESSAGE]])
        return 1
    say(ended="done")
    return 0


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == AGENT:
        _be_agent(*arguments)
    else:
        sys.exit(_be_rank(*arguments))
