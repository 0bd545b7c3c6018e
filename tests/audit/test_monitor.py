"""A monitor: what is new, forks, roll-backs, silence; told once, remembered only where all is well."""

import json
import shutil
from pathlib import Path

import pytest

from explorer.audit.monitor import FOREIGN, Look, look, read_memory, write_memory
from explorer.entries.heads import write_entry
from explorer.errors import LedgerError
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.trust_anchor import Anchor
from tests.ledger.ledgers import DG, LOG, NOW, cosigned, grow, make, policy
from tests.ledger.signers import ORIGIN, entry, signer

STEP = write_entry({"kind": "step", "version": 1, "blobs": {}})
NEWER = write_entry({"kind": "step", "version": 99, "blobs": {}})
WEATHER = write_entry({"kind": "weather", "version": 3, "blobs": {}})


def once(
    directory: Path, memory: Path, *, now: int = NOW, anchor: Anchor | None = None, patience: int | None = None
) -> Look:
    """One look, remembered as the command does."""
    believed = anchor or policy()
    found = look(
        LedgerDirectory(directory), read_memory(memory, anchor=believed), anchor=believed, now=now, patience=patience
    )
    if found.evidence is None:
        write_memory(memory, found.memory)
    return found


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmp_path / "memory.json"


def test_new_entries_are_counted_by_kind_and_once(tmp_path: Path, memory: Path) -> None:
    directory = make(tmp_path / "ledger", 0)
    grow(directory, [STEP, STEP, WEATHER])
    first = once(directory, memory)
    assert first.before is None and first.new == {"step": 2, "weather v3": 1} and first.unknown == {"weather v3": 1}
    before = memory.read_bytes()
    again = once(directory, memory, now=NOW + 5)
    assert again.new == {} == again.unknown and again.before is not None and again.before.size == 3
    assert memory.read_bytes() == before, "nothing is new, nothing is written otherwise"
    grow(directory, [NEWER, b"\xff not an entry", *[STEP] * 600])
    third = once(directory, memory)
    assert third.new == {"step": 600, "step v99": 1, FOREIGN: 1} and set(third.unknown) == {"step v99", FOREIGN}
    assert third.memory.kinds == {"step": 602, "weather v3": 1, "step v99": 1, FOREIGN: 1}


@pytest.mark.parametrize("sizes", [(1, 2), (3, 255, 256), (255, 257, 600), (256, 512, 513), (0, 1)])
def test_looks_add_up_whatever_their_number(tmp_path: Path, memory: Path, sizes: tuple[int, ...]) -> None:
    directory = make(tmp_path / "ledger", 0)
    found = once(directory, memory)
    for size in sizes:
        grow(directory, [STEP] * (size - LedgerDirectory(directory).checkpoint().size))
        found = once(directory, memory)
    assert sum(found.memory.kinds.values()) == sizes[-1]
    assert look(LedgerDirectory(directory), None, anchor=policy(), now=NOW).memory.kinds == found.memory.kinds


def fork(directory: Path, size: int) -> Path:
    with Log.create(directory, origin=ORIGIN, signer=LOG) as log:
        log.append(b"other %d" % number for number in range(size))
    return directory


@pytest.mark.parametrize("size", [200, 300, 301, 700])
def test_a_fork_or_a_roll_back_is_evidence_and_is_not_remembered(tmp_path: Path, memory: Path, size: int) -> None:
    once(make(tmp_path / "ledger", 300), memory)
    before = memory.read_bytes()
    other = fork(tmp_path / "fork", size)
    for _ in range(2):
        found = once(other, memory, now=NOW + 10)
        assert found.evidence is not None
        assert ("rolled back" if size < 300 else "rewritten") in found.evidence.statement
        assert found.evidence.held_signers == (ORIGIN,) == found.evidence.found_signers
        found.evidence.keep(tmp_path / found.evidence.name)
        assert memory.read_bytes() == before
    assert len(list(tmp_path.glob("ledger-evidence-*/held.note"))) == 1
    grow(tmp_path / "ledger", [STEP])
    assert once(tmp_path / "ledger", memory, now=NOW + 20).evidence is None, "the honest log goes on"


def test_an_older_copy_is_a_roll_back(tmp_path: Path, memory: Path) -> None:
    directory = make(tmp_path / "ledger", 300)
    shutil.copytree(directory, tmp_path / "older")
    grow(directory, [STEP])
    once(directory, memory)
    found = once(tmp_path / "older", memory)
    assert found.evidence and "entry 300 is gone" in found.evidence.statement


