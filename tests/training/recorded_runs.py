"""A small governed run on digits, for tests of what executes recorded runs again: three classes, one admitted late."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from explorer import rundir
from explorer.data.digits import Digits
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory
from explorer.note import Algorithm, Signer
from explorer.provenance.envelope import write_envelope
from explorer.provenance.keys import read_key
from explorer.provenance.policy import POLICY, Rule
from explorer.runlog.documents import keep
from explorer.training.run import execute
from explorer.training.run_plan import plan_run
from tests.governance import desk
from tests.provenance.people import RISK
from tests.recipes_for_tests import tiny_recipe, write_run

LATE = desk.policy(
    name="late",
    rules=(
        Rule(classes=("licensed",), progress=(0.0, 0.5), weight=0.0),
        Rule(classes=("open/mit",), depth=(0.0, 0.3), weight=0.0),
        Rule(classes=("*",), weight=1.0),
    ),
)
METHODS = (
    {"routing": {"policy": "late"}},
    "contributions",
    {"entropy": {"probes": 4, "profiles": 2, "permutations": 9}},
)
STEPS, EVERY = 7, 3


def documents_for_digits(root: Path) -> Path:
    """The documents of an author who has tagged all of digits."""
    split = Digits().load(None).train
    directory = desk.make(root / "desk", desk.classes_of(len(split)), split=split)
    write_envelope(directory / "policies" / "late.json", desk.document(LATE, POLICY, RISK))
    return directory


def recorded_run(root: Path) -> Path:
    """The directory of a finished run."""
    run = planned_run(root, documents_for_digits(root))
    execute(run)
    return run


def planned_run(root: Path, author: Path, **train: Any) -> Path:
    """The directory of a run that has not begun; `author` has the documents."""
    documents = desk.read(author, "late")
    recipe = tiny_recipe([*METHODS, {"recorder": {"every": EVERY}}, {"ema": {"half_life": 0.2}}], **train)
    record = plan_run(
        recipe,
        sweep="test",
        baseline="tiny",
        tuning=None,
        ssr=1.0,
        seed=0,
        threads=1,
        data=None,
        documents=documents,
    )
    run = write_run(root, record)
    keep(documents, run)
    return run


def entries_of(run: Path) -> list[bytes]:
    return list(LedgerDirectory(run / rundir.LEDGER).entries())


def copied(run: Path, root: Path) -> Path:
    shutil.copytree(run, root / run.name)
    return root / run.name


def rewritten(run: Path, root: Path, change: Callable[[list[bytes]], Sequence[bytes]]) -> Path:
    """A copy whose ledger has other entries, signed by the trainer all the same."""
    made = copied(run, root)
    ledger = LedgerDirectory(run / rundir.LEDGER)
    key = read_key(run.parent / "desk" / "trainer.pem", None)
    signer = Signer(name=ledger.checkpoint().origin, algorithm=Algorithm.ED25519, private_key=key)
    for name in ("checkpoint", "tile"):
        path = made / rundir.LEDGER / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with Log.create(made / rundir.LEDGER, origin=signer.name, signer=signer) as log:
        log.append(change(entries_of(run)))
    return made
