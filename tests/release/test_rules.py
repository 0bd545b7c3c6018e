"""Every rule of a gate has a model that it lets through and one that it does not; what is unknown never passes."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import note, rundir
from explorer.audit.conform import Conformance
from explorer.entries.fields import LedgerState, write_float
from explorer.entries.kinds import Genesis, Parent, Step
from explorer.errors import LedgerError, ProvenanceError
from explorer.note import Algorithm, Signer
from explorer.provenance.model_attestation import Ancestor, Attested, Deletable, Deleted, open_model
from explorer.provenance.policy import Rule
from explorer.provenance.spellings import LedgerName
from explorer.release.check_gate import Evidence, Ruling, judge_rule
from explorer.release.shipped import Shipped, open_shipped
from tests.audit.governed_run import MIT, NEWS, OPEN, policy, sign_again, write_governed_run
from tests.provenance.people import GOVERNANCE, NOW, private
from tests.release.released import EVALUATOR, OTHER, faults, gate, judged, release, say, statement_of, trust
from tests.release.released import sign_again as sign_statement_again

LEDGER = LedgerName(origin="example.com/old", size=1, root="a" * 64)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    return open_shipped(release(write_governed_run(tmp_path_factory.mktemp("runs"))), trust=trust(), now=NOW)


WITHOUT_NEWS = policy(Rule(classes=(MIT, OPEN), weight=1.0))


def none() -> Conformance:
    raise LedgerError("there is no ledger here")


def ruled(shipped: Shipped, rule: dict[str, Any], *models: Attested, **changes: Any) -> Ruling:
    evidence = Evidence(
        models=models or (shipped.attested,),
        taxonomy=shipped.taxonomy.value,
        trust=trust(),
        observations=(),
        conformance=none,
    )
    observers = [{"name": EVALUATOR, "weight": 1}]
    return judge_rule(gate(rule, observers=observers).rules[0], replace(evidence, **changes))


def changed(shipped: Shipped, **changes: Any) -> Attested:
    return replace(shipped.attested, value=replace(shipped.attested.value, **changes))


@pytest.mark.parametrize(
    ("rule", "holds", "why"),
    [
        ({"branch": NEWS, "depth": [0, 0.5]}, True, "2 pairs of class and layer"),
        ({"branch": "licensed", "depth": [0, 0.5]}, True, "2 pairs"),
        ({"branch": NEWS, "depth": [0.5, 1]}, False, "licensed/news trained body.1 at depth 0.666667 in 7 steps"),
        ({"branch": "licensed", "depth": [0.5, 1]}, False, "licensed/news trained"),
        ({"branch": NEWS, "depth": [0.9, 1]}, False, "trained head at depth 1"),
        ({"branch": NEWS}, False, "trained body.1"),
        ({"branch": NEWS, "layers": ["embed", "body.0"]}, True, "2 pairs"),
        ({"branch": NEWS, "layers": ["body.*"]}, False, "trained body.1"),
        ({"branch": NEWS, "layers": ["body.*"], "depth": [0, 0.5]}, True, "1 pairs"),
        ({"branch": "personal"}, True, "the run had no class of personal"),
        ({"branch": "persona"}, False, "unknown branch 'persona'; did you mean 'personal'"),
        ({"branch": NEWS, "layers": ["embedd"]}, False, "unknown layer 'embedd'; did you mean 'embed'"),
        ({"branch": "personal", "layers": ["tail*"]}, False, "unknown layer 'tail*'"),
    ],
)
def test_deny(shipped: Shipped, rule: dict[str, Any], holds: bool, why: str) -> None:
    found = ruled(shipped, {"deny": rule})
    assert (found.holds, why in found.why) == (holds, True), found


@pytest.mark.parametrize(
    ("branch", "holds", "why"),
    [
        ("personal", True, "none was in any batch"),
        (NEWS, False, "34 examples of licensed/news were in batches"),
        ("open", False, "29 examples of open were"),
        ("licenced", False, "unknown branch 'licenced'; did you mean 'licensed'"),
    ],
)
def test_absent(shipped: Shipped, branch: str, holds: bool, why: str) -> None:
    found = ruled(shipped, {"absent": {"branch": branch}})
    assert (found.holds, why in found.why) == (holds, True), found


@pytest.mark.parametrize(("level", "holds"), [("G2", True), ("G3", True), (None, False)])
def test_structure_and_replay_are_equally_exact(shipped: Shipped, level: Any, holds: bool) -> None:
    way = Deletable(level=level, steps=3)
    classes = tuple(replace(claim, deletable=way) for claim in shipped.attested.value.classes)
    found = ruled(shipped, {"deletable": {"branch": "open", "at_least": "G2"}}, changed(shipped, classes=classes))
    assert found.holds is holds, found
    assert "open" in found.why and (level or "no exact way") in found.why


@pytest.mark.parametrize(
    ("level", "share", "most", "holds"),
    [
        ("G3", 1.0, None, True),  # without a limit, training all over again counts
        ("G3", 1.0, "1% of training", False),
        ("G3", 1.0, "99.9% of training", False),
        ("G3", 1.0, "100% of training", True),
        ("G3", 0.0, "1% of training", True),
        ("G2", 0.0, "0 steps", True),
        ("G3", 1.0, "0 steps", False),
        ("G3", 1.0, "1000000 steps", True),
        ("G3", 0.5, "49% of training", False),
        ("G3", 0.5, "51% of training", True),
    ],
)
def test_the_cost_of_a_deletion_has_a_limit_of_its_own(
    shipped: Shipped, level: Any, share: float, most: str | None, holds: bool
) -> None:
    whole = max(each.steps for claim in shipped.attested.value.classes for each in claim.trained)
    way = Deletable(level=level, steps=round(share * whole))
    classes = tuple(replace(claim, deletable=way) for claim in shipped.attested.value.classes)
    asked = {"branch": "open", "at_least": "G2"} | ({} if most is None else {"at_most": most})
    found = ruled(shipped, {"deletable": asked}, changed(shipped, classes=classes))
    assert found.holds is holds, found
    assert holds or f"at most {most} allowed" in found.why


def test_what_trained_nothing_needs_no_deletion(shipped: Shipped) -> None:
    asked = {"branch": "personal", "at_least": "G2", "at_most": "0 steps"}
    assert ruled(shipped, {"deletable": asked}).holds
    assert not ruled(shipped, {"deletable": {"branch": "personnel", "at_least": "G2"}}).holds


def deletion(level: Any = "G3", *classes: str, authorities: tuple[str, ...] = ()) -> Deleted:
    return Deleted(
        certificate="c" * 64, level=level, ledger=LEDGER, classes=classes, authorities=authorities, records=0
    )


@pytest.mark.parametrize(
    ("rule", "done", "why"),
    [
        ({"branch": "personal", "at_least": "G2"}, deletion("G3", "personal"), None),
        ({"branch": "personal", "at_least": "G2"}, deletion("G2", "personal"), None),
        ({"branch": "personal", "at_least": "G2"}, None, "no such deletion is attested"),
        ({"branch": "personal", "at_least": "G2"}, deletion("G3", "licensed/news"), "no such deletion is attested"),
        ({"branch": "open", "at_least": "G2"}, deletion("G3", MIT), "open trains what is left"),
        ({"branch": "persona", "at_least": "G2"}, deletion("G3", "persona"), "unknown branch 'persona'"),
        ({"authority": GOVERNANCE, "at_least": "G2"}, deletion(authorities=(GOVERNANCE,)), None),
        ({"authority": GOVERNANCE, "at_least": "G2"}, deletion("G3", "personal"), "no such deletion is attested"),
        ({"authority": "example.com/dg", "at_least": "G2"}, deletion(), "unknown authority 'example.com/dg'"),
    ],
)
def test_deleted(shipped: Shipped, rule: dict[str, Any], done: Deleted | None, why: str | None) -> None:
    model = changed(shipped, deletions=(done,) if done else ())
    found = ruled(shipped, {"deleted": rule}, model)
    assert found.holds is (why is None), found
    assert (why or "certificate " + "c" * 64) in found.why


def test_an_authority_may_have_come_back_with_another_model(shipped: Shipped) -> None:
    """What it vouches for was deleted from the model that this one goes on from; this one may have it again."""
    base = changed(shipped, deletions=(deletion(authorities=(GOVERNANCE,)),))
    rule = {"deleted": {"authority": GOVERNANCE, "at_least": "G2"}}
    assert ruled(shipped, rule, base).holds
    for models in ((shipped.attested, base), (base, shipped.attested)):
        found = ruled(shipped, rule, *models)
        assert not found.holds and "no attestation says" in found.why


def test_conforms(shipped: Shipped) -> None:
    model = shipped.directory
    assert judged(model, gate({"conforms": True}, ledger="full")).passes
    assert ruled(shipped, {"absent": {"branch": "personal"}}).holds
    found = judge_rule(
        gate({"conforms": True}, ledger="full").rules[0],
        Evidence(
            models=(shipped.attested,),
            taxonomy=shipped.taxonomy.value,
            trust=trust(),
            observations=(),
            conformance=none,
        ),
    )
    assert not found.holds and "no ledger here" in found.why


def test_a_run_that_does_not_conform(shipped: Shipped, tmp_path: Path) -> None:
    """Attested after the lie, so that only the rule speaks."""
    run = Path(shutil.copytree(shipped.directory.parent, tmp_path / shipped.directory.parent.name))
    sign_again(run, lambda _, entry: replace(entry, examples=(1, 1, 1)) if isinstance(entry, Step) else entry)
    release(run)
    assert judged(run / "model", gate({"absent": {"branch": "personal"}}, ledger="full")).passes
    (why,) = faults(judged(run / "model", gate({"conforms": True}, ledger="full")))
    assert "does not hold: typed" in why


# Observations


@pytest.fixture
def model(shipped: Shipped, tmp_path: Path) -> Path:
    run = shipped.directory.parent
    return Path(shutil.copytree(run, tmp_path / run.name)) / rundir.MODEL


def evaluated(model: Path, bound: dict[str, float], *, by: str | None = EVALUATOR, **weights: float) -> str | None:
    """Why a model is not as good as was asked for; None: it is."""
    observers = [
        {"name": name, "weight": weight}
        for name, weight in ((EVALUATOR, weights.get("one", 1.0)), (OTHER, weights.get("other", 0.0)))
    ]
    rule = {"evaluated": {"metric": "accuracy", **bound, **({"by": by} if by else {})}}
    found = judged(model, gate(rule, observers=observers))
    return None if found.passes else faults(found)[0]


def test_evaluated(model: Path) -> None:
    assert "no admitted observation gives its accuracy" in (evaluated(model, {"at_least": 0.9}) or "")
    say(model, metrics={"accuracy": 0.93})
    assert evaluated(model, {"at_least": 0.9}) is None and evaluated(model, {"at_least": 0.93}) is None
    assert "accuracy is 0.93" in (evaluated(model, {"at_least": 0.95}) or "")
    assert evaluated(model, {"at_most": 0.95}) is None
    assert "accuracy is 0.93" in (evaluated(model, {"at_most": 0.9}) or "")


def test_the_newest_observation_of_an_observer_counts(model: Path) -> None:
    say(model, metrics={"accuracy": 0.5}, now=NOW)
    say(model, metrics={"accuracy": 0.99}, now=NOW - 86_400)
    say(model, metrics={"loss": 0.1}, now=NOW)
    assert "accuracy is 0.5" in (evaluated(model, {"at_least": 0.9}) or "")


@pytest.mark.parametrize(("bound", "value"), [("at_least", "0.5"), ("at_most", "0.99")])
def test_of_two_at_once_the_one_against_the_model_counts(model: Path, bound: str, value: str) -> None:
    say(model, metrics={"accuracy": 0.5})
    say(model, metrics={"accuracy": 0.99})
    assert f"accuracy is {value}" in (evaluated(model, {bound: 0.9}) or "")


def test_observers_are_averaged_by_their_weights(model: Path) -> None:
    say(model, metrics={"accuracy": 1.0})
    say(model, seed=OTHER, metrics={"accuracy": 0.5})
    assert evaluated(model, {"at_least": 1.0}) is None  # by one of them
    assert "accuracy is 0.9" in (evaluated(model, {"at_least": 0.95}, by=None, one=1.0, other=0.25) or "")
    assert evaluated(model, {"at_least": 0.9}, by=None, one=1.0, other=0.25) is None
    assert evaluated(model, {"at_least": 0.95}, by=None, one=1.0, other=0.0) is None


def test_observers_that_nobody_knows(model: Path) -> None:
    found = judged(model, gate({"absent": {"branch": "personal"}}, observers=[{"name": "example.com/e", "weight": 1}]))
    assert any("unknown authority 'example.com/e'" in why for why in faults(found))


# Lineage


def attested_child(shipped: Shipped, root: Path, *, weight: float | None = 1.0, keep: bool = True) -> Path:
    """A model of a run that began with the shipped one, and that had `licensed/news` nowhere itself."""
    run = write_governed_run(root, policy=WITHOUT_NEWS)
    was, base = shipped.attested.value.ledger, shipped.attested
    parent = Parent(
        kind="model",
        ledger=LedgerState(origin=was.origin, size=was.size, root=was.root),
        model=base.model,
        attestation=base.digest,
        admitted={} if weight is None else {NEWS: write_float(weight)},
    )
    sign_again(run, lambda _, entry: replace(entry, parents=(parent,)) if isinstance(entry, Genesis) else entry)
    place = run / "governance" / "parents"
    place.mkdir()
    shutil.copy(shipped.directory / "attestation.json", place / f"{base.digest}.json")
    model = release(run)
    if not keep:
        shutil.rmtree(model / "parents")
    return model


def test_what_a_model_goes_on_from_is_judged_too(shipped: Shipped, tmp_path: Path) -> None:
    model = attested_child(shipped, tmp_path)
    own = {"deny": {"branch": NEWS, "depth": [0, 0.5]}}
    assert judged(model, gate(own)).passes
    for rule in ({"deny": {"branch": NEWS}}, {"deletable": {"branch": "licensed", "at_least": "G2"}}):
        (why,) = faults(judged(model, gate(rule)))
        assert why.startswith(f"in run {shipped.attested.value.run}, whose model this one continues: ")
    assert judged(model, gate(own, ledger="full")).passes


def test_an_ancestor_that_is_not_here(shipped: Shipped, tmp_path: Path) -> None:
    model = attested_child(shipped, tmp_path, keep=False)
    assert "parents" in faults(judged(model))[0] and "No such file" in faults(judged(model))[0]


def test_an_ancestor_that_was_exchanged(shipped: Shipped, tmp_path: Path) -> None:
    model = attested_child(shipped, tmp_path)
    (kept,) = (model / "parents").iterdir()
    kept.write_bytes((model / "attestation.json").read_bytes())
    assert "not the attestation that run" in faults(judged(model))[0]


def test_an_ancestor_whose_ledger_nobody_signed(shipped: Shipped, tmp_path: Path) -> None:
    base = Path(shutil.copytree(shipped.directory, tmp_path / "base"))
    statement = statement_of(base)
    text = note.parse(statement.predicate["checkpoint"].encode()).text
    stranger = note.sign(text, Signer(name="example.com/x", algorithm=Algorithm.ED25519, private_key=private("x")))
    predicate = {**statement.predicate, "checkpoint": stranger.content.decode()}
    sign_statement_again(base, replace(statement, predicate=predicate))
    opened = open_model((base / "attestation.json").read_bytes(), trust=trust(), now=NOW, where="base")
    with pytest.raises(ProvenanceError, match=f"{opened.digest}.json: checkpoint: "):
        attested_child(replace(shipped, directory=base, attested=opened), tmp_path)


@pytest.mark.parametrize("weight", [0.0, None])
def test_a_class_that_shares_layers_with_the_child_was_taken_over_whatever_it_says(
    shipped: Shipped, tmp_path: Path, weight: float | None
) -> None:
    model = attested_child(shipped, tmp_path, weight=weight)
    assert not judged(model, gate({"deny": {"branch": NEWS}})).passes


def test_a_region_that_was_left_behind_is_not_in_the_child(shipped: Shipped) -> None:
    base = shipped.attested
    trained = base.value.classes[0].trained[0]
    region = replace(base.value.classes[0], trained=(replace(trained, layer="head@news"),), examples=0)
    layers = (*base.value.layers, replace(base.value.layers[-1], name="head@news"))
    old = replace(base, digest="d" * 64, value=replace(base.value, classes=(region,), layers=layers))
    clean = tuple(replace(each, trained=(), examples=0) for each in base.value.classes)
    for weight, child_layers, holds in (
        (0.0, base.value.layers, True),
        (0.0, layers, False),
        (1.0, base.value.layers, False),
    ):
        parent = Ancestor(kind="model", ledger=LEDGER, model="a" * 64, attestation="d" * 64, admitted={NEWS: weight})
        child = changed(shipped, classes=clean, parents=(parent,), layers=child_layers)
        assert ruled(shipped, {"deny": {"branch": NEWS}}, child, old).holds is holds


def test_an_ancestor_under_another_taxonomy(shipped: Shipped) -> None:
    """There the branch may mean anything."""
    base = shipped.attested
    facts = replace(base.value.facts, taxonomy="0" * 64)
    old = replace(base, digest="d" * 64, value=replace(base.value, facts=facts, classes=()))
    found = ruled(shipped, {"absent": {"branch": "personal"}}, base, old)
    assert not found.holds and "another taxonomy" in found.why
