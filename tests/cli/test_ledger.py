"""`explorer ledger`: what each verb prints, where, and when its exit status is 0."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from explorer.entries.fields import Blob
from explorer.entries.heads import write_entry
from explorer.entries.kinds import encode
from explorer.ledger.cosign import begin_memory, memory_of
from explorer.ledger.log import Log
from explorer.ledger.storage import blob_path
from explorer.provenance.keys import public_text, write_key
from explorer.provenance.trust import FORMAT, Authority, AuthorityKey, Quorum, Role, Trust, write_trust
from tests.cli.command import explorer, refused
from tests.entries.examples import EXAMPLES
from tests.ledger.ledgers import DG, LOG, MR, grow, make
from tests.ledger.signers import ORIGIN, signer

VKEY = LOG.verifier.vkey
STEP = next(encode(replace(each, blobs={})) for each in EXAMPLES if each.KIND == "step")
FOREIGN = write_entry({"kind": "weather", "version": 3, "blobs": {}, "sky": "clear"})
NEWER = write_entry({"kind": "step", "version": 2, "blobs": {}, "what": "from later"})
END = write_entry({"kind": "end", "version": 1, "blobs": {}, "step": 1})


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A small ledger with entries of a known kind, an unknown one, an unknown version, and what is no entry."""
    directory = tmp_path / "ledger"
    with Log.create(directory, origin=ORIGIN, signer=LOG) as log:
        log.append([STEP, FOREIGN, NEWER, b"\x00\xff not JSON", END])
    return directory


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A trust file that asks for a trainer and one of data governance, and the key file of each."""
    authorities = []
    for name, role, key in (("example.com/t", Role.TRAINER, LOG), ("dg.example", Role.DATA_GOVERNANCE, DG)):
        write_key(tmp_path / f"{role}.pem", key.private_key, None)
        begin_memory(memory_of(tmp_path / f"{role}.pem"))
        known = AuthorityKey(
            public_key=public_text(key.private_key), not_before="2020-01-01T00:00:00Z", not_after="2090-01-01T00:00:00Z"
        )
        authorities.append(Authority(name=name, role=role, keys=(known,)))
    quorum = Quorum(documents={}, checkpoints={Role.TRAINER: 1, Role.DATA_GOVERNANCE: 1})
    trust = Trust(format=FORMAT, name="example.com/lab", authorities=tuple(authorities), quorum=quorum)
    write_trust(tmp_path / "trust.json", trust)
    return tmp_path


def policy_file(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([f"log {VKEY}", f"witness dg {DG.verifier.vkey}", *lines, ""]))
    return path


def damaged(ledger: Path) -> Path:
    bundle = ledger / "tile/entries/000.p/5"
    content = bytearray(bundle.read_bytes())
    content[10] ^= 1
    bundle.write_bytes(content)
    return ledger


def test_a_sound_ledger(ledger: Path) -> None:
    done = explorer("ledger", "verify", ledger, "--vkey", VKEY)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == f"{ledger}: verified"
    assert lines[1].split() == ["log", ORIGIN]
    assert lines[2].split() == ["size", "5", "entries"]
    assert lines[4].split() == ["signed", "by", ORIGIN, f"({LOG.verifier.key_id.hex()})"]
    assert "rolled back" in done.stdout and "--held" in done.stdout
    assert "unfinished" not in done.stdout


def test_a_ledger_without_end_is_unfinished(ledger: Path) -> None:
    grow(ledger, [STEP])
    assert "unfinished: its last entry is not 'end'" in explorer("ledger", "verify", ledger, "--vkey", VKEY).stdout
    grow(ledger, [b"something else"])
    assert "end          unknown: its last entry" in explorer("ledger", "verify", ledger, "--vkey", VKEY).stdout


def test_contents_are_read_where_that_is_asked_for(tmp_path: Path) -> None:
    genesis, step, end = (
        encode(replace(next(each for each in EXAMPLES if kind == each.KIND), blobs={}))
        for kind in ("genesis", "step", "end")
    )
    at_zero = write_entry({**json.loads(step), "step": 0})
    done_once = write_entry({**json.loads(end), "step": 1})
    with Log.create(tmp_path, origin=ORIGIN, signer=LOG) as log:
        log.append([genesis, at_zero, done_once])
    done = explorer("ledger", "verify", tmp_path, "--vkey", VKEY, "--contents")
    assert done.returncode == 0, done.stderr
    assert "entries: 3 in a valid order, 1 step, 0 of unknown kinds\n" in done.stdout
    grow(tmp_path, [at_zero])
    assert explorer("ledger", "verify", tmp_path, "--vkey", VKEY).returncode == 0
    done = explorer("ledger", "verify", tmp_path, "--vkey", VKEY, "--contents")
    assert done.returncode == 1
    assert "the files are sound, but not their entries: entry 3: step after the end" in done.stderr
    said = json.loads(explorer("ledger", "verify", tmp_path, "--vkey", VKEY, "--contents", "--json").stdout)
    assert said["ok"] is False
    assert said["contents"]["fault"] == "entry 3: step after the end"
    foreign = make(tmp_path / "foreign", 3)
    done = explorer("ledger", "verify", foreign, "--vkey", VKEY, "--contents")
    assert done.returncode == 0
    assert "entries: not Explorer's" in done.stdout


@pytest.mark.parametrize("deep", [[], ["--contents"]], ids=["files", "contents"])
def test_a_blob_that_an_entry_names_has_to_be_here(tmp_path: Path, deep: list[str]) -> None:
    entries = {each.KIND: each for each in EXAMPLES}
    with Log.create(tmp_path, origin=ORIGIN, signer=LOG) as log:
        digest = log.write_blob(b"tensors")
        named = {"tensors": Blob(sha256=digest, size=7)}
        log.append([encode(replace(entries["genesis"], blobs=named))])
    asked = ["ledger", "verify", tmp_path, "--vkey", VKEY, *deep]
    assert explorer(*asked).returncode == 0
    (tmp_path / blob_path(digest)).unlink()
    done = explorer(*asked)
    assert done.returncode == 1
    assert "1 blobs that entries name are missing, with no record of their erasure" in done.stderr
    assert "entry 0: tensors: missing, and no entry of the project's ledger says that it was erased" in done.stderr
    said = json.loads(explorer(*asked, "--json").stdout)
    assert (said["ok"], said["named_blobs"]["missing"], said["named_blobs"]["erased"]) == (False, 1, 0)


def test_entries_of_known_kinds_have_their_fields(tmp_path: Path) -> None:
    genesis = json.loads(encode(replace(EXAMPLES[0], blobs={})))
    with Log.create(tmp_path, origin=ORIGIN, signer=LOG) as log:
        log.append([write_entry({name: value for name, value in genesis.items() if name != "classes"})])
    assert explorer("ledger", "verify", tmp_path, "--vkey", VKEY).returncode == 0
    done = explorer("ledger", "verify", tmp_path, "--vkey", VKEY, "--contents")
    assert done.returncode == 1 and "entry 0: genesis entry: classes: " in done.stderr


def test_without_an_anchor_nothing_is_said_to_hold(ledger: Path) -> None:
    said = refused("ledger", "verify", ledger)
    assert said.startswith(f"explorer: {ledger}: not verified\n  checkpoint: no key is trusted")
    assert "Not verified: no trust anchor given" in said
    assert "--trust FILE, --policy FILE or --vkey KEY" in said


def test_a_damaged_ledger_is_told_with_place_expected_and_found(ledger: Path) -> None:
    said = refused("ledger", "verify", damaged(ledger), "--vkey", VKEY)
    assert "  tile/entries/000.p/5: entry 0 was altered: its hash is not the one in the checkpoint's tree\n" in said
    assert "    expected  " in said and "    found     " in said
    assert "To keep the evidence, copy the whole directory" in said


def test_the_same_as_json(ledger: Path) -> None:
    done = explorer("ledger", "verify", ledger, "--vkey", VKEY, "--json")
    said = json.loads(done.stdout)
    assert done.returncode == 0
    assert (said["ok"], said["origin"], said["size"], said["finished"]) == (True, ORIGIN, 5, True)
    assert said["signed_by"] == [{"name": ORIGIN, "key_id": LOG.verifier.key_id.hex()}]
    assert (said["findings"], said["held"], said["fork"]) == ([], None, None)
    done = explorer("ledger", "verify", damaged(ledger), "--vkey", VKEY, "--json")
    said = json.loads(done.stdout)
    assert done.returncode == 1
    assert said["ok"] is False
    assert said["findings"][0]["path"] == "tile/entries/000.p/5"
    assert len(said["findings"][0]["expected"]) == 64


def test_one_anchor_at_a_time(ledger: Path, lab: Path) -> None:
    said = refused("ledger", "verify", ledger, "--vkey", VKEY, "--trust", lab / "trust.json")
    assert said == "explorer: name trusted keys in one way: expected only one of --trust, --policy and --vkey"


def test_a_wrong_key_is_refused(ledger: Path) -> None:
    said = refused("ledger", "verify", ledger, "--vkey", signer(8).verifier.vkey)
    assert "checkpoint: no trusted key has signed: signed by example.com/run" in said
    assert refused("ledger", "verify", ledger, "--vkey", "nonsense").startswith("explorer: not a verifier key")


def test_cosign_and_verify_by_policy(ledger: Path, lab: Path) -> None:
    policy = policy_file(lab / "lab.tlog-policy", "quorum dg")
    assert "the quorum is not met: it asks for dg" in refused("ledger", "verify", ledger, "--policy", policy)
    key = lab / "data-governance.pem"
    done = explorer("ledger", "cosign", ledger, "--key", key, "--policy", policy, "--first")
    assert done.returncode == 0
    assert f"{ledger}/witness/dg.example+" in done.stdout and "cosigned size 5 of example.com/run at " in done.stdout
    assert (lab / "data-governance.pem.cosigned").is_dir()
    done = explorer("ledger", "verify", ledger, "--policy", policy)
    assert done.returncode == 0
    assert "  cosigned by  dg.example (" in done.stdout
    policy_file(policy, "quorum dgg")
    said = refused("ledger", "verify", ledger, "--policy", policy)
    assert said.endswith("lab.tlog-policy, line 3: quorum: unknown name 'dgg'; did you mean 'dg'? known: dg")


def test_cosign_and_verify_by_trust_file(ledger: Path, lab: Path) -> None:
    trust = lab / "trust.json"
    assert "the quorum is not met" in refused("ledger", "verify", ledger, "--trust", trust)
    explorer("ledger", "cosign", ledger, "--key", lab / "data-governance.pem", "--trust", trust)
    assert explorer("ledger", "verify", ledger, "--trust", trust).returncode == 0
    grow(ledger, [STEP])
    said = refused("ledger", "verify", ledger, "--trust", trust)
    assert "the quorum is not met" in said, "the cosignature is of the smaller tree"
    done = explorer("ledger", "verify", ledger, "--vkey", VKEY, "--vkey", MR.verifier.vkey)
    assert done.returncode == 1


def test_a_key_that_may_not_cosign(ledger: Path, lab: Path) -> None:
    said = refused("ledger", "cosign", ledger, "--key", lab / "trainer.pem", "--trust", lab / "trust.json")
    assert said.endswith("trainer.pem: not the key of a cosigner; known cosigners: dg.example")
    said = refused("ledger", "cosign", ledger, "--key", lab / "data-governance.pem")
    assert said == "explorer: name trusted keys: --trust FILE, --policy FILE or --vkey KEY"
    assert not (ledger / "witness").exists()


def test_a_revoked_key_does_not_cosign(ledger: Path, lab: Path) -> None:
    revoke = ("authority", "revoke", "dg.example", "--trust", lab / "trust.json", "--reason", "lost")
    assert explorer(*revoke, "--at", "2021-01-01T00:00:00Z").returncode == 0
    said = refused("ledger", "cosign", ledger, "--key", lab / "data-governance.pem", "--trust", lab / "trust.json")
    assert "a cosignature of 'dg.example' would not count: its key was valid until 2021-01-01T00:00:00Z" in said


def test_a_held_checkpoint_and_a_fork(ledger: Path, tmp_path: Path) -> None:
    held = tmp_path / "held.note"
    shutil.copy(ledger / "checkpoint", held)
    grow(ledger, [STEP])
    done = explorer("ledger", "verify", ledger, "--vkey", VKEY, "--held", held)
    assert done.returncode == 0
    assert "  you hold     size 5, which this ledger extends" in done.stdout
    other = make(tmp_path / "other", 6)
    said = refused("ledger", "verify", other, "--vkey", VKEY, "--held", held, cwd=tmp_path)
    assert "the ledger of example.com/run was rewritten\n  checkpoint you hold:   size 5  root " in said
    assert said.endswith("/") and "  they are kept in ledger-evidence-" in said
    (kept,) = tmp_path.glob("ledger-evidence-*")
    assert (kept / "held.note").read_bytes() == held.read_bytes()
    assert (kept / "found.note").read_bytes() == (other / "checkpoint").read_bytes()
    elsewhere = tmp_path / "else" / "where"
    refused("ledger", "verify", other, "--vkey", VKEY, "--held", held, "--evidence", elsewhere, cwd=tmp_path)
    assert (
        (elsewhere / kept.name / "statement.txt").read_text().startswith("the ledger of example.com/run was rewritten")
    )
    assert len(list(tmp_path.glob("ledger-evidence-*"))) == 1
    another = make(tmp_path / "another", 7)  # a second fork does not take the place of the first
    refused("ledger", "verify", another, "--vkey", VKEY, "--held", held, "--evidence", elsewhere, cwd=tmp_path)
    assert len(list(elsewhere.iterdir())) == 2


def test_a_key_without_its_memory_cosigns_nothing_until_told_that_it_is_new(ledger: Path, lab: Path) -> None:
    cosign = ("--key", lab / "data-governance.pem", "--trust", lab / "trust.json")
    assert explorer("ledger", "cosign", ledger, *cosign).returncode == 0
    shutil.rmtree(lab / "data-governance.pem.cosigned")
    said = refused("ledger", "cosign", ledger, *cosign)
    assert said.startswith(f"explorer: {lab / 'data-governance.pem.cosigned'}: there is no memory of what 'dg.example'")
    assert said.endswith("bring the memory back, or say --first if this key has cosigned nothing yet")
    assert explorer("ledger", "cosign", ledger, *cosign, "--first").returncode == 0
    assert explorer("ledger", "cosign", ledger, *cosign).returncode == 0


def test_making_a_key_begins_its_memory(tmp_path: Path) -> None:
    for role, remembers in (("model-risk", True), ("auditor", True), ("trainer", False)):
        key = tmp_path / f"{role}.pem"
        where = ("--key", key, "--trust", tmp_path / "trust.json", "--unencrypted")
        assert explorer("authority", "new", f"example.com/{role}", "--role", role, *where).returncode == 0
        assert memory_of(key).exists() is remembers


def test_a_cosigner_refuses_a_fork_and_keeps_the_evidence(ledger: Path, lab: Path) -> None:
    cosign = ("--key", lab / "data-governance.pem", "--trust", lab / "trust.json")
    assert explorer("ledger", "cosign", ledger, *cosign).returncode == 0
    again = explorer("ledger", "cosign", ledger, *cosign)
    assert again.returncode == 0
    other = make(lab / "other", 7)
    said = refused("ledger", "cosign", other, *cosign, cwd=lab)
    assert "the ledger of example.com/run was rewritten" in said
    assert len(list(lab.glob("ledger-evidence-*"))) == 1
    assert not (other / "witness").exists()


def test_entries_are_shown_a_line_each_and_none_is_dropped(ledger: Path) -> None:
    done = explorer("ledger", "show", ledger)
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3", "4"]
    assert lines[0].split()[1:3] == ["step", "v1"] and "  [" not in lines[0]
    assert '{"sky": "clear"}  [unknown kind or version]' in lines[1]
    assert lines[2].endswith("[unknown kind or version]")
    assert lines[3].split()[1] == "?" and "[not JSON:" in lines[3]
    assert lines[4].split()[1:3] == ["end", "v1"] and "[end entry: " in lines[4] and " is missing" in lines[4]


def test_entries_as_json_lines(ledger: Path) -> None:
    done = explorer("ledger", "show", ledger, "--json")
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["kind"], each["version"], each["known"]) for each in shown] == [
        ("step", 1, True),
        ("weather", 3, False),
        ("step", 2, False),
        (None, None, False),
        ("end", 1, True),
    ]
    assert shown[1]["entry"]["sky"] == "clear"
    assert shown[0]["fault"] is None and " is missing" in shown[4]["fault"]
    assert shown[3]["base64"] == "AP8gbm90IEpTT04="


def test_entries_can_be_chosen(ledger: Path) -> None:
    def indices(*options: str) -> list[int]:
        done = explorer("ledger", "show", ledger, "--json", *options)
        assert done.returncode == 0
        return [json.loads(line)["index"] for line in done.stdout.splitlines()]

    assert indices("--kind", "step") == [0, 2]
    assert indices("--kind", "weather") == [1]
    assert indices("--from", "1", "--to", "3") == [1, 2]
    assert indices("--from", "3", "--kind", "step") == []
    assert "unknown kind of entry 'stepp'; did you mean 'step'?" in refused("ledger", "show", ledger, "--kind", "stepp")
    assert "no entries 0 to 9 in a ledger of 5" in refused("ledger", "show", ledger, "--to", "9")


def test_a_proof_is_checked_on_another_machine(ledger: Path, tmp_path: Path) -> None:
    proof = tmp_path / "1.tlog-proof"
    done = explorer("ledger", "prove", ledger, "1", "--out", proof)
    assert done.stdout == f"{proof}: entry 1 of 5 in the ledger of {ORIGIN}\n"
    shutil.rmtree(ledger)
    done = explorer("ledger", "check", proof, "--vkey", VKEY)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == f"{proof}: entry 1 is in the ledger"
    assert done.stdout.splitlines()[-1] == FOREIGN.decode()
    (tmp_path / "entry").write_bytes(FOREIGN)
    done = explorer("ledger", "check", proof, "--vkey", VKEY, "--entry", tmp_path / "entry", "--json")
    said = json.loads(done.stdout)
    assert (said["ok"], said["index"], said["size"], said["entry"]) == (True, 1, 5, FOREIGN.decode())
    (tmp_path / "entry").write_bytes(STEP)
    said = refused("ledger", "check", proof, "--vkey", VKEY, "--entry", tmp_path / "entry")
    assert said.startswith("explorer: the inclusion proof of entry 1 fails")
    assert "name trusted keys" in refused("ledger", "check", proof)
    assert "no trusted key has signed" in refused("ledger", "check", proof, "--vkey", signer(8).verifier.vkey)


def test_an_entry_that_is_no_text_is_told_byte_for_byte(tmp_path: Path) -> None:
    """As text, the byte 0xff and the four characters of its escape would look the same."""
    said = []
    for entry in (b"\xff", rb"\xff"):
        with Log.create(tmp_path / entry.hex(), origin=ORIGIN, signer=LOG) as log:
            log.append([entry])
        proof = tmp_path / f"{entry.hex()}.tlog-proof"
        explorer("ledger", "prove", tmp_path / entry.hex(), "0", "--out", proof)
        said.append(json.loads(explorer("ledger", "check", proof, "--vkey", VKEY, "--json").stdout))
    assert [(each["entry"], each["base64"]) for each in said] == [(None, "/w=="), (r"\xff", "XHhmZg==")]


def test_a_proof_against_a_trust_file(ledger: Path, lab: Path) -> None:
    trust, proof = lab / "trust.json", lab / "0.tlog-proof"
    explorer("ledger", "prove", ledger, "0", "--out", proof)
    assert "the quorum is not met" in refused("ledger", "check", proof, "--trust", trust)
    explorer("ledger", "cosign", ledger, "--key", lab / "data-governance.pem", "--trust", trust)
    explorer("ledger", "prove", ledger, "0", "--out", proof)
    assert explorer("ledger", "check", proof, "--trust", trust).returncode == 0


@pytest.mark.parametrize("name", ["checkpoint", "tile/0/000.p/5"])
def test_a_proof_is_not_written_over_a_file_of_the_ledger(ledger: Path, name: str) -> None:
    before = (ledger / name).read_bytes()
    said = refused("ledger", "prove", ledger, "0", "--out", ledger / name)
    assert "there is a file already, and it is not a proof; it is not replaced" in said
    assert (ledger / name).read_bytes() == before


def test_what_cannot_be_read_is_said_in_one_line(ledger: Path, tmp_path: Path) -> None:
    assert "no ledger is kept here" in refused("ledger", "verify", tmp_path, "--vkey", VKEY)
    assert "no entry 5 in a tree of 5" in refused("ledger", "prove", ledger, "5", "--out", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert "cannot read" in refused("ledger", "check", tmp_path / "x", "--vkey", VKEY)
    assert "not a proof" in refused("ledger", "check", ledger / "checkpoint", "--vkey", VKEY)
    assert "cannot read" in refused("ledger", "verify", ledger, "--vkey", VKEY, "--held", tmp_path / "x")
    (tmp_path / "x").write_bytes(b"nothing")
    assert "x: not a signed note" in refused("ledger", "verify", ledger, "--vkey", VKEY, "--held", tmp_path / "x")


def test_verifying_with_keys_alone_loads_little(ledger: Path) -> None:
    """Start-up is what a short verification costs: no pydantic, nothing of tables or arrays."""
    code = "import sys; from explorer.cli.app import main\ntry:\n main()\nfinally:\n print(*sys.modules)"
    command = [sys.executable, "-c", code, "ledger", "verify", str(ledger), "--vkey", VKEY]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"})
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "explorer.ledger.verify" in loaded
    assert not loaded & {"pydantic", "numpy", "pyarrow", "yaml", "rich.console", "torch", "explorer.ledger.log"}
