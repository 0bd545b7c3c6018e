"""The plan of a deletion: its money, what no deletion of this run reaches, and the commitment to the request."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.data.sources import DATASETS
from explorer.deletion.deletion_plan import LEVELS, REQUEST_FILE, Plan, keep_request, plan, read_request
from explorer.entries.fields import LedgerState, write_float
from explorer.entries.kinds import Genesis, Observation, Parent
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.storage import LedgerDirectory
from explorer.project import Project
from explorer.provenance.commitments import commit
from explorer.provenance.deletion_certificate import ALWAYS, UNREACHED, NotReached
from explorer.provenance.policy import Rule
from explorer.provenance.spellings import UNKNOWN_TEXTS
from explorer.run_files import RunRecord
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import resolve
from explorer.schema import from_json, to_json
from tests.audit.governed_run import MIT, NEWS, OPEN, sign_again, write_governed_run
from tests.builders import with_identity, write_profile
from tests.deletion.deleted_runs import SEALED, structural, write_old
from tests.provenance.people import private

TRAINER = "example.com/trainer"


def planned(run: Path, path: str) -> Plan:
    ledger = RunLedger(run)
    return plan(ledger, resolve(ledger, class_=path))


def named(found: Plan) -> Mapping[str, str]:
    return {each.what: each.detail for each in found.beyond}


def of_dataset(run: Path, name: str, **changes: object) -> None:
    """Let the run be one on that dataset, and its genesis name it so."""
    record = run_files.read(RunRecord, run / rundir.RUN)
    identity = {**record.identity, "recipe": {"methods": []}}
    record = replace(with_identity(record, identity), dataset=name, **changes)
    run_files.write(run / rundir.RUN, record)
    fitted = dict(DATASETS[name].fitted) if name in DATASETS else None
    named = {"recipe": digest(record.identity), "fitted": fitted}
    sign_again(run, lambda _, e: replace(e, **named) if isinstance(e, Genesis) else e)


def test_money_is_time_at_the_price_of_the_hardware(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    of_dataset(run, "digits")
    assert planned(run, MIT).cost is None  # nobody named a price for it
    header = "provider,instance,region,tenancy,accelerator,count,usd_per_hour,effective,retrieved,source"
    (tmp_path / "prices.csv").write_text(f"{header}\nown,box,,on demand,EPYC 7B13,1,36,,,us\n")
    unknown = planned(run, MIT).cost
    assert unknown is not None and (unknown.usd, unknown.low, unknown.high) == (None, None, None)
    write_profile(tmp_path, run_files.read(RunRecord, run / rundir.RUN), seconds=10.0)
    found = planned(run, MIT)
    cost, time = found.cost, found.forecast.time
    assert cost is not None and time.seconds and time.low and time.high
    assert (cost.usd, cost.low, cost.high) == pytest.approx((time.seconds / 100, time.low / 100, time.high / 100))


def test_the_limits_of_every_deletion_are_always_listed_in_the_words_of_certificates(tmp_path: Path) -> None:
    for run, path in ((write_governed_run(tmp_path / "a"), MIT), (write_old(tmp_path / "b", SEALED), NEWS)):
        found = planned(run, path)
        assert {*ALWAYS} <= {*named(found)} <= {*UNREACHED}
        for each in found.beyond:
            assert from_json(NotReached, to_json(each), where="plan", error=LedgerError) == each


@pytest.mark.parametrize(
    ("dataset", "normalised", "tokenised"),
    [
        ("digits", "all training images of digits", None),
        ("source", None, None),
        ("own", "not known here", "not known here"),
    ],
)
def test_what_was_fitted_on_examples(
    tmp_path: Path, dataset: str, normalised: str | None, tokenised: str | None
) -> None:
    run = write_governed_run(tmp_path)
    of_dataset(run, dataset)
    found = named(planned(run, MIT))
    for what, expected in (("normalisation", normalised), ("tokeniser", tokenised)):
        assert (expected is None) == (what not in found)
        assert expected is None or expected in found[what]


def test_a_tokeniser_from_a_file_is_listed_without_a_claim(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    for words, claims in ((f"from a file: trained {UNKNOWN_TEXTS}", False), ("trained on the training side", True)):
        sign_again(run, lambda _, e, w=words: replace(e, fitted={"tokeniser": w}) if isinstance(e, Genesis) else e)
        detail = named(planned(run, MIT))["tokeniser"]
        assert detail.startswith(words) and ("the target's are among them" in detail) == claims


def test_what_was_chosen_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_governed_run(tmp_path)
    of_dataset(run, "digits", tuning="lr over 5 values")
    found = named(planned(run, MIT))
    monkeypatch.chdir(run.parent)
    assert named(planned(Path(run.name), MIT))["hyper-parameters"] == found["hyper-parameters"]
    assert "lr over 5 values" in found["hyper-parameters"] and "runs in digits: 1" in found["hyper-parameters"]
    assert "metrics.jsonl, result.json, contributions, entropy" in found["measurements"]
    (tmp_path / "explorer.duckdb").touch()
    assert "rows of explorer.duckdb" in named(planned(run, MIT))["measurements"]


def test_a_custom_loop(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    (run / rundir.RUN).unlink()
    found = planned(run, MIT)
    assert found.cost is None and found.forecast.level is None
    assert named(found)["hyper-parameters"] == "how the custom loop's settings were chosen is on no record"


def test_regions_that_stay_are_an_architecture_for_the_target(tmp_path: Path) -> None:
    shared = replace(SEALED, rules=(Rule(classes=("*",), weight=1.0),))
    assert "architecture" not in named(planned(write_old(tmp_path / "a", SEALED), NEWS))
    found = planned(write_old(tmp_path / "b", shared), NEWS)
    assert found.forecast.route.level == "G3"
    assert named(found)["architecture"] == "the sealed regions news stay in the model, without it"


def test_models_that_were_trained_further(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    assert "descendants" not in named(planned(run, MIT))
    head = LedgerDirectory(run / rundir.LEDGER).checkpoint()
    state = LedgerState(origin=head.origin, size=head.size, root=head.root.hex())
    child = write_old(tmp_path, SEALED)
    parent = Parent(kind="model", ledger=state, model="1" * 64, attestation="2" * 64, admitted={OPEN: write_float(1.0)})
    sign_again(child, lambda _, e: replace(e, parents=(parent,)) if isinstance(e, Genesis) else e)
    assert named(planned(run, MIT))["descendants"] == f"runs here: {child.name}"
    told = Observation(
        ledger=state, model="1" * 64, role="fine-tuner", admitted={}, statement="3" * 64, blobs={}
    )  # fmt: skip
    with Project.open(tmp_path, key=private(TRAINER), name=TRAINER) as project:
        project.append(told)
        project.append(replace(told, role="evaluator"))
    assert named(planned(run, MIT))["descendants"].endswith("1 fine-tunings in the project's ledger")


def test_a_run_that_never_had_the_target_is_no_descendant(tmp_path: Path) -> None:
    """Not the one that its deletion has made; one that another deletion has made is."""
    old = write_old(tmp_path, SEALED)
    new = structural(old)
    assert "descendants" not in named(planned(old, NEWS))
    assert named(planned(old, OPEN))["descendants"] == f"runs here: {new.name}"
    record = run_files.read(RunRecord, new / rundir.RUN)
    run_files.write(new / rundir.RUN, with_identity(record, {**record.identity, "seed": 7}))  # not what it names
    assert named(planned(old, NEWS))["descendants"] == f"runs here: {new.name}"


def test_the_word_deleted_is_used_from_g2_up() -> None:
    said = {name: "deleted" in words for name, words in LEVELS.items()}
    assert said == {"G0": False, "G1": False, "G2": True, "G3": True}
    assert "empirical" in LEVELS["G1"] and "never proved" in LEVELS["G1"]


# --- the request ---


def test_what_is_kept_commits_to_the_text_and_does_not_hold_it(tmp_path: Path) -> None:
    assert read_request(tmp_path) is None
    made = keep_request(tmp_path, "Forget Ada")
    path = tmp_path / REQUEST_FILE
    assert b"Ada" not in path.read_bytes() and path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    salt = bytes.fromhex(json.loads(path.read_text())["salt"])
    assert made == commit(salt, b"Forget Ada").hex() == read_request(tmp_path) == keep_request(tmp_path, "Forget Ada")


def test_the_same_text_has_another_commitment_elsewhere(tmp_path: Path) -> None:
    """Nobody who reads two certificates can tell that they answer one person."""
    (tmp_path / "other").mkdir()
    assert keep_request(tmp_path, "Forget Ada") != keep_request(tmp_path / "other", "Forget Ada")


def test_another_text_is_refused(tmp_path: Path) -> None:
    keep_request(tmp_path, "Forget Ada")
    with pytest.raises(ProvenanceError, match="answers another request"):
        keep_request(tmp_path, "Forget Bob")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format":"explorer/request/v2"}', b"x" * 5000])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / REQUEST_FILE).write_bytes(content)
    with pytest.raises(ProvenanceError, match=REQUEST_FILE):
        read_request(tmp_path)
