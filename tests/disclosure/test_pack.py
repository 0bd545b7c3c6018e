"""What goes into a pack, what never does, and whose grants may."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.disclosure import pack
from explorer.disclosure.grants_in_force import Named
from explorer.disclosure.pack import accesses, host_keys, read_grants, write_pack
from explorer.disclosure.wrapped import naming, revoke
from explorer.errors import LedgerError, ProvenanceError
from explorer.note import Algorithm, Signer, parse, sign
from explorer.project import Project, read_project, runs_of
from explorer.provenance.grants import open_grant
from explorer.provenance.keys import public_text, write_key
from explorer.provenance.spellings import parse_time
from explorer.runlog.run_ledger import RunLedger
from tests.audit import governed_run
from tests.audit.governed_run import TRAINER
from tests.disclosure.granted import READER, confidential_run, granted
from tests.disclosure.packs import REPORT, faults, findings, governed, opened, packed
from tests.provenance.agents import Agent, needs_agent
from tests.provenance.people import EXPIRES, GOVERNANCE, NOW, RISK, private


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return confidential_run(tmp_path)


def wanted(run: Path, *ids: str, now: int = NOW) -> dict:
    return read_grants(RunLedger(run), ids, trust=governed_run.trust(), now=now, project=read_project(runs_of(run)))


def test_the_same_run_at_the_same_moment_gives_the_same_bytes(run: Path) -> None:
    assert packed(run).content == packed(run).content


def test_what_is_in_a_pack(run: Path) -> None:
    for name in ("weights.safetensors", "checkpoint/state", "contributions/a.parquet", "grants/other.json", "secret"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_bytes(b"never")
    (run / "ledger" / "unsigned" / "1").mkdir(parents=True)
    (run / "ledger" / "unsigned" / "1" / "x").write_bytes(b"never")
    (run / "ledger" / "blobs" / "sha256" / "aa").mkdir(exist_ok=True)
    files = opened(packed(run).content)
    assert b"never" not in files.values()
    kinds = {name.split("/")[0] for name in files}
    assert kinds - {"model"} == {
        *("README.txt", "pack.json", "pack.dsse.json", "verify.py", "report.html"),
        *("ledger", "governance", "proofs", "run.json", "environment.json"),
    }
    assert {name for name in files if name.startswith("governance/")} == {
        f"governance/{name}" for name in ("trust.json", "taxonomy.json", "policy.json", "tags.json", "tags.parquet")
    }
    outline = RunLedger(run).outline
    proved = {0, outline.end, *(index for _, index in outline.states)}
    assert {name for name in files if name.startswith("proofs/")} == {f"proofs/{at}.tlog-proof" for at in proved}
    assert files["report.html"] == REPORT
    assert str(run.parent).encode() not in b"".join(files.values()), "where the run lies is nobody's business"


def test_only_the_grants_that_were_asked_for(run: Path) -> None:
    granted(run, "one")
    granted(run, "two")
    files = opened(packed(run, grants=wanted(run, "two")).content)
    assert [name for name in files if name.startswith("grants/")] == ["grants/two.json"]
    assert json.loads(files["pack.json"])["grants"] == ["two"]


def test_ids_that_sort_otherwise_than_their_files(run: Path) -> None:
    ids = ("a", "a-b", "a.json", "B")
    for id_ in ids:
        granted(run, id_)
    content = packed(run, grants=wanted(run, *ids)).content
    assert not faults(content)
    assert sum(what.startswith("grant ") for what in findings(content).checked) == len(ids)


def test_ids_that_some_systems_take_for_one(run: Path) -> None:
    granted(run, "one")
    granted(run, "One")
    with pytest.raises(LedgerError, match="differ only in case"):
        packed(run, grants=wanted(run, "one", "One"))


def test_an_unknown_grant_is_refused_with_the_nearest(run: Path) -> None:
    granted(run, "2026-0007")
    with pytest.raises(ProvenanceError, match="did you mean '2026-0007'"):
        wanted(run, "2026-0077")
    with pytest.raises(ProvenanceError, match="unknown grant"):
        wanted(run, "../2026-0007")


def test_grants_that_do_not_hold_are_not_packed(run: Path, tmp_path: Path) -> None:
    granted(run)
    with pytest.raises(ProvenanceError, match="expired"):
        wanted(run, "2026-0007", now=parse_time(EXPIRES))
    stolen = confidential_run(tmp_path / "other", steps=9)
    (stolen / "grants").mkdir()
    shutil.copy(run / "grants" / "2026-0007.json", stolen / "grants")
    with pytest.raises(ProvenanceError, match="another run"):
        wanted(stolen, "2026-0007")
    shutil.copy(run / "grants" / "2026-0007.json", run / "grants" / "renamed.json")
    with pytest.raises(ProvenanceError, match="holds keys for the grant '2026-0007'"):
        wanted(run, "renamed")
    with pytest.raises(ProvenanceError, match="records no wrapping of keys"):
        read_grants(RunLedger(run), ["2026-0007"], trust=governed_run.trust(), now=NOW, project=())


def test_a_revoked_grant_is_not_packed_even_from_a_copy_of_its_keys(run: Path, tmp_path: Path) -> None:
    file = granted(run)
    signed = open_grant(file.grant.content, trust=governed_run.trust(), now=NOW, where="grant")
    grant: Named = naming(signed)
    with Project.open(runs_of(run), key=private(TRAINER), name=TRAINER) as project:
        revoke(grant, runs=runs_of(run), project=project)
    with pytest.raises(ProvenanceError, match="unknown grant"):
        wanted(run, "2026-0007")
    rundir.write_bytes(run / "grants" / "2026-0007.json", file.content)
    with pytest.raises(ProvenanceError, match="was revoked"):
        wanted(run, "2026-0007")


def test_what_is_disclosed_is_on_record_by_grant(run: Path) -> None:
    granted(run, "one")
    granted(run, "two")
    grants = wanted(run, "one", "two")
    pack = packed(run, grants=grants)
    made = accesses(RunLedger(run), pack, grants)
    assert len({each.grant for each in made}) == 2 and len({each.query for each in made}) == 1
    assert {each.ledger for each in made} == {pack.manifest.ledger}
    assert accesses(RunLedger(run), packed(run), {}) == ()


@pytest.mark.parametrize("name", ["\u00e4\u200b.note", "a b.note", "a\nb.note", f"{'x' * 249}+.note", "+a.note"])
def test_a_note_with_a_strange_name_stops_no_pack(tmp_path: Path, name: str) -> None:
    """Anybody may write into `witness/`, and a pack has files of plain names alone."""
    run = governed(tmp_path)
    witness = run / "ledger" / "witness"
    witness.mkdir(exist_ok=True)
    stranger = Signer(name="s", algorithm=Algorithm.ED25519, private_key=private("stranger"))
    signed = sign(parse((run / "ledger" / "checkpoint").read_bytes()).text, stranger)
    (witness / name).write_bytes(signed.content)
    content = packed(run).content
    assert not faults(content)
    assert len(opened(content)) > 5


def test_a_ledger_that_does_not_verify_is_not_packed(tmp_path: Path) -> None:
    run = governed(tmp_path)
    for bundle in (run / "ledger" / "tile" / "entries").rglob("*.p/*"):
        bundle.write_bytes(bundle.read_bytes().replace(b'"seed":0', b'"seed":2'))
    with pytest.raises(LedgerError, match="only a ledger that verifies can be packed"):
        packed(run)


def test_a_pack_replaces_a_pack_and_nothing_else(run: Path, tmp_path: Path) -> None:
    pack = packed(run)
    write_pack(tmp_path / "a.pack", pack)
    write_pack(tmp_path / "a.pack", replace(pack, content=pack.content))
    assert (tmp_path / "a.pack").read_bytes() == pack.content
    key = tmp_path / "key.pem"
    write_key(key, private(GOVERNANCE), None)
    with pytest.raises(ProvenanceError, match="it is not a pack; it is not replaced"):
        write_pack(key, pack)
    with pytest.raises(ProvenanceError, match="not a pack"):
        write_pack(tmp_path, pack)


def listed(directory: Path, runs: Path, *, passphrase: str | None = None) -> dict[str, tuple[str | None, str]]:
    found = host_keys(directory, runs, signer=private(TRAINER), passphrase=passphrase, trust=governed_run.trust())
    return {each.file: (each.public_key, each.state) for each in found}


def test_the_keys_on_the_host_are_listed_and_strange_ones_not_opened(tmp_path: Path) -> None:
    keys = tmp_path / "here" / "keys"
    keys.mkdir(parents=True)
    write_key(keys / "a.pem", private(GOVERNANCE), None)
    write_key(keys / "b.pem", private(TRAINER), "correct horse")
    write_key(keys / "c.key", READER, None)  # pyright: ignore[reportArgumentType]
    (keys / "d.pem").write_bytes(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    (keys / "salts").write_bytes(bytes(99))
    (keys / "a.pem").chmod(0o644)  # others can read it: all the more a key that lies here
    found = listed(keys, tmp_path / "elsewhere" / "runs")
    assert {name: state for name, (_, state) in found.items() if not name.endswith("/")} == {
        "a.pem": "readable",
        "b.pem": "encrypted, not opened",
        "c.key": "readable",
        "d.pem": "damaged, or of another kind",
    }
    assert found["a.pem"][0] == public_text(private(GOVERNANCE)) and found["b.pem"][0] is None


def test_the_keys_of_the_readme_lie_on_one_host(tmp_path: Path) -> None:
    """Three roles, one passphrase, one directory up; a copy of the trainer's key beside the documents."""
    governed_ = tmp_path / "governed"
    governed_.mkdir()
    for name, seed in (("dg.pem", GOVERNANCE), ("mr.pem", RISK), ("trainer.pem", TRAINER)):
        write_key(tmp_path / name, private(seed), "correct horse")
    shutil.copy2(tmp_path / "trainer.pem", governed_)
    opens = "opens with the passphrase of the trainer's key"
    found = listed(governed_, tmp_path / "runs", passphrase="correct horse")
    assert found == {
        "trainer.pem": (public_text(private(TRAINER)), opens),
        "../dg.pem": (public_text(private(GOVERNANCE)), opens),
        "../mr.pem": (public_text(private(RISK)), opens),
        "../trainer.pem": (public_text(private(TRAINER)), opens),
        "runs/": (None, "cannot be read by this process"),
    }
    locked = listed(governed_, tmp_path, passphrase="another")
    assert locked["../dg.pem"] == (None, "encrypted, not opened")
    assert locked["trainer.pem"] == (public_text(private(TRAINER)), "signed this pack")


