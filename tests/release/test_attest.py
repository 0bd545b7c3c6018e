"""Attestations: what they claim is what the ledger says, and a run that is not done or not vouched for gets none."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import note, rundir
from explorer.audit.shares import shares
from explorer.deletion.erase import erase, of_classes
from explorer.entries.numbers import share_terms
from explorer.errors import LedgerError, ProvenanceError, RunError
from explorer.ledger.cosign import cosign
from explorer.ledger.storage import blob_path
from explorer.note import Algorithm, Signer
from explorer.project import Project, runs_of
from explorer.provenance.envelope import parse_envelope
from explorer.provenance.model_attestation import ModelAttestation, open_model
from explorer.provenance.regions import depths_of
from explorer.provenance.routing_weights import Admissions
from explorer.provenance.trust import Role
from explorer.release.attest import attest, check_card
from explorer.release.model_claims import claims, deletable_at_best, deletable_here
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.influence import Presence, reach_of
from explorer.runlog.model_file import read_card, write_card
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from tests import tensors_for_tests
from tests.audit.governed_run import (
    CLASSES,
    LAYERS,
    MIT,
    NEWS,
    OPEN,
    STEPS,
    TRAINER,
    numbers_of,
    routing,
    write_governed_run,
)
from tests.deletion.deleted_runs import SEALED, write_old
from tests.governed_sample import STEPS as SAMPLE_STEPS
from tests.governed_sample import Sample
from tests.governed_sample import write_governed_run as write_governed_run_of_sample
from tests.provenance.people import EXPIRES, GOVERNANCE, ISSUED, NOW, RISK, private
from tests.release.released import EVALUATOR, release, statement_of, trust


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "runs" / "digits" / honest.name))


def test_what_is_shipped(run: Path) -> None:
    model = release(run)
    assert {path.name for path in model.iterdir()} == {
        *("model.safetensors", "model.json", "attestation.json", "taxonomy.json", "policy.json")
    }
    assert (model / "policy.json").read_bytes() == (run / "governance" / "policy.json").read_bytes()


def test_its_claims_are_those_of_the_ledger(run: Path) -> None:
    """Against what the spool says, which was written beside the ledger and goes another way."""
    opened = open_model((release(run) / "attestation.json").read_bytes(), trust=trust(), now=NOW, where="a")
    value, ledger = opened.value, RunLedger(run)
    genesis, spool = ledger.genesis, shares(ledger)
    assert (value.run, value.steps) == (run.name, STEPS)
    assert (value.facts.recipe, value.facts.policy) == (genesis.recipe, genesis.policy)
    assert [(layer.name, layer.depth) for layer in value.layers] == [(n, i / 3) for i, n in enumerate(LAYERS)]
    assert [claim.path for claim in value.classes] == [NEWS, OPEN, MIT]
    for index, claim in enumerate(value.classes):
        assert {each.layer for each in claim.trained} == {
            name for at, name in enumerate(LAYERS) if spool.weight[0, index, at] > 0
        }
        for each in claim.trained:
            at = LAYERS.index(each.layer)
            assert each.share == pytest.approx(spool.share[0, index, at], abs=1e-6)
    late = {each.layer: each.steps for each in value.classes[0].trained}
    assert late.keys() == {"body.1", "head"} and 0 < late["head"] <= STEPS - 5  # admitted from the fifth step on


def test_shares_are_made_of_exact_numbers_only(tmp_path: Path) -> None:
    """Here of those of the first step; a class that trained in later ones only has none."""
    run = write_governed_run(tmp_path, exact_every=STEPS)
    value = open_model((release(run) / "attestation.json").read_bytes(), trust=trust(), now=NOW, where="a").value
    table = Admissions(routing(), classes=CLASSES, layers=depths_of(LAYERS)).at(0)
    first = numbers_of(0, table, exact=False)
    terms, whole = share_terms(first.gram)
    news, *others = value.classes
    assert news.trained and {each.share for each in news.trained} == {None}
    for index, claim in enumerate(others, 1):
        shares = terms[first.classes.index(index)] / whole
        assert {each.layer: each.share for each in claim.trained} == {
            name: pytest.approx(shares[at], abs=1e-6) for at, name in enumerate(LAYERS)
        }


def test_shares_add_up(run: Path) -> None:
    value = open_model((release(run) / "attestation.json").read_bytes(), trust=trust(), now=NOW, where="a").value
    total = {name: 0.0 for name in LAYERS}
    for claim in value.classes:
        for each in claim.trained:
            total[each.layer] += each.share or 0.0
    assert np.allclose(list(total.values()), 1, atol=1e-5)


def test_numbers_that_are_gone_without_an_entry_are_attested_by_nobody(run: Path) -> None:
    (state, *_) = (segment.state.entry for segment in RunLedger(run).segments())
    (run / rundir.LEDGER / blob_path(state.blobs[f"numbers/{MIT}"].sha256)).unlink()
    with pytest.raises(LedgerError, match=f"1 blobs, the first entry .*numbers/{MIT}: missing, and no entry of the"):
        release(run)


def test_numbers_that_were_erased_take_the_shares_with_them_and_nothing_else(run: Path) -> None:
    before = statement_of(release(run)).predicate
    ledger = RunLedger(run)
    with Project.open(runs_of(run), key=private(TRAINER), name=TRAINER) as project:
        erase(ledger, of_classes(ledger, (MIT,)), project=project)
    after = statement_of(release(run)).predicate
    shares_before, shares_after = (
        [each.pop("share") for claim in found["classes"] for each in claim["trained"]] for found in (before, after)
    )
    assert None not in shares_before and set(shares_after) == {None}
    assert before["classes"] == after["classes"]


def test_a_run_that_is_not_finished(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, finished=False)
    with pytest.raises(ProvenanceError, match="unfinished: its ledger has no end"):
        release(run)
    assert not (run / "model" / "attestation.json").exists()


def test_a_checkpoint_without_its_quorum_says_who_is_missing_and_how(run: Path, tmp_path: Path) -> None:
    asking = trust(cosigners={Role.MODEL_RISK: 1})
    with pytest.raises(LedgerError, match=rf"quorum is not met: it asks for .*{RISK}.*cosigned: none.*ledger cosign"):
        release(run, believed=asking)
    directory = run / rundir.LEDGER
    anchor = anchor_of_trust(asking, origin=RunLedger(run).ledger.checkpoint().origin)
    signer = Signer(name=RISK, algorithm=Algorithm.COSIGNATURE, private_key=private(RISK))
    assert cosign(directory, signer=signer, state=tmp_path / "state", anchor=anchor, now=NOW).path is not None
    value = open_model(
        (release(run, believed=asking) / "attestation.json").read_bytes(), trust=asking, now=NOW, where="a"
    ).value
    assert {each.name for each in note.parse(value.checkpoint.encode()).signatures} == {value.ledger.origin, RISK}


def test_a_model_that_the_ledger_does_not_end_with(run: Path) -> None:
    tensors_for_tests.write_model(run, LAYERS, STEPS + 1)
    with pytest.raises(LedgerError, match=r"not the model that the ledger ends with: .*expected .* \(and \d more\)"):
        release(run)


def test_a_model_that_is_not_there(run: Path) -> None:
    (run / "model" / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"cannot read .*model.safetensors"):
        release(run)


@pytest.mark.parametrize("seed", [EVALUATOR, RISK, "a stranger"])
def test_a_key_that_is_no_trainers(run: Path, seed: str) -> None:
    with pytest.raises(ProvenanceError, match=r"a trainer signs it|is not in the trust file"):
        release(run, seed=seed)
    assert not (run / "model" / "attestation.json").exists()


def test_others_may_stand_by_it_too(run: Path) -> None:
    ledger = RunLedger(run)
    envelope = attest(ledger, keys=[private(GOVERNANCE), private(TRAINER)], trust=trust(), now=NOW)
    assert len(parse_envelope(envelope.content, where="a").signatures) == 2
    assert [one.name for one in open_model(envelope.content, trust=trust(), now=NOW, where="a").authorities] == [
        TRAINER
    ]


def test_it_holds_for_a_year_unless_told_otherwise(run: Path) -> None:
    envelope = attest(RunLedger(run), keys=[private(TRAINER)], trust=trust(), now=NOW)
    value = open_model(envelope.content, trust=trust(), now=NOW, where="a").value
    assert (value.issued, value.expires) == ("2026-06-01T00:00:00Z", "2027-06-01T00:00:00Z")


# A run with a sealed region, a denied class, and a confidential one


def sampled(root: Path, *, confidential: tuple[str, ...] = ()) -> ModelAttestation:
    made = Sample(confidential=confidential)
    run = write_governed_run_of_sample(root, sample=made)
    ledger, best = RunLedger(run), deletable_at_best
    return claims(ledger, trust=made.trust, now=NOW, issued=ISSUED, expires=EXPIRES, deletability=best)


def test_a_sealed_region_lies_where_its_layers_do(tmp_path: Path) -> None:
    value = sampled(tmp_path)
    depths = {layer.name: layer.depth for layer in value.layers}
    found = {claim.path: claim for claim in value.classes}
    trained = {each.layer for each in found["personal/customer"].trained}
    assert trained == {"blocks.2.mlp.up@customer", "blocks.2.mlp.down@customer"}
    assert all(depths[name] == depths[name.partition("@")[0]] for name in trained)
    assert found["withheld"].trained == () and found["withheld"].examples == 3 * SAMPLE_STEPS


def test_what_a_deletion_would_take(tmp_path: Path) -> None:
    """At best; here nobody could do it, for no recipe is on record, and so nothing is promised."""
    value = sampled(tmp_path)
    ways = {claim.path: (claim.deletable.level, claim.deletable.steps) for claim in value.classes}
    assert ways["personal/customer"] == ways["withheld"] == ("G2", 0)
    assert ways["open/apache"] == ("G3", SAMPLE_STEPS) and ways["open/mit"][0] == "G3"
    (run,) = (tmp_path / "single").iterdir()
    ledger = RunLedger(run)
    presence = Presence(ledger)
    for path in ledger.genesis.classes:
        assert deletable_here(presence, reach_of(presence, Target(classes=(path,)))).level is None


def test_of_a_confidential_class_only_what_everybody_sees_is_claimed(tmp_path: Path) -> None:
    """Nor of the others: their shares would give its share away."""
    value, sealed = sampled(tmp_path / "a"), sampled(tmp_path / "b", confidential=("personal",))
    assert [claim.confidential for claim in sealed.classes] == [False, False, False, True, False]
    assert {each.share for claim in sealed.classes for each in claim.trained} == {None}
    assert None not in {each.share for claim in value.classes for each in claim.trained}
    for one, other in zip(value.classes, sealed.classes, strict=True):
        assert one.examples == other.examples
        assert [(e.layer, e.steps, e.examples) for e in one.trained] == [
            (e.layer, e.steps, e.examples) for e in other.trained
        ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sealed": ()}, r"sealed regions \[\], absent \[\]"),
        ({"sealed": "elsewhere"}, "or these regions in other places"),
        ({"absent": "own"}, r"absent \['news'\]"),
    ],
)
def test_a_card_with_other_sealed_regions(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    """Whoever loads the model by it would have the class's part always on, elsewhere, or not at all."""
    run = write_old(tmp_path, SEALED)
    ledger, path = RunLedger(run), run / "model" / "model.json"
    check_card(ledger, path)
    card = read_card(path)
    (region,) = card.sealed
    values = {"elsewhere": (replace(region, layers=("head",)),), "own": (region,)}
    write_card(path, replace(card, **{key: values.get(value, value) for key, value in change.items()}))
    with pytest.raises(LedgerError, match=said):
        check_card(ledger, path)