@pytest.mark.parametrize("path", ["tile/0/001.p/44", "tile/1/000.p/1", "tile/entries/001.p/45", "tile/0/001.p/45"])
def test_damage_is_no_fork(tmp_path: Path, memory: Path, path: str) -> None:
    """A byte of a tile or of a new entry: an error, which accuses nobody, or nothing where the file is not needed."""
    directory = make(tmp_path / "ledger", 300)
    once(directory, memory)
    before = memory.read_bytes()
    grow(directory, [STEP])
    content = bytearray((directory / path).read_bytes())
    content[-3] ^= 1
    (directory / path).write_bytes(content)
    try:
        found = once(directory, memory)
    except LedgerError as error:
        assert memory.read_bytes() == before
        assert "lead" in str(error)
    else:
        assert found.evidence is None and path == "tile/0/001.p/45"


def test_a_log_that_is_not_believed_is_an_error(tmp_path: Path, memory: Path) -> None:
    directory = make(tmp_path / "ledger", 5)
    with pytest.raises(LedgerError, match="the quorum is not met"):
        once(directory, memory, anchor=policy("dg.example"))
    cosigned(directory, tmp_path / "state", DG)
    assert once(directory, memory, anchor=policy("dg.example")).new
    with pytest.raises(LedgerError, match="no trusted key has signed"):
        look(LedgerDirectory(make(tmp_path / "other", 5, key=signer(7))), None, anchor=policy(), now=NOW)
    assert read_memory(memory, anchor=policy()) is not None


def test_silence_is_counted_from_the_last_new_checkpoint(tmp_path: Path, memory: Path) -> None:
    directory = make(tmp_path / "ledger", 5)
    assert once(directory, memory, patience=60).silent is None
    assert once(directory, memory, now=NOW + 60, patience=60).silent is None
    assert once(directory, memory, now=NOW + 61, patience=60).silent == 61
    assert once(directory, memory, now=NOW + 100).silent is None, "nobody asked"
    assert once(directory, memory, now=NOW + 100, patience=60).silent == 100
    grow(directory, [STEP])
    assert once(directory, memory, now=NOW + 101, patience=60).silent is None


def test_another_log_is_not_the_one_that_is_remembered(tmp_path: Path, memory: Path) -> None:
    once(make(tmp_path / "ledger", 5), memory)
    other = signer(1, name="example.com/other")
    with Log.create(tmp_path / "other", origin=other.name, signer=other) as log:
        log.append([entry(1)])
    anchor = Anchor().with_log(policy().logs[0]).with_quorum("none")
    with pytest.raises(LedgerError, match="no trusted key has signed"):
        once(tmp_path / "other", memory, anchor=anchor)


BAD_MEMORIES = {
    "not JSON": b"{",
    "a list": b"[]",
    "another format": b'{"format": "x"}',
    "no checkpoint": b'{"format": "explorer/monitor/v1", "seen": 1, "kinds": {}}',
    "a wrong time": b'{"format": "explorer/monitor/v1", "checkpoint": "x", "seen": "1", "kinds": {}}',
    "no note": b'{"format": "explorer/monitor/v1", "checkpoint": "x", "seen": 1, "kinds": {}}',
    "a wrong count": b'{"format": "explorer/monitor/v1", "checkpoint": "x", "seen": 1, "kinds": {"a": -1}}',
    "true for a count": b'{"format": "explorer/monitor/v1", "checkpoint": "x", "seen": 1, "kinds": {"a": true}}',
}


@pytest.mark.parametrize("name", BAD_MEMORIES)
def test_a_damaged_memory_is_an_error(memory: Path, name: str) -> None:
    memory.write_bytes(BAD_MEMORIES[name])
    with pytest.raises(LedgerError, match="memory"):
        read_memory(memory, anchor=policy())


def test_a_forged_memory_is_an_error(tmp_path: Path, memory: Path) -> None:
    """The checkpoint in it has to be signed by somebody who is believed; of the rest it is the monitor's own word."""
    once(make(tmp_path / "ledger", 5), memory)
    value = json.loads(memory.read_text())
    value["checkpoint"] = value["checkpoint"].replace("\n5\n", "\n4\n")
    memory.write_text(json.dumps(value))
    with pytest.raises(LedgerError, match="cannot be used: the signature"):
        read_memory(memory, anchor=policy())
