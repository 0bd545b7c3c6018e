"""`explorer ledger submit|witness|export|serve|monitor`: the commands, as processes where they are servers."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from explorer.provenance.keys import write_key
from tests.cli.command import explorer, refused
from tests.ledger import tlog_client
from tests.ledger.ledgers import DG, LOG, grow, make
from tests.ledger.signers import ORIGIN, entry

VKEY = LOG.verifier.vkey


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A ledger, the key of a witness, and a policy that knows both."""
    make(tmp_path / "ledger", 300)
    write_key(tmp_path / "dg.pem", DG.private_key, None)
    policy = f"log {VKEY}\nwitness dg {DG.verifier.vkey}\nquorum dg\n"
    (tmp_path / "policy").write_text(policy)
    return tmp_path


# As `python -m explorer`, and Ctrl-C works: a process that was started in the background may ignore it, and its
# children with it.
START = """import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from explorer.cli.app import main
main()
"""


@contextmanager
def server(*arguments: str | Path) -> Iterator[str]:
    """The command as a process of its own; its URL. It ends by Ctrl-C."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", START, "ledger", *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout and process.stderr
        try:
            said = process.stdout.readline() + process.stdout.readline()
            said += process.stdout.readline() if said.startswith("{") else ""
            match = re.search(r"(http://127\.0\.0\.1:\d+)", said)
            assert match, said + process.stderr.read()
            yield match[1]
        finally:
            process.send_signal(signal.SIGINT)
            try:
                status = process.wait(600)
            finally:
                process.kill()  # where it is still there: leaving the block waits for it
            assert status == 130 and "Traceback" not in process.stderr.read()


def test_a_ledger_is_witnessed_over_http_and_then_verifies(lab: Path) -> None:
    policy = ("--policy", lab / "policy")
    assert "the quorum is not met" in refused("ledger", "verify", lab / "ledger", *policy)
    said = refused("ledger", "witness", "--key", lab / "dg.pem", *policy)
    assert "there is no memory of what 'dg.example' has cosigned" in said
    with server("witness", "--key", lab / "dg.pem", "--first", *policy) as url:
        done = explorer("ledger", "submit", lab / "ledger", "--url", url, *policy)
        assert done.returncode == 0 and "dg.example cosigned size 300 of example.com/run at 2" in done.stdout
        grow(lab / "ledger", [entry(300)])
        done = explorer("ledger", "submit", lab / "ledger", "--url", url, *policy, "--json")
        assert json.loads(done.stdout)["size"] == 301
        make(lab / "older", 200)
        said = refused("ledger", "submit", lab / "older", "--url", url, *policy)
        assert "has cosigned 301 entries of example.com/run, but 200 are here" in said
    assert explorer("ledger", "verify", lab / "ledger", *policy).returncode == 0
    said = explorer("ledger", "cosign", lab / "older", "--key", lab / "dg.pem", *policy, cwd=lab)
    assert said.returncode == 1 and "rolled back" in said.stderr, "the command shares the server's memory"


def test_a_witness_that_is_not_there_is_one_clear_error(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.ledger.witness.WAIT", 0.0)
    where = ("ledger", "submit", lab / "ledger", "--policy", lab / "policy", "--url")
    assert refused(*where, "http://127.0.0.1:1").startswith("explorer: http://127.0.0.1:1/add-checkpoint: no answer: ")
    assert "http to another machine; expected https" in refused(*where, "http://witness.example")
    assert "name trusted keys" in refused("ledger", "submit", lab / "ledger", "--url", "http://127.0.0.1:1")


def test_a_ledger_is_served_exported_and_monitored(lab: Path) -> None:
    where = ("--vkey", VKEY, "--memory", lab / "memory.json")
    with server("serve", lab / "ledger") as url:
        assert tlog_client.verify(url)[0] == 300
        done = explorer("ledger", "monitor", url, *where, "--json")
        assert done.returncode == 6, "entries of no kind of ours"
        assert json.loads(done.stdout)["new"] == {"(not an entry)": 300}
        assert explorer("ledger", "monitor", url, *where).returncode == 0
    done = explorer("ledger", "export", lab / "ledger", "--out", lab / "site")
    assert done.returncode == 0 and "300 entries of example.com/run, 5 new files" in done.stdout
    done = explorer("ledger", "monitor", lab / "site", *where, "--silent-after", "0.0000001")
    assert done.returncode in (0, 5)
    make(lab / "older", 200)
    done = explorer("ledger", "monitor", lab / "older", *where, "--evidence", lab)
    assert done.returncode == 4 and f"the ledger of {ORIGIN} was rolled back" in done.stderr
    assert len(list(lab.glob("ledger-evidence-*/held.note"))) == 1
    assert "no trusted key" in refused("ledger", "monitor", lab / "site", "--vkey", DG_LOG, "--memory", lab / "other")


DG_LOG = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"


def test_servers_say_where_they_are_in_json_too(lab: Path) -> None:
    with server("serve", lab / "ledger", "--json") as url:
        assert tlog_client.checkpoint(url)[:2] == (ORIGIN, 300)
    assert "no ledger is kept here" in refused("ledger", "serve", lab)


def test_silence_has_its_own_status(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = (
        "ledger",
        "monitor",
        lab / "ledger",
        "--vkey",
        VKEY,
        "--memory",
        lab / "memory.json",
        "--silent-after",
        "1",
    )
    monkeypatch.setattr("explorer.cli.options.time", lambda: 1_800_000_000)
    assert explorer(*where).returncode == 6
    monkeypatch.setattr("explorer.cli.options.time", lambda: 1_800_003_600)
    assert explorer(*where).returncode == 0
    monkeypatch.setattr("explorer.cli.options.time", lambda: 1_800_003_601)
    done = explorer(*where)
    assert done.returncode == 5
    assert "silent: no new checkpoint for 1.0 hours, since 2027-01-15T08:00:00Z" in done.stderr
