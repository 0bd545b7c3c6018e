"""Kill the quickstart with SIGKILL at random moments and check that it ends with the bits of an undisturbed one.

    python benchmarks/kill.py UNDISTURBED [KILLS]        writes benchmarks/kill.md

UNDISTURBED is the runs directory of a finished quickstart on this machine.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from options import options, whole

SEED = 20261121


def outcomes(runs: Path) -> dict[str, tuple[str, dict[str, float], bytes]]:
    """Return the end of each run: state digest, final metrics, the bytes of its metrics."""
    found = {}
    for result in sorted((runs / "digits").glob("*/result.json")):
        record = json.loads(result.read_text())
        metrics = (result.parent / "metrics.jsonl").read_bytes()
        found[result.parent.name] = (record["state_digest"], record["metrics"], metrics)
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("undisturbed", type=Path, help="the runs of the same sweep, undisturbed")
    parser.add_argument("kills", nargs="?", type=whole(), default=12)
    given = parser.parse_args()
    undisturbed, kills = given.undisturbed, given.kills
    if not undisturbed.is_dir():
        parser.error(f"found {str(undisturbed)!r}; expected a directory of runs")
    explorer = shutil.which("explorer", path=str(Path(sys.executable).parent)) or "explorer"
    chance = random.Random(SEED)
    expected = outcomes(undisturbed)
    lines = [
        "# Killed and resumed",
        "",
        "`explorer quickstart` killed with SIGKILL at random moments and started again. Made by `benchmarks/kill.py`.",
        "",
        "| kill | after (s) | runs done by then |",
        "|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        runs = Path(temporary)
        command = [explorer, "quickstart", "--runs", str(runs)]
        number = 0
        while number < kills:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait = chance.uniform(4, 40)
            time.sleep(wait)
            if process.poll() is not None:
                print(f"finished before kill {number + 1}", file=sys.stderr)
                break
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            number += 1
            lines.append(f"| {number} | {wait:.1f} | {len(outcomes(runs))} |")
            print(lines[-1], flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = outcomes(runs)
    same = sum(found.get(run) == outcome for run, outcome in expected.items())
    verdict = f"{same} of {len(expected)} runs ended with the same parameters, metrics and metric files, bit for bit."
    lines += ["", f"After {number} kills: {verdict}"]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")
    print(lines[-1])
    sys.exit(0 if found == expected and number >= kills else 1)


if __name__ == "__main__":
    main()
