"""The way of a governed run by the command line: forecast, deletion, certificate, attestation, gate, what is next."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from explorer import rundir
from explorer.entries.kinds import Decision
from explorer.governance.entropy import Entropy
from explorer.governance.entropy_gate import EntropyGate
from explorer.provenance.policy import RoutingPolicy, Rule
from explorer.provenance.regions import Examples
from explorer.runlog.run_ledger import RunLedger
from tests.cli.command import explorer
from tests.governance import desk
from tests.training.own_deletions import NEWS

MIT = "open/mit"
OPEN = desk.policy(name="everything", rules=(Rule(classes=("*",), weight=1.0),))
Train = Callable[..., Any]


def gated(layers: str) -> tuple[RoutingPolicy, list[Any]]:
    """A policy that admits the class once these layers use two directions for another, and what measures that."""
    rules = (Rule(classes=("licensed",), condition="ready", weight=1.0), Rule(classes=("open",), weight=1.0))
    gate = EntropyGate(condition="ready", of=MIT, effective_rank=1.01, layers=layers, profiles=3, probes=4)
    return desk.policy(name="gated", conditions=("ready",), rules=rules), [
        Entropy(probes=4, profiles=2, permutations=9),
        gate,
    ]


def ranked(layers: str) -> RoutingPolicy:
    """A policy under which only the harder half of a class trains these layers."""
    easy = Rule(classes=(MIT,), examples=Examples(loss=(0.0, 0.5)), layers=(layers,), weight=0.0)
    return desk.policy(name="ranked", rules=(easy, Rule(classes=("*",), weight=1.0)))


def profiled_and_opened(run: Path) -> None:
    """Check that profiles are on record, and the decision by which the gate let the class in."""
    ledger = RunLedger(run)
    (opened,) = [placed.entry for placed in ledger.read(ledger.outline.decisions, Decision)]
    assert len(ledger.outline.profiles) == 2
    assert (opened.action, opened.rule, opened.condition) == ("activation", "effective-rank", "ready")
    assert opened.subjects == (NEWS,)


def to_the_gate(root: Path, level: str, train: Train, patch: pytest.MonkeyPatch) -> Path:
    """Delete the class from the run `root`/runs/own/mine by the verbs alone; return the directory of the new run.

    At G3 its owner's function is named on the command line. The model with the class does not pass the same gate.
    """
    patch.setattr("tests.adapters.whole_way.by_name", train, raising=False)
    loop = ("--loop", "tests.adapters.whole_way:by_name") if level == "G3" else ()
    run, trust = Path("runs/own/mine"), ("--trust", "governed/trust.json")

    def verb(*words: str | Path, fails: bool = False) -> str:
        done = explorer(*words, cwd=root)
        assert bool(done.returncode) is fails, done.stderr or done.stdout
        return done.stdout + done.stderr

    verb("conform", run, *trust)
    planned = verb("delete", "plan", run, NEWS, *loop)
    assert f"  {level}, exact by" in planned and "weaker levels are no deletion" in planned
    verb("delete", "run", run, NEWS, *loop)
    (new,) = rundir.run_directories(root / "runs" / "deletions", loops=True)
    pair = ("--old", run, "--new", new, *trust)
    assert "deleted, by both ledgers" in verb("delete", "verify", new / "certificate.json", *pair)
    if loop:
        trained = verb("delete", "verify", new / "certificate.json", *pair, "--counterfactual", *loop)
        assert "deleted, identical to a run that never had it" in trained
    rules = [{"conforms": True}, {"deleted": {"branch": NEWS, "at_least": "G2"}}]
    gate = {"format": "explorer/gate/v1", "name": "without news", "ledger": "full", "rules": rules}
    (root / "gate.yaml").write_text(yaml.safe_dump(gate))
    for ledger in (run, new):
        verb("attest", ledger, *trust)
    gated = ("--gate", "gate.yaml", *trust, "--ledger")
    assert "DOES NOT PASS" in verb("verify", run / "model", *gated, run, fails=True)
    assert "passes the gate" in verb("verify", new / "model", *gated, new)
    following = verb("next", new, *trust, fails=True)
    # What nothing was trained for has no report of its own.
    assert "attested" in following and ("explorer report" if loop else "explorer pack") in following
    # --- for others: a report, a pack for an auditor, and how much of whose data was used ---
    verb("report", run, *trust)
    verb("pack", run, "--out", "run.pack.zip", *trust)
    assert (root / "run.pack.zip").stat().st_size > 10_000
    assert NEWS in verb("usage", run, "--by", "class")
    return new
