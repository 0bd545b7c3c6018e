"""The standalone verifier: what it finds in a sound pack, and that it runs where nothing of Explorer is."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from explorer.disclosure import verifier
from explorer.disclosure.pack import VERIFIER, write_pack
from explorer.provenance.trust import write_trust
from tests.audit import governed_run
from tests.disclosure.packs import faults, findings, governed, opened, packed
from tests.provenance.people import TODAY

ALONE = """
import builtins, runpy, sys
own = builtins.__import__
def guarded(name, *rest, **more):
    if name.partition(".")[0] == "explorer":
        raise ImportError("explorer is not here")
    return own(name, *rest, **more)
builtins.__import__ = guarded
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packs")


@pytest.fixture(scope="module")
def run(root: Path) -> Path:
    return governed(root)


@pytest.fixture(scope="module")
def pack(root: Path, run: Path) -> Path:
    write_pack(root / "run.pack", packed(run))
    write_trust(root / "trust.json", governed_run.trust())
    return root / "run.pack"


def alone(directory: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The program out of a pack, isolated: its own directory and what is installed with Python, but for Explorer."""
    (directory / VERIFIER).write_bytes(opened(Path(arguments[0]).read_bytes())[VERIFIER])
    command = [sys.executable, "-I", "-c", ALONE, directory / VERIFIER, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=directory, env={"PATH": os.environ["PATH"]})


def test_a_sound_pack_verifies_where_nothing_of_explorer_is(pack: Path, tmp_path: Path) -> None:
    done = alone(tmp_path, pack, "--trust", pack.parent / "trust.json", "--now", TODAY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "signature of the pack, by example.com/trainer" in done.stdout
    assert "example.com/trainer (trainer)" in done.stdout.partition("private keys on the host")[2]
    for words in ("the ledger was not rolled back", "explorer replay", "explorer conform", "numbers of open/mit"):
        assert words in done.stdout.partition("could not be checked")[2]
    assert done.stdout.endswith("everything that was checked holds\n")
    assert "is not the program that is running" not in done.stdout


def test_without_a_trust_file_nobody_is_believed(pack: Path, tmp_path: Path) -> None:
    done = alone(tmp_path, pack, "--now", TODAY)
    assert done.returncode == 1
    assert "no trust file was given" in done.stdout and done.stdout.endswith("NOT VERIFIED\n")
    assert "signed by" not in done.stdout.partition("could not")[0]


def test_the_copy_of_the_trust_file_in_the_pack_is_no_anchor(pack: Path) -> None:
    found = findings(pack.read_bytes(), believing=False)
    assert not found.failed and not any("sign" in what for what in found.checked)


def test_what_cannot_be_read_is_refused_in_words(pack: Path, tmp_path: Path) -> None:
    assert "cannot read" in alone(tmp_path, pack, "--trust", tmp_path / "absent.json").stdout
    assert "not a time" in alone(tmp_path, pack, "--now", "yesterday").stdout
    (tmp_path / "empty").write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-I", verifier.__file__, tmp_path / "empty"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stderr == "" and "not a pack" in done.stdout


def test_it_imports_the_standard_library_and_cryptography_alone() -> None:
    source = Path(verifier.__file__).read_text()
    names = {match[1] for match in re.finditer(r"^\s*(?:from|import) (\w+)", source, re.MULTILINE)}
    assert names - sys.stdlib_module_names == {"cryptography"}


def test_counts_are_those_of_the_run(run: Path, pack: Path) -> None:
    checked = findings(pack.read_bytes()).checked
    ledger = run / "ledger"
    entries = int((ledger / "checkpoint").read_text().split("\n")[1])
    assert checked["entries, in canonical form and in a possible order"] == entries
    blobs = sum(path.is_file() for path in (ledger / "blobs").rglob("*"))
    assert checked["blobs, each with the digest in its name and named by an entry"] == blobs
    assert sum(number for what, number in checked.items() if what.startswith("tags of")) == governed_run.ROWS
    assert checked["files, each with the digest in pack.json"] == len(opened(pack.read_bytes())) - 2


def test_another_program_in_the_pack_is_said_to_be_one(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.py"
    own.write_bytes(Path(verifier.__file__).read_bytes() + b"# mine\n")
    done = subprocess.run(
        [sys.executable, "-I", own, pack, "--trust", pack.parent / "trust.json", "--now", TODAY],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "is not the program that is running now" in done.stdout


def test_terminals_are_not_steered(root: Path, pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = root / "hostile.json"
    hostile.write_text(json.dumps({"\x1b[31mformat": 1}))
    assert verifier.main([str(pack), "--trust", str(hostile)]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_an_unfinished_run_is_called_so(tmp_path: Path) -> None:
    content = packed(governed(tmp_path, finished=False)).content
    assert not faults(content)
    assert any("does not end with 'end'" in each for each in findings(content).unchecked)


def test_more_than_a_tile_of_entries(tmp_path: Path) -> None:
    run = governed(tmp_path, steps=520, every=40)
    files = opened(packed(run).content)
    assert "ledger/tile/0/001" in files and any(name.startswith("ledger/tile/1/000.p/") for name in files)
    assert not faults(files)


@pytest.mark.parametrize("size", range(1, 70))
def test_the_tree_is_that_of_rfc_6962(size: int) -> None:
    from explorer import merkle

    leaves = [bytes([at]) * 32 for at in range(size)]
    tree = verifier.Tree(leaves)
    assert tree.root() == merkle.root_of(leaves)
    assert [tree.root(part) for part in range(size)] == [merkle.root_of(leaves[:part]) for part in range(size)]


def test_the_empty_tree() -> None:
    assert verifier.Tree([]).root().hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
