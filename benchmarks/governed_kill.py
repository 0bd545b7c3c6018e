"""Kill a governed run with SIGKILL at random steps, again and again: it resumes, executes again what was lost with the
same bits, and its ledger becomes what it would have been.

    python benchmarks/governed_kill.py [KILLS]        writes benchmarks/governed_kill.md

The run is one of the command line: digits with verified tags, a policy that admits a class late, contributions, entropy
profiles, an average of the weights. Checkpoints come more often than usual, so that kills hit all there is to hit.
"""

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from options import options, whole  # noqa: E402
from pages import write_page  # noqa: E402

from explorer import run_files, rundir  # noqa: E402
from explorer.engine.fit import FitOptions  # noqa: E402
from explorer.ledger.storage import read_checkpoint  # noqa: E402
from explorer.ledger.trust_anchor import Anchor, TrustedKey  # noqa: E402
from explorer.ledger.verify import verify  # noqa: E402
from explorer.note import Algorithm, Signer  # noqa: E402
from explorer.run_files import RunRecord  # noqa: E402
from explorer.training import run as wiring  # noqa: E402
from explorer.training.replay import replay  # noqa: E402
from tests.governance.desk import TRAINER  # noqa: E402
from tests.governance.killing import survive  # noqa: E402
from tests.provenance.people import NOW, private  # noqa: E402
from tests.training.recorded_runs import documents_for_digits, planned_run  # noqa: E402

SEED, EPOCHS, CHECKPOINT_SECONDS = 20261121, 6, 0.2


def train(run: Path, on_progress: Callable[[int, int], None]) -> None:
    """Train the run to its end, from the step that it has reached."""
    wiring.execute(run, on_progress=on_progress)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("kills", nargs="?", type=whole(), default=50)
    kills = parser.parse_args().kills
    wiring.FitOptions = functools.partial(FitOptions, checkpoint_seconds=CHECKPOINT_SECONDS)  # pyright: ignore
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        author = documents_for_digits(root)

        def new(name: str) -> Path:
            return planned_run(root / name, author, epochs=EPOCHS)

        calm = new("calm")
        train(calm, lambda done, total: None)
        made: list[Path] = []

        def place_of(number: int) -> Path:
            run = new(str(number))
            shutil.copytree(calm / rundir.PRIVATE, run / rundir.PRIVATE)
            shutil.copy(calm / rundir.ENVIRONMENT, run / rundir.ENVIRONMENT)
            made.append(run)
            return run

        found = survive(calm, place_of, train, verifies, kills=kills, seed=SEED, most=25, patience=0.3)
        record = run_files.read(RunRecord, calm / rundir.RUN)
        again = replay(made[-1])
    lines = [
        "# A governed run, killed and resumed",
        "",
        f"`{record.run_id}`: {record.steps} steps on {record.hardware.name}, one thread.",
        "Killed with SIGKILL at random moments and started again. Made by `benchmarks/governed_kill.py`.",
        "",
        "| | |",
        "|---|---|",
        f"| kills | {found.kills} |",
        f"| after so many different steps | {found.steps} |",
        f"| with a checkpoint to go on from | {found.resumed} |",
        f"| steps executed again, with the same entries | {found.again} |",
        f"| runs finished | {found.runs} |",
        "| entries and numbers as in the undisturbed run; ledger verified after each kill | all |",
        f"| the last run, replayed | {'bit for bit as on record' if again.equal else 'NOT as on record'} |",
    ]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))
    sys.exit(0 if again.equal else 1)


def verifies(ledger: Path) -> bool:
    """Return True if the ledger is whole and signed by the trainer."""
    origin = read_checkpoint(ledger)[1].origin
    signer = Signer(name=origin, algorithm=Algorithm.ED25519, private_key=private(TRAINER))
    anchor = Anchor(quorum="none").with_log(TrustedKey(verifier=signer.verifier))
    return verify(ledger, anchor=anchor, now=NOW).ok


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
