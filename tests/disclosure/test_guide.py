"""The guide for auditors, every command of it, where there is nothing but Python and `cryptography`."""

import hashlib
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from explorer.disclosure import verifier
from explorer.disclosure.pack import write_pack
from explorer.provenance.trust import write_trust
from tests.audit import governed_run
from tests.audit.governed_run import NEWS
from tests.disclosure.granted import READER, confidential_run, granted
from tests.disclosure.packs import packed

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "explorer" / "disclosure" / "README.md"
DIGEST = ROOT / "explorer" / "disclosure" / "verifier.sha256"
NEEDED = ("cryptography", "cffi", "_cffi_backend", "pycparser")


def own_digest() -> str:
    return hashlib.sha256(Path(verifier.__file__).read_bytes()).hexdigest()


def test_the_published_digest_is_that_of_the_program() -> None:
    """After a change: cd explorer/disclosure && sha256sum verifier.py > verifier.sha256"""
    assert DIGEST.read_text() == f"{own_digest()}  verifier.py\n"


def test_the_guide_names_the_version_that_it_is_part_of() -> None:
    version = importlib.metadata.version("explorer")
    assert f"explorer=={version}" in GUIDE.read_text() and f"explorer-{version}-py3" in GUIDE.read_text()


def commands() -> list[str]:
    return [line for block in re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.S) for line in block.splitlines()]


def build_wheel(to: Path) -> None:
    """The package as it is published, from a copy of its sources."""
    source = to / "source"
    shutil.copytree(ROOT / "explorer", source / "explorer", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", to, source]
    subprocess.run(build, check=True, capture_output=True, cwd=to)


def install_cryptography(environment: Path) -> None:
    """What `pip install cryptography` does, without a network: that package and what it needs, and no other."""
    site = next((environment / "lib").glob("python3*")) / "site-packages"
    for name in NEEDED:
        if (found := importlib.util.find_spec(name)) and found.origin:
            path = Path(found.origin).parent if found.submodule_search_locations else Path(found.origin)
            (site / path.name).symlink_to(path)


@pytest.mark.slow
def test_every_command_of_the_guide(tmp_path: Path) -> None:
    place, wheels = tmp_path / "desk", tmp_path / "registry"
    place.mkdir()
    wheels.mkdir()
    build_wheel(wheels)
    run = confidential_run(tmp_path / "run")
    write_pack(place / "run.pack.zip", packed(run, grants={"2026-0007": granted(run)}))
    write_trust(place / "trust.json", governed_run.trust())
    key = READER.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (place / "reader.pem").write_bytes(key)
    (place / "explorer").mkdir()  # a trap for a program that imports from its directory
    (place / "explorer" / "__init__.py").write_text("raise SystemExit('imported')")
    (place / "hashlib.py").write_text("raise SystemExit('imported')")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"PATH": path, "HOME": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    said: dict[str, str] = {}
    for command in commands():
        if command.endswith("pip install cryptography"):
            install_cryptography(place / "auditor")
            continue
        if command.startswith("auditor/bin/python -I verify.py"):
            command = f"{command} --now 2026-06-01T00:00:00Z"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=place, env=env, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        said[command] = done.stdout
    digest, plain, granted_ = (
        next(said[each] for each in said if words in each) for words in ("-c ", "json --n", "--key")
    )
    assert digest.strip() == own_digest()
    assert plain.endswith("everything that was checked holds\n")
    assert f"numbers of {NEWS}, each compared with the commitment of its entry" in granted_
    assert (place / "run.checkpoint").read_bytes() == (run / "ledger" / "checkpoint").read_bytes()
    alone = [place / "auditor" / "bin" / "python", "-I", "-c", "import explorer"]
    assert subprocess.run(alone, capture_output=True, cwd=place, check=False).returncode != 0
