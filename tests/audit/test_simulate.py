"""Another policy: the same policy changes nothing, and another one gives what its gradients would have given."""

from pathlib import Path

import numpy as np
import pytest

from explorer.audit.simulate import simulate
from explorer.errors import LedgerError
from explorer.provenance.policy import Rule
from explorer.provenance.regions import Examples, depths_of
from explorer.provenance.routing_weights import admit
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import CLASSES, LAYERS, MIT, NEWS, STEPS, counts_of, routing, rows_of, write_governed_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunLedger:
    return RunLedger(write_governed_run(tmp_path_factory.mktemp("runs")))


def gradients(step: int) -> dict[int, np.ndarray]:
    """The unweighted gradients behind the numbers of a step, as the fixture draws them: L 7 for each class."""
    table = admit(routing(), classes=CLASSES, layers=depths_of(LAYERS), progress=step / STEPS).weights
    examples, _ = counts_of(rows_of(step))
    classes = [at for at in range(3) if examples[at] and table[at].any()]
    drawn = np.random.default_rng(step).normal(size=(len(classes), len(LAYERS), 7))
    return dict(zip(classes, drawn, strict=True))


def test_the_same_policy_changes_nothing(run: RunLedger) -> None:
    for each in simulate(run, routing(), range(STEPS), recorded=routing(), planned=STEPS):
        assert (each.length, each.cosine) == (pytest.approx(1), pytest.approx(1))
        assert each.unknown == 0 and each.was == pytest.approx(each.would)


def test_other_weights_give_what_the_gradients_would_have_given(run: RunLedger) -> None:
    other = routing(Rule(classes=(MIT,), weight=0.25), Rule(classes=("open", NEWS), depth=(0.5, 1.0), weight=1.0))
    steps = range(5, STEPS)  # from here on the recorded policy admits everybody to the upper half
    found = {each.layer: each for each in simulate(run, other, steps, recorded=routing(), planned=STEPS)}
    then = admit(other, classes=CLASSES, layers=depths_of(LAYERS), progress=0.9).weights
    now = admit(routing(), classes=CLASSES, layers=depths_of(LAYERS), progress=0.9).weights
    for at, layer in enumerate(LAYERS):
        before = [sum(now[c, at] * g[at] for c, g in gradients(step).items()) for step in steps]
        after = [sum(then[c, at] * g[at] for c, g in gradients(step).items()) for step in steps]
        squares = sum(float(np.dot(g, g)) for g in before), sum(float(np.dot(g, g)) for g in after)
        across = sum(float(np.dot(a, b)) for a, b in zip(before, after, strict=True))
        assert found[layer].length == pytest.approx((squares[1] / squares[0]) ** 0.5, rel=1e-5)
        assert found[layer].cosine == pytest.approx(across / (squares[0] * squares[1]) ** 0.5, rel=1e-5)
        assert sum(share or 0 for share in found[layer].would.values()) == pytest.approx(1)
        assert found[layer].unknown == 0


def test_what_was_denied_is_unknown_where_it_would_be_admitted(run: RunLedger) -> None:
    everybody = routing(Rule(classes=("*",), weight=1.0))
    found = {each.layer: each for each in simulate(run, everybody, range(STEPS), recorded=routing(), planned=STEPS)}
    with_news = sum(counts_of(rows_of(step))[0][0] > 0 for step in range(STEPS))
    before = sum(counts_of(rows_of(step))[0][0] > 0 for step in range(5))
    assert (found["embed"].unknown, found["head"].unknown) == (with_news, before)
    nobody = routing(Rule(classes=("licensed",), layers=("nothing",), weight=1.0))
    (first, *_) = simulate(run, nobody, range(STEPS), recorded=routing(), planned=STEPS)
    assert (first.length, first.cosine, first.would[MIT]) == (0.0, None, None)


def test_phases_are_those_of_the_other_policy(run: RunLedger) -> None:
    halves = routing(Rule(classes=(MIT,), progress=(0.0, 0.5), weight=1.0), Rule(classes=("open",), weight=1.0))
    found = simulate(run, halves, range(STEPS), recorded=routing(), planned=STEPS)
    assert [(each.phase, each.steps) for each in found[:: len(LAYERS)]] == [
        ("progress [0, 0.5)", 6),
        ("progress [0.5, 1]", 6),
    ]


def test_erased_numbers_cannot_be_simulated(tmp_path: Path) -> None:
    ledger = RunLedger(write_governed_run(tmp_path))
    (segment, *_) = ledger.segments()
    digest = segment.state.entry.blobs[f"numbers/{MIT}"].sha256
    (ledger.ledger.path / "blobs" / "sha256" / digest[:2] / digest).unlink()
    with pytest.raises(LedgerError, match="not here: numbers/open/mit"):
        simulate(ledger, routing(), range(STEPS), recorded=routing(), planned=STEPS)


def test_a_policy_that_tells_examples_apart_is_unknown_where_they_differ(run: RunLedger) -> None:
    """The gradient of the harder half is not on record; in layers that all examples may train nothing changes."""
    rules = routing().policy.rules
    easy = Rule(classes=(MIT,), layers=("head",), examples=Examples(loss=(0.0, 0.5)), weight=0.0)
    steps = range(5, STEPS)
    found = {
        each.layer: each for each in simulate(run, routing(easy, *rules), steps, recorded=routing(), planned=STEPS)
    }
    mit = CLASSES.index(MIT)
    assert found["head"].unknown == sum(counts_of(rows_of(step))[0][mit] > 0 for step in steps) > 0
    assert all(each.unknown == 0 and each.cosine == pytest.approx(1) for name, each in found.items() if name != "head")
