"""Kill the quickstart with SIGKILL at random moments and check that it ends with the results of an undisturbed one.

    python benchmarks/kill.py UNDISTURBED [KILLS]        writes benchmarks/kill.md
    python benchmarks/kill.py UNDISTURBED [KILLS] --spec SPEC --most SECONDS        a sweep of one's own, writes nothing

UNDISTURBED is the directory of runs of the same commands, finished, on this machine.

Parameters, final metrics and what every step measured must be the same, bit for bit. Evaluations in between are as
many as the time of the run allows, unless a specification says how many: those that both runs made must agree.
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
from dataclasses import dataclass
from pathlib import Path

from options import options, whole
from pages import write_page

SEED = 20261121
LEAST, MOST = 4.0, 40.0  # seconds before a kill


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The end of a run: digest of its parameters, final metrics, measurements of its steps, evaluations in between."""

    state: str
    metrics: dict[str, float]
    steps: dict[tuple[str, int], float]
    evaluations: dict[tuple[str, int], float]

    def same(self, other: "Outcome | None") -> bool:
        """Return whether another run ended as this one did."""
        if other is None or (self.state, self.metrics, self.steps) != (other.state, other.metrics, other.steps):
            return False
        both = self.evaluations.keys() & other.evaluations.keys()
        return all(self.evaluations[at] == other.evaluations[at] for at in both)


def outcomes(runs: Path) -> dict[str, Outcome]:
    """Return the end of each finished run, by sweep and name."""
    ended = {}
    for result in sorted(runs.glob("[!._]*/*/result.json")):
        record = json.loads(result.read_text())
        lines = map(json.loads, (result.parent / "metrics.jsonl").read_text().splitlines())
        measured = {(line["metric"], line["step"]): line["value"] for line in lines}
        last = max((step for _, step in measured), default=0)
        between = {at for at in measured if at[0] in record["metrics"] and at[1] != last}
        ended[f"{result.parent.parent.name}/{result.parent.name}"] = Outcome(
            state=record["state_digest"],
            metrics=record["metrics"],
            steps={at: value for at, value in measured.items() if at not in between},
            evaluations={at: measured[at] for at in between},
        )
    return ended


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("undisturbed", type=Path, help="the runs of the same sweep, undisturbed")
    parser.add_argument("kills", nargs="?", type=whole(), default=12)
    parser.add_argument("--spec", type=Path, help="the specification of a sweep to run in place of the quickstart")
    parser.add_argument("--most", type=float, default=MOST, help="seconds before a kill, at most")
    given = parser.parse_args()
    undisturbed, kills = given.undisturbed, given.kills
    if not undisturbed.is_dir():
        parser.error(f"found {str(undisturbed)!r}; expected a directory of runs")
    if given.spec is not None and not given.spec.is_file():
        parser.error(f"--spec: found {str(given.spec)!r}; expected a specification")
    if not given.most > 0:
        parser.error(f"--most: found {given.most}; expected seconds above 0")
    explorer = shutil.which("explorer", path=str(Path(sys.executable).parent)) or "explorer"
    chance = random.Random(SEED)
    expected = outcomes(undisturbed)
    if not expected:
        parser.error(f"found no finished run in {str(undisturbed)!r}; expected those of an undisturbed quickstart")
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
        work = ["quickstart"] if given.spec is None else ["sweep", "run", str(given.spec)]
        command = [explorer, *work, "--runs", str(runs)]
        number = 0
        while number < kills:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait = chance.uniform(min(LEAST, given.most / 4), given.most)
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
        ended = outcomes(runs)
    same = sum(outcome.same(ended.get(run)) for run, outcome in expected.items())
    measured = sum(len(outcome.steps) for outcome in expected.values())
    verdict = (
        f"{same} of {len(expected)} runs ended with the same parameters, metrics and {measured:,} measurements of their"
        " steps, bit for bit, and no evaluation that both made differs."
    )
    lines += ["", f"After {number} kills: {verdict}"]
    if given.spec is None:
        write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print(lines[-1])
    sys.exit(0 if same == len(expected) == len(ended) and number >= kills else 1)


if __name__ == "__main__":
    main()
