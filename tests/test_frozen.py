"""What version 0.1.0 wrote is read and verified by today's code, with the verdicts of then; one changed byte fails it.

The files are described in `tests/frozen/make.py`. Wording may change: texts with a space in them are not compared.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import warnings
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import explorer as package
from explorer.disclosure import verifier
from explorer.errors import AnalysisError
from explorer.views.explorer.question import Question, from_token, to_token
from tests.cli.command import Done, explorer
from tests.frozen.make import (
    ARCHIVE,
    HERE,
    MANIFEST,
    NOT_KEPT,
    QUESTION,
    RUN,
    TRUST,
    VERBS,
    VERDICTS,
    resolve,
    values,
    write_private,
)

MANIFESTED = json.loads((HERE / MANIFEST).read_text())
ANSWERED = json.loads((HERE / VERDICTS).read_text())
PUBLIC = json.loads((HERE / "public.json").read_text())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The frozen project, unpacked. Nothing but the database is written to it."""
    place = tmp_path_factory.mktemp("frozen")
    with tarfile.open(HERE / ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    write_private(place / "governed" / "trainer.pem", "trainer")
    return place


@pytest.fixture
def copy(project: Path, tmp_path: Path) -> Path:
    """A copy of the frozen project, to be changed."""
    return Path(shutil.copytree(project, tmp_path / "project", ignore=shutil.ignore_patterns(*NOT_KEPT)))


def ask(project: Path, name: str) -> Done:
    """Ask a project one of the questions whose answers are frozen."""
    return explorer(*(resolve(project, argument) for argument in VERBS[name]), "--json", cwd=project)


def facts(value: Any) -> Any:
    """Return an answer without its wording: every text with a space in it is replaced."""
    if isinstance(value, dict):
        return {name: facts(item) for name, item in value.items()}
    if isinstance(value, list):
        return [facts(item) for item in value]
    return "(words)" if isinstance(value, str) and " " in value else value


def flip(path: Path) -> None:
    """Change one byte in the middle of a file, to another letter or digit where it is text."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    while path.suffix != ".safetensors" and not chr(content[middle]).isalnum():
        middle += 1
    content[middle] = ord("0") if content[middle] != ord("0") else ord("1")
    path.write_bytes(content)


def test_the_frozen_files_are_those_of_then(project: Path) -> None:
    assert {name: hashlib.sha256((project / name).read_bytes()).hexdigest() for name in MANIFESTED} == MANIFESTED


@pytest.mark.parametrize("name", VERBS)
def test_the_answer_is_that_of_then(project: Path, name: str) -> None:
    done = ask(project, name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert facts(values(done.stdout)) == facts(ANSWERED[name])


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("ledger", f"{RUN}/ledger/tile/entries/000.p/15"),
        ("project ledger", "runs/_audit/tile/entries/000.p/4"),
        ("entries", f"{RUN}/ledger/tile/entries/000.p/15"),
        ("conform", f"{RUN}/governance/tags.json"),
        ("certificate by structure", "deleted-G2/*/certificate.json"),
        ("certificate by structure", "deleted-G2/*/model/model.safetensors"),
        ("certificate by replay", "deleted-G3/*/certificate.json"),
        ("gate", f"{RUN}/model/attestation.json"),
        ("gate", f"{RUN}/model/model.safetensors"),
        ("usage", "usage/whole.json"),
        ("results", "runs/frozen/resnet8-digits-smooth-ssr1-s0-*/result.json"),
    ],
)
def test_one_changed_byte_changes_the_answer(copy: Path, name: str, changed: str) -> None:
    flip(copy / resolve(copy, changed))
    done = ask(copy, name)
    assert done.returncode != 0 or facts(values(done.stdout)) != facts(ANSWERED[name])


def test_without_the_key_nothing_can_be_deleted(copy: Path) -> None:
    done = ask(copy, "delete plan")
    (obstacle,) = json.loads(done.stdout)["obstacles"]
    assert done.returncode == 1 and obstacle.startswith("governed/trainer.pem: missing")


def test_a_deletion_finds_the_key_where_it_is_now(copy: Path) -> None:
    (copy / "moved").mkdir()
    write_private(copy / "moved" / "trainer.pem", "trainer")
    _, _, run, target, *_ = (resolve(copy, argument) for argument in VERBS["delete plan"])
    done = explorer("delete", "run", run, target, "--out", "new", cwd=copy)
    assert done.returncode == 1 and "trainer.pem: missing" in done.stderr
    done = explorer("delete", "run", run, target, "--out", "new", "--governance", "moved", cwd=copy)
    assert done.returncode == 0 and "made, and not certified yet" in done.stdout, done.stderr


@pytest.mark.parametrize("program", ["its own", "today's"])
def test_a_stranger_verifies_the_pack(project: Path, tmp_path: Path, program: str) -> None:
    verify = Path(verifier.__file__)
    if program == "its own":
        shutil.unpack_archive(project / "audit.pack.zip", tmp_path / "audit")
        verify = tmp_path / "audit" / "verify.py"
    key = write_private(tmp_path / "reader.pem", "reader")
    assert stranger(verify, project / "audit.pack.zip", key, cwd=project) == 0
    changed = Path(shutil.copy(project / "audit.pack.zip", tmp_path))
    flip(changed)
    assert stranger(verify, changed, key, cwd=project) == 1


def stranger(verify: Path, pack: Path, key: Path, *, cwd: Path) -> int:
    """Run the standalone verifier as somebody who has nothing else of this project."""
    command = [sys.executable, "-I", verify, pack, *TRUST, "--key", key]
    return subprocess.run(command, cwd=cwd, capture_output=True, timeout=600).returncode


@pytest.mark.parametrize("suffix", ["csv", "md", "parquet"])
def test_the_export_of_the_runs_is_that_of_then(project: Path, tmp_path: Path, suffix: str) -> None:
    assert explorer("store", "ingest", cwd=project).returncode == 0
    new, old = tmp_path / f"results.{suffix}", project / f"results.{suffix}"
    assert explorer("store", "export", new, cwd=project).returncode == 0
    if suffix == "parquet":
        assert pq.read_table(new).equals(pq.read_table(old))
    else:
        assert new.read_bytes() == old.read_bytes()


@pytest.mark.parametrize("kind", ["json", "md", pytest.param("html", marks=pytest.mark.slow)])
@pytest.mark.parametrize("subject", ["run", "sweep"])
def test_the_report_says_what_it_said(project: Path, tmp_path: Path, subject: str, kind: str) -> None:
    asked = ("report", resolve(project, RUN), *TRUST) if subject == "run" else ("report", "frozen")
    out = tmp_path / f"{subject}_report.{kind}"
    done = explorer(*asked, "--format", kind, "--out", out, cwd=project)
    assert done.returncode == 0, done.stderr
    new, old = out.read_text(), (project / out.name).read_text()
    # A later report may say more. It loses no number, no field and no section, and changes no value.
    if kind == "md":
        assert numbers(old) and numbers(old) <= numbers(new)
    elif kind == "html":
        assert anchors(old) and [anchor for anchor in anchors(new) if anchor in anchors(old)] == anchors(old)
    else:
        assert what_differs(content(old), content(new)) == []


def what_differs(old: Any, new: Any, at: str = "") -> list[str]:
    """Return the places where a later document lacks a field of this one, or has another value."""
    if isinstance(old, dict) and isinstance(new, dict):
        lost = [f"{at}.{key}" for key in old if key not in new]
        return lost + [place for key in old if key in new for place in what_differs(old[key], new[key], f"{at}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [place for index, (one, other) in pairs for place in what_differs(one, other, f"{at}[{index}]")]
    return [] if old == new else [at]


def test_a_lost_field_and_another_value_are_noticed() -> None:
    old = {"a": [1, {"b": 2}], "c": None}
    assert what_differs(old, {**old, "d": 3}) == []
    assert what_differs(old, {"a": [1, {"b": 3}]}) == [".c", ".a[1].b"]
    assert what_differs(old, {"a": [1], "c": None}) == [".a"]


def content(text: str) -> Any:
    """Return what a report in JSON says, but for when it was made and of which bytes of the database."""
    return facts(json.loads(text)) | {"made": None, "database_sha256": None}


def numbers(text: str) -> Counter[str]:
    """Count the numbers of a page, without times and digests; wording decides their order and names the confidence."""
    kept = re.sub(r"\d{4}-\d\d-\d\dT\S+Z|[0-9a-f]{64}|95% interval", "", text)
    return Counter(re.findall(r"\d+(?:[.,:]\d+)*", kept))


def anchors(text: str) -> list[str]:
    """Return what a page can be linked to by."""
    return re.findall(r'<(?:section|h\d)[^>]* id="([^"]+)"', text)


def test_a_changed_run_has_another_report(copy: Path, tmp_path: Path) -> None:
    flip(copy / resolve(copy, f"{RUN}/ledger/tile/entries/000.p/15"))
    out = tmp_path / "report.json"
    done = explorer("report", resolve(copy, RUN), *TRUST, "--format", "json", "--out", out, cwd=copy)
    assert done.returncode != 0 or content(out.read_text()) != content((copy / "run_report.json").read_text())


def test_the_token_opens_the_same_view(project: Path) -> None:
    token = (project / "token").read_text()
    question = from_token(token)
    assert question == Question(**QUESTION)  # pyright: ignore[reportArgumentType]
    assert from_token(to_token(question)) == question, "it is passed on as text that people read"
    with pytest.raises(AnalysisError):
        from_token(token[:-1] + ("a" if token[-1] != "a" else "b"))


@pytest.mark.parametrize("module", PUBLIC)
def test_what_was_public_is_imported_by_its_old_path(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        there = import_module(module)
    for name in PUBLIC[module]:
        assert hasattr(there, name), f"{module}.{name}"


def test_completion_shows_what_it_showed() -> None:
    added = ["begin", "functional", "track"]  # since then
    assert dir(package) == sorted([*PUBLIC["explorer"], *added])
