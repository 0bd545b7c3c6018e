"""Every verb of keys, documents, tags, ledgers and governed runs speaks JSON, and it is about what the verb did."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from explorer.cli.app import app
from explorer.ledger.log import Log
from explorer.note import Algorithm, Signer
from explorer.provenance.keys import read_key
from tests.cli.command import explorer

POLICIES = Path(__file__).parents[2] / "notebooks" / "policies"
GROUPS = ("authority", "taxonomy", "policy", "tags", "ledger", "grant", "prices", "profile", "usage")
ALONE = ("trace", "conform", "replay", "read", "ask", "confirm")  # verbs that stand in no group
SPAN = ("--not-before", "2026-01-01T00:00:00Z", "--not-after", "2090-01-01T00:00:00Z", "--unencrypted")

Say = Callable[..., Any]


@pytest.fixture
def say(tmp_path: Path) -> Say:
    """Run a verb with --json in an empty directory and read what it prints."""

    def run(*arguments: object) -> Any:
        done = explorer(*map(str, arguments), "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_every_verb_takes_it() -> None:
    root: Any = typer.main.get_command(app)
    context = typer.Context(root)
    groups = {name: root.get_command(context, name) for name in GROUPS}
    verbs = [
        (f"{name} {verb}", group.get_command(context, verb))
        for name, group in groups.items()
        for verb in group.list_commands(context)
    ]
    verbs += [(name, root.get_command(context, name)) for name in ALONE]
    assert len(verbs) >= 28
    assert [
        name for name, verb in verbs if "--json" not in {option for each in verb.params for option in each.opts}
    ] == []


def test_from_keys_to_a_proof(say: Say, tmp_path: Path) -> None:
    trust = ("--trust", "trust.json")
    roles = {"data-governance": "dg", "model-risk": "mr", "trainer": "t"}
    keys: dict[str, str] = {}
    for role, key in roles.items():
        branches = ("--branch", "open") if role == "data-governance" else ()
        made = say("authority", "new", f"example.com/{role}", "--role", role, "--key", key, *trust, *branches, *SPAN)
        assert (made["role"], made["encrypted"], made["key_file"]) == (role, False, key)
        keys[role] = made["key"]["id"]
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in keys.values())
    assert say("authority", "quorum", "model-risk", "--checkpoints", "1", *trust)["quorum"]["checkpoints"] == {
        "data-governance": 1,
        "model-risk": 1,
        "trainer": 1,
    }

    taxonomy = ("--taxonomy", "taxonomy.json")
    signed = say("taxonomy", "sign", POLICIES / "licences.taxonomy.yaml", "--key", "dg", *trust, "--out", taxonomy[1])
    assert signed["key"] == keys["data-governance"] and signed["signatures"] == 1
    assert signed["digest"] == say("taxonomy", "verify", taxonomy[1], *trust)["digest"]
    draft = POLICIES / "half-depth.policy.yaml"
    signed = say("policy", "sign", draft, *taxonomy, "--key", "mr", *trust, "--out", "policy.json")
    assert signed["key"] == keys["model-risk"]

    (tmp_path / "records").write_text('{"text": "x", "class": "open", "source": "s"}\n')
    owner = ("--authority", "example.com/data-governance")
    assert say("tags", "make", "records", *owner, "--out", "table", "--salts", "salts")["records"] == 1
    about = ("--description", POLICIES / "news.description.yaml")
    signed = say("tags", "sign", "table", *taxonomy, *about, "--key", "dg", *trust, "--out", "tags.json")
    assert (signed["file"], signed["signatures"], signed["still_to_sign"]) == ("tags.json", 1, [])
    verified = say("tags", "verify", "table", "--attestation", "tags.json", *taxonomy, *trust)
    assert verified["attestation"] == signed["digest"]
    assert say("tags", "erase", "salts", "--slot", "0") == {"salts": "salts", "destroyed": 0}

    name = "example.com/run"
    signer = Signer(name=name, algorithm=Algorithm.ED25519, private_key=read_key(tmp_path / "t", None))
    with Log.create(tmp_path / "ledger", origin=name, signer=signer) as log:
        log.append([b"first", b"second"])
    for role in ("dg", "mr"):
        cosigned = say("ledger", "cosign", "ledger", "--key", role, *trust)
        assert (cosigned["ok"], cosigned["size"], cosigned["origin"]) == (True, 2, name)
    proved = say("ledger", "prove", "ledger", "1", "--out", "p.tlog-proof")
    assert (proved["file"], proved["index"], proved["size"], proved["origin"]) == ("p.tlog-proof", 1, 2, name)
    assert say("ledger", "check", "p.tlog-proof", *trust)["entry"] == "second"

    after = say("authority", "revoke", "example.com/trainer", "--reason", "stolen", *trust)
    (trainer,) = (one for one in after["authorities"] if one["role"] == "trainer")
    assert trainer["keys"][0]["now"] == "revoked"