def test_keys_beside_the_runs_are_found_and_no_more_than_that(tmp_path: Path) -> None:
    private_, runs = tmp_path / "a" / "b" / "private", tmp_path / "work" / "runs"
    for place in (private_, runs / "sweep"):
        place.mkdir(parents=True)
    write_key(tmp_path / "work" / "dg.pem", private(GOVERNANCE), None)
    write_key(runs / "mr.pem", private(RISK), None)
    write_key(tmp_path / "a" / "far.pem", private(RISK), None)
    write_key(runs / "sweep" / "deep.pem", private(RISK), None)
    (private_ / "trainer.pem").write_text("ssh-agent:SHA256:abc\n")
    found = listed(private_, runs)
    assert found == {
        "trainer.pem": (public_text(private(TRAINER)), "signed this pack"),
        "runs/mr.pem": (public_text(private(RISK)), "readable"),
        "runs/../dg.pem": (public_text(private(GOVERNANCE)), "readable"),
    }


@needs_agent
def test_keys_in_an_agent_are_found_and_strangers_are_not_named(real_agent: Agent, tmp_path: Path) -> None:
    real_agent.add(private(RISK), "somebody@somewhere")
    real_agent.add(private("a stranger"), "mine")
    found = listed(tmp_path, tmp_path)
    assert found["ssh-agent"] == (public_text(private(RISK)), "in an SSH agent that answers here")
    assert "somebody" not in str(found) and public_text(private("a stranger")) not in str(found)
    real_agent.process.kill()
    real_agent.process.wait()
    assert listed(tmp_path, tmp_path)["ssh-agent"] == (None, "cannot be read by this process")


def test_a_directory_with_more_names_than_are_looked_at_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "MAX_LISTED", 3)
    for at in range(5):
        (tmp_path / f"{at}.txt").write_text("x")
    write_key(tmp_path / "z.pem", private(RISK), None)
    found = listed(tmp_path, tmp_path)
    assert found["./"] == (None, "more names than are looked at") and "z.pem" not in found


def test_the_host_in_the_manifest_is_where_the_trainers_key_is(run: Path) -> None:
    (only,) = packed(run).manifest.host.keys
    assert (only.file, only.public_key, only.state) == ("trainer.pem", public_text(private(TRAINER)), "readable")
