"""What else is signed about a run goes along: its model's attestation, where it comes from, what was deleted of it."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.disclosure.pack import Pack, make_pack
from explorer.provenance import signing, tag_attestation
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import TRAINER
from tests.deletion import certified
from tests.deletion.certified import Deletion
from tests.disclosure.packs import REPORT, Files, faults, findings, governed, opened, packed, signed_again
from tests.provenance.people import GOVERNANCE, NOW, private
from tests.release import released


@pytest.fixture(scope="module")
def deletion(tmp_path_factory: pytest.TempPathFactory) -> Deletion:
    made = certified.structural(tmp_path_factory.mktemp("deletion") / "runs")
    rundir.write_bytes(made.new / "certificate.json", made.content)
    return made


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Files:
    run = governed(tmp_path_factory.mktemp("model"))
    released.release(run)
    trusting: Any = {"key": private(TRAINER), "trust": released.trust(), "now": NOW}
    return opened(make_pack(RunLedger(run), grants={}, report=REPORT, **trusting).content)


def test_the_pack_of_a_run_that_a_deletion_made(deletion: Deletion) -> None:
    found = findings(packed(deletion.new).content)
    assert not found.failed
    assert found.checked["statement about a deletion, signed by example.com/trainer"] == 1
    assert found.checked["origin of the run, which its genesis names"] == 1
    assert any("explorer delete verify" in each for each in found.unchecked)


def test_the_pack_of_the_run_that_something_was_deleted_of(deletion: Deletion) -> None:
    files = opened(packed(deletion.old).content)
    assert files[f"deletions/{deletion.new.name}.json"] == deletion.content
    assert "origin.json" not in files and not faults(files)
    assert not any("destroy" in name or "request" in name for name in files)


def test_certificates_that_are_not(deletion: Deletion) -> None:
    name = f"deletions/{deletion.new.name}.json"
    files = opened(packed(deletion.new).content)

    def other_ledger(statement: Any) -> None:
        for side in ("old", "new"):
            statement["predicate"][side]["ledger"]["root"] = "0" * 64

    for content, said in (
        (certified.signed_again(deletion.content, other_ledger), "about another ledger"),
        (certified.signed_again(deletion.content, lambda _: None, by=GOVERNANCE), "role trainer"),
        (
            certified.signed_again(deletion.content, lambda _: None, by="nobody"),
            "not signed by any key of the trust file",
        ),
        (certified.signed_again(deletion.content, lambda s: s.update(predicateType="x")), "not a statement"),
        (certified.signed_again(deletion.content, lambda s: s["predicate"].update(expires="x")), "not a time"),
        (files["governance/taxonomy.json"], "holds"),
    ):
        assert said in faults(signed_again({**files, name: content})), said


def test_an_origin_that_the_genesis_does_not_name(deletion: Deletion) -> None:
    files = opened(packed(deletion.new).content)
    origin = json.loads(files["origin.json"])
    for changed in ({**origin, "begins": 1}, {**origin, "ledger": {**origin["ledger"], "size": 1}}, {}):
        again = signed_again({**files, "origin.json": json.dumps(changed).encode()})
        assert "origin.json" in faults(again)
    own = opened(packed(deletion.old).content)
    assert "not the origin that the genesis names" in faults(signed_again({**own, "origin.json": files["origin.json"]}))


def test_the_attestation_of_a_model_goes_along_and_the_model_does_not(model: Files) -> None:
    assert not any("safetensors" in name for name in model)
    found = findings(model, trust=released.trust())
    assert not found.failed
    assert found.checked["statement about a model, signed by example.com/trainer"] == 1
    assert any("explorer verify MODEL" in each for each in found.unchecked)


def test_attestations_that_are_not_of_this_model(model: Files) -> None:
    card = {**model, "model/model.json": b"{}"}
    assert "not its card" in faults(signed_again(card), trust=released.trust())
    for name in ("model/model.json", "model/attestation.json"):
        rest = signed_again({other: content for other, content in model.items() if other != name})
        assert "without the other" in faults(rest, trust=released.trust())


def test_packs_with_statements_of_earlier_versions_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags, a model's attestation and a certificate of a deletion, each with the name that its type had."""
    with monkeypatch.context() as earlier:
        earlier.setattr(tag_attestation, "PREDICATE_TYPE", "https://explorer.example/tag-table/v1")
        earlier.setattr(signing, "type_of", "https://explorer.example/{}".format)
        run = governed(tmp_path / "model")
        released.release(run)
        made = certified.structural(tmp_path / "deletion" / "runs")
    rundir.write_bytes(made.new / "certificate.json", made.content)
    trusting: Any = {"key": private(TRAINER), "trust": released.trust(), "now": NOW}
    shipped = opened(make_pack(RunLedger(run), grants={}, report=REPORT, **trusting).content)
    deleted = opened(packed(made.new).content)
    for files, name, trust in (
        (shipped, "governance/tags.json", released.trust()),
        (shipped, "model/attestation.json", released.trust()),
        (deleted, f"deletions/{made.new.name}.json", None),
    ):
        payload = base64.b64decode(json.loads(files[name])["payload"])
        assert b'"predicateType":"https://explorer.example/' in payload
        assert not faults(files, trust=trust)


def test_a_run_without_any(tmp_path: Path) -> None:
    made: Pack = packed(governed(tmp_path))
    assert not any(each.path.startswith(("model/", "deletions/", "origin")) for each in made.manifest.files)
