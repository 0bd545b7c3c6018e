"""Journals without training: two classes and the quarantine, two layers, numbers that follow from the step."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from explorer.entries.entropy_profile import LayerProfiles
from explorer.entries.kinds import Genesis, TrainingState
from explorer.entries.numbers import Floats, StepNumbers, diagonal
from explorer.governance.journal import Journal
from explorer.provenance.routing_weights import Admission, Phase
from explorer.runlog.tensors import Tensors
from tests.entries.examples import EXAMPLES
from tests.ledger.signers import signer

CLASSES = ("open/bsd", "open/mit")
LAYERS = ("conv", "head")
GENESIS = EXAMPLES[0]
assert isinstance(GENESIS, Genesis)
GENESIS = replace(GENESIS, classes=CLASSES, layers=LAYERS)
LEAVES = np.arange(40 * 32, dtype=np.uint64).astype(np.uint8).reshape(40, 32)
EVERY = 3


def open_journal(
    run: Path, *, genesis: Genesis = GENESIS, seed: int = 1, confidential: frozenset[str] = frozenset()
) -> Journal:
    return Journal.open(run, genesis=genesis, signer=signer(seed), leaves=LEAVES, confidential=confidential)


NO_TENSORS = Tensors(parameters={}, buffers={}, optimizer={})


def state(step: int, salt: int = 0) -> TrainingState:
    digest = f"{step:062x}{salt:02x}"
    return TrainingState(parameters=digest, buffers=digest, optimizer=digest, random=digest)


def admission(step: int) -> Admission:
    """The first class may train only the head, and from step 4 on everything."""
    weights = np.array([[float(step >= 4), 1.0], [1.0, 1.0]])
    phase = Phase(progress=(0.0, 0.5) if step < 4 else (0.5, 1.0), conditions=frozenset())
    return Admission(phase=phase, classes=CLASSES, layers=LAYERS, weights=weights)


def numbers(step: int) -> StepNumbers:
    """Both classes, but only the second one at every fifth step."""
    chance = np.random.default_rng(step)
    classes = (1,) if step % 5 == 4 else (0, 1)
    weights = admission(step).weights[list(classes)].astype(np.float32)
    gradients = chance.normal(size=(len(classes), 2, 7)).astype(np.float32)
    norms = np.where(weights > 0, np.linalg.norm(gradients, axis=2), 0).astype(np.float32)
    weighted = gradients * weights[:, :, None]
    gram = np.einsum("cle,dle->lcd", weighted, weighted).astype(np.float32)
    gram = ((gram + gram.transpose(0, 2, 1)) / 2).astype(np.float32)
    gram[:, range(len(classes)), range(len(classes))] = diagonal(weights, norms).T
    dots = np.where(weights > 0, chance.normal(size=weights.shape), 0).astype(np.float32)
    updates = chance.random(2).astype(np.float32)
    return StepNumbers(classes=classes, weights=weights, norms=norms, dots=dots, gram=gram, updates=updates)


def sketches(step: int) -> Floats:
    return np.random.default_rng(step).normal(size=(len(numbers(step).classes), 2, 64)).astype(np.float32)


def rows(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(0, 40, 8)


def profile(step: int) -> LayerProfiles:
    spectra = np.full((2, 2, 3), 0.5 + step)
    return LayerProfiles(
        step=step, probes="a" * 64, classes=(0, 1), examples=(4, 6), spectra=spectra, joint=np.full((2, 6), 0.25)
    )


def record_step(journal: Journal, step: int, *, examples: tuple[int, int] = (3, 4)) -> None:
    """One step, and what a run does around it."""
    if step % 4 == 0:
        journal.profile(profile(step))
        journal.decision(
            step,
            action="freeze",
            rule="entropy-settled",
            parameters={"tolerance": 0.01},
            subjects=("open/bsd",),
            layers=("conv",),
            evidence={"open/bsd": b"%d" % step},
        )
    journal.step(
        step,
        rows=rows(step),
        examples=examples,
        quarantined=1,
        updated=(step >= 4, True),
        admission=admission(step),
        numbers=numbers(step),
        sketches=sketches(step),
    )
    if (step + 1) % EVERY == 0:
        journal.segment(step + 1, state(step + 1))


def record(journal: Journal, first: int, last: int, **change: tuple[int, int]) -> None:
    """Steps [first, last)."""
    for step in range(first, last):
        record_step(journal, step, **change)


def finish(journal: Journal, steps: int) -> None:
    if not journal.settled:
        journal.segment(steps, state(steps))
    journal.end(steps, state(steps), tensors=NO_TENSORS, metrics={"accuracy": 0.5})


def recorded(run: Path, steps: int) -> Path:
    """A finished run of so many steps."""
    with open_journal(run) as journal:
        journal.begin(0, state(0))
        record(journal, 0, steps)
        finish(journal, steps)
    return run
