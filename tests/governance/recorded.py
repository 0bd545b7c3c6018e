"""Tiny governed loops that write a ledger: two classes, one of which may train from half of the run on."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from explorer import rundir
from explorer.engine.fit import FitOptions, fit
from explorer.engine.loop import Loop
from explorer.engine.method import Kind, Method
from explorer.engine.optimizer import SGDSpec
from explorer.engine.state import State
from explorer.entries.kinds import Genesis
from explorer.governance.contributions import Contributions
from explorer.governance.journal import Journal
from explorer.governance.recorder import Recorder, training_state
from explorer.governance.routing import Routing
from explorer.governance.shared_state import Session
from explorer.ledger.storage import LedgerDirectory
from explorer.provenance.policy import Rule
from explorer.provenance.routing_weights import bind
from explorer.provenance.tag_attestation import VerifiedTags
from tests.entries.examples import EXAMPLES
from tests.governance.desk import policy
from tests.governance.tagged import CLASSES, tagged_loop
from tests.governance.tagged import tags as usual_tags
from tests.ledger.signers import signer
from tests.loop_for_tests import small_net
from tests.provenance.tables import TAXONOMY

STEPS, EVERY, EXAMPLES_COUNT = 12, 5, 40
LATE = policy(
    rules=(
        Rule(classes=("licensed/news",), progress=(0.0, 0.5), weight=0.0),
        Rule(classes=("licensed/news",), depth=(0.5, 1.0), weight=0.5),
        Rule(classes=("open",), weight=1.0),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Interrupted(Method):
    """Stops the process's share of the run in a hook of some step, as a kill would."""

    name: ClassVar[str] = "interrupted"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""
    at: int = -1

    def after_update(self, state: State) -> None:
        if state.step == self.at:
            raise InterruptedError


def governed(
    methods: Sequence[Method] = (), *, every: int = EVERY, norm: str = "group", recorder: bool = True, **setting: Any
) -> Loop:
    """A loop of 12 steps with routing, contributions and a recorder, which has no journal yet."""
    torch.set_num_threads(1)
    chosen: dict[str, Any] = {
        "total_steps": STEPS,
        "session": {"routing": bind(LATE, TAXONOMY, where="late")},
        "model": small_net(norm),
        "optimizer": SGDSpec(lr=0.1, momentum=0.9, weight_decay=0.01),
    }
    recording = [Recorder(every=every)] if recorder else []
    all_methods = [Routing(policy="late"), Contributions(), *recording, *methods]
    return tagged_loop(all_methods, examples=EXAMPLES_COUNT, **(chosen | setting))


def genesis_of(loop: Loop) -> Genesis:
    usual = EXAMPLES[0]
    assert isinstance(usual, Genesis)
    layers = tuple(layer.name for layer in loop.state.resource(Session).layers)
    return replace(usual, classes=CLASSES, layers=layers, initial=training_state(loop.state, step=0).parameters)


def journal_of(run: Path, loop: Loop, tags: VerifiedTags | None = None) -> Journal:
    leaves = (tags or usual_tags(EXAMPLES_COUNT)).tags.leaves
    return Journal.open(run, genesis=genesis_of(loop), signer=signer(), leaves=leaves)


def train(run: Path, loop: Loop, *, tags: VerifiedTags | None = None, **options: Any) -> Loop:
    """Fit the loop, or finish it from its checkpoint."""
    with journal_of(run, loop, tags) as journal:
        loop.state.resource(Session).journal = journal
        fit(loop, FitOptions(directory=run, run_id="run", **options))
    return loop


def with_secrets_of(other: Path, run: Path) -> Path:
    """A run whose commitments are those of the other."""
    (run / rundir.SECRETS).parent.mkdir(parents=True, mode=0o700)
    shutil.copy2(other / rundir.SECRETS, run / rundir.SECRETS)
    return run


def leaves_of(run: Path) -> list[bytes]:
    return list(LedgerDirectory(run / rundir.LEDGER).entries())
