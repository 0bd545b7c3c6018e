"""Other people's code reads what we write: Go's transparency-log packages, out of the Go distribution itself."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from explorer.ledger.log import Log
from tests.ledger.signers import ORIGIN, entry, signer

PROGRAM = Path(__file__).with_name("interop.go")


def go(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    environment |= {"GOPATH": str(directory / "path"), "GOCACHE": str(directory / "cache")}
    return subprocess.run(
        ["go", *arguments], cwd=directory, env=environment, capture_output=True, text=True, timeout=600
    )


@pytest.fixture
def verifier(tmp_path: Path) -> Path:
    """The program, built from golang.org/x/mod as the `go` command carries it."""
    if not shutil.which("go"):
        pytest.skip("needs Go")
    place = tmp_path / "go"
    place.mkdir()
    carried = Path(go(place, "env", "GOROOT").stdout.strip()) / "src/cmd/vendor/golang.org/x/mod/sumdb"
    for package in ("note", "tlog"):
        shutil.copytree(carried / package, place / package)
    shutil.copy(PROGRAM, place / "main.go")
    version = ".".join(go(place, "env", "GOVERSION").stdout.strip().removeprefix("go").split(".")[:2])
    (place / "go.mod").write_text(f"module interop\n\ngo {version}\n")
    built = go(place, "build", "-o", "interop", ".")
    assert built.returncode == 0, built.stderr
    return place / "interop"


@pytest.mark.slow
def test_go_reads_our_ledgers(tmp_path: Path, verifier: Path) -> None:
    """Of sizes around the edges of tiles; and the control, a byte of a tile and of a bundle changed."""
    directory, key = tmp_path / "a", signer().verifier.vkey

    def verified() -> subprocess.CompletedProcess[str]:
        return subprocess.run([verifier, directory, key, tmp_path / "old"], capture_output=True, text=True, timeout=600)

    with Log.create(directory, origin=ORIGIN, signer=signer()) as log:
        old = 0
        for size in (1, 255, 256, 257, 5_000, 65_536, 70_000):
            log.append(entry(number) for number in range(log.size, size))
            log.commit()
            if old:
                assert verified().stdout == f"{size} entries agree; extends {old}\n", verified().stderr
            old = size
            shutil.copy(directory / "checkpoint", tmp_path / "old")
    for path, message in (("tile/0/003", "inconsistent tile"), ("tile/entries/003", "entry [0-9]+ is not the one")):
        whole = (directory / path).read_bytes()
        (directory / path).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        found = verified()
        assert found.returncode == 1 and re.search(message, found.stderr)
        (directory / path).write_bytes(whole)
