"""The format's specification is the package's docstring; here its examples are read out of it and made again."""

import hashlib
import re
import shutil
import textwrap
from pathlib import Path

import pytest

import explorer.ledger
from explorer import merkle, note
from explorer.ledger.cosign import cosign
from explorer.ledger.log import Log
from explorer.ledger.proof import check_proof, make_proof, parse_proof
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.trust_anchor import anchor_of
from explorer.ledger.verify import verify
from explorer.note import Algorithm, Verifier
from tests.ledger.signers import signer

SPECIFICATION = explorer.ledger.__doc__ or ""
TIME = 1_700_000_000
WITNESS = signer(2, name="witness.example/dg", algorithm=Algorithm.COSIGNATURE)
PROOF = "1.tlog-proof"


def section(title: str) -> str:
    """The text under a heading."""
    found = re.search(rf"^{title}\n-+\n\n(.*?)(?=^[^\n]+\n---|\Z)", SPECIFICATION, re.M | re.S)
    assert found, title
    return found[1]


def indented(text: str) -> list[str]:
    """The indented blocks, each with its empty lines, ending in a newline."""
    blocks = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", text, re.M)
    return [textwrap.dedent(block).rstrip("\n") + "\n" for block in blocks]


def files() -> dict[str, bytes]:
    """The files of the worked example, by path."""
    parts = re.split(r"^(\S+) \((text|hexadecimal)\):\n", section("A worked example"), flags=re.M)
    found = {}
    for path, kind, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        content = indented(text)[0]
        found[path] = content.encode() if kind == "text" else bytes.fromhex(content)
    return found


def entries() -> list[bytes]:
    return [line.encode() for line in indented(section("A worked example"))[0].splitlines()]


def written(directory: Path) -> Path:
    """The ledger of the example, written by the writer and cosigned by the cosigner."""
    log_key = signer(1, name="example.com/run")
    with Log.create(directory / "a", origin=log_key.name, signer=log_key) as log:
        log.write_blob(files()[next(path for path in files() if path.startswith("blobs/"))])
        log.append(entries())
    anchor = anchor_of([log_key.verifier.vkey])
    assert cosign(directory / "a", signer=WITNESS, state=directory / "state", anchor=anchor, now=TIME).path
    return directory / "a"


def test_the_worked_example_byte_for_byte(tmp_path: Path) -> None:
    directory = written(tmp_path)
    made = {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
    made.pop(".lock")
    made[PROOF] = make_proof(LedgerDirectory(directory), 1).content
    assert made == files()
    assert len(made) == 6


def test_the_example_without_any_of_our_code() -> None:
    """By the words of the specification alone."""
    stored = files()
    assert stored["tile/entries/000.p/3"] == b"".join(len(e).to_bytes(2, "big") + e for e in entries())
    first, second, third = (hashlib.sha256(b"\x00" + entry).digest() for entry in entries())
    assert stored["tile/0/000.p/3"] == first + second + third
    node = hashlib.sha256(b"\x01" + first + second).digest()
    root = hashlib.sha256(b"\x01" + node + third).digest()
    assert parse_checkpoint(note.parse(stored["checkpoint"]).text).root == root
    (blob,) = (path for path in stored if path.startswith("blobs/"))
    assert blob.endswith(hashlib.sha256(stored[blob]).hexdigest()) and blob[-64:].encode() in entries()[2]


def test_the_example_as_it_stands_there_verifies(tmp_path: Path) -> None:
    """The files of the docstring, put into a directory; and the control, one byte of each changed."""
    stored = files()
    proof = parse_proof(stored.pop(PROOF), where=PROOF)
    anchor = anchor_of([signer(1, name="example.com/run").verifier.vkey, WITNESS.verifier.vkey])
    assert check_proof(proof, entries()[1], anchor=anchor, now=TIME)
    for path, content in stored.items():
        (tmp_path / "a" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / path).write_bytes(content)
    assert verify(tmp_path / "a", anchor=anchor, now=TIME).ok
    for path, content in stored.items():
        (tmp_path / "a" / path).write_bytes(content[:2] + bytes([content[2] ^ 1]) + content[3:])
        assert not verify(tmp_path / "a", anchor=anchor, now=TIME).ok, path
        (tmp_path / "a" / path).write_bytes(content)
    assert verify(tmp_path / "a", anchor=anchor, now=TIME).ok


def test_the_known_answers() -> None:
    roots, signed, vkeys = indented(section("Known answers"))
    leaves = [b"", *(bytes.fromhex(text) for text in ("00", "10", "2021", "3031", "40414243", "5051525354555657"))]
    leaves.append(bytes.fromhex("606162636465666768696a6b6c6d6e6f"))
    for size, root in (line.split() for line in roots.splitlines()):
        found = merkle.root_of(merkle.leaf_hash(leaf) for leaf in leaves[: int(size)])
        assert found.hex() == root
    checkpoint = Checkpoint(
        origin="example.com/explorer-kat", size=8, root=merkle.root_of(map(merkle.leaf_hash, leaves))
    )
    log_key = signer(1, name="example.com/explorer-kat")
    made = note.sign(checkpoint.text, log_key)
    assert note.with_signatures(made, [WITNESS.sign(checkpoint.text, time=TIME)]).content.decode() == signed
    assert vkeys.splitlines() == [log_key.verifier.vkey, WITNESS.verifier.vkey]
    assert len(note.verify(note.parse(signed.encode()), map(Verifier.parse, vkeys.splitlines()))) == 2


@pytest.mark.parametrize("name", ("layout", "crash"))
def test_every_file_that_the_writer_leaves_is_in_the_layout(tmp_path: Path, name: str) -> None:
    """After a quiet life and after a crash."""
    directory = written(tmp_path)
    with Log.open(directory, signer=signer(1, name="example.com/run")) as log:
        log.append(b"%d" % number for number in range(300))
    if name == "crash":
        shutil.copy(directory / "checkpoint", directory / ".checkpoint.1.tmp")
        (directory / "tile/0/002").write_bytes(b"half")
        Log.open(directory, signer=signer(1, name="example.com/run")).close()
    lines = indented(section("Layout"))[0].splitlines()
    patterns = [re.split(r" {2,}", line)[0] for line in lines]
    expressions = [
        re.escape(pattern)
        .replace("<level>", "[0-9]+").replace("<number>", "(x[0-9]{3}/)*[0-9]{3}").replace("<width>", "[0-9]+")
        .replace("<xx>", "[0-9a-f]{2}").replace("<digest>", "[0-9a-f]{64}").replace("<name>", ".+")
        .replace("<key\\ id>", "[0-9a-f]{8}").replace("<n>", "[0-9]+").replace(r"\.\.\.", ".+")
        for pattern in patterns
    ]  # fmt: skip
    present = [path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()]
    assert len(present) > 10
    assert [path for path in present if not any(re.fullmatch(each, path) for each in expressions)] == []
    assert any(path.startswith("unsigned/") for path in present) == (name == "crash")
