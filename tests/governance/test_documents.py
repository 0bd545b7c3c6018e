"""The documents of a run: where they are read, and the copies that the run keeps."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from explorer.errors import ProvenanceError, RunError
from explorer.governance.credentials import check
from explorer.governance.documents import keep, read_copies, read_documents
from tests.governance import desk
from tests.provenance.people import NOW


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return desk.make(tmp_path / "desk")


def test_a_run_keeps_copies_that_say_the_same(documents: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    keep(desk.read(documents), run)
    assert sorted(path.name for path in (run / "governance").iterdir()) == [
        "policy.json",
        "source.json",
        "tags.json",
        "tags.parquet",
        "taxonomy.json",
        "trust.json",
    ]
    copies = read_copies(run)
    assert copies == replace(desk.read(documents), where=run / "governance", table=run / "governance" / "tags.parquet")
    assert check(copies, desk.SPLIT).identity == check(desk.read(documents), desk.SPLIT).identity


def test_private_documents_stay_where_they_are(documents: Path, tmp_path: Path) -> None:
    keep(desk.read(documents), tmp_path / "run")
    secret = (documents / "salts").read_bytes()[32:64]
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or (secret not in path.read_bytes() and b"PRIVATE KEY" not in path.read_bytes())


def test_a_run_without_a_policy_keeps_none(documents: Path, tmp_path: Path) -> None:
    keep(desk.read(documents, None), tmp_path / "run")
    assert not (tmp_path / "run" / "governance" / "policy.json").exists()
    assert read_copies(tmp_path / "run").policy is None


def test_what_a_run_was_begun_with_stays(documents: Path, tmp_path: Path) -> None:
    """Kept again later, from a place where the documents have changed: judged as before, by the documents of then."""
    run = tmp_path / "run"
    keep(desk.read(documents), run)
    moved = documents.rename(tmp_path / "moved")
    (moved / "trust.json").write_text("{}")
    keep(desk.read(moved, now=NOW + 100), run)
    copies = read_copies(run)
    assert (copies.judged, copies.private) == (NOW, moved.resolve())
    assert copies.trust != b"{}"
    assert check(copies, desk.SPLIT).classes


def test_a_copy_that_was_cut_short_is_made_again(documents: Path, tmp_path: Path) -> None:
    """`source.json` comes last: without it nothing was kept."""
    run = tmp_path / "run"
    keep(desk.read(documents), run)
    (run / "governance" / "source.json").unlink()
    (run / "governance" / "tags.parquet").write_bytes(b"half")
    keep(desk.read(documents), run)
    assert check(read_copies(run), desk.SPLIT).classes


@pytest.mark.parametrize("name", ["../usual", "/etc/passwd", "usual/../usual", "", "Usual", "a" * 65])
def test_the_name_of_a_policy_is_no_path(documents: Path, name: str) -> None:
    with pytest.raises(ProvenanceError, match=r"policies: unknown policy .* known: lenient, usual"):
        read_documents(documents, policy=name, now=NOW)


def test_an_unknown_policy_is_told_with_the_nearest(documents: Path) -> None:
    with pytest.raises(ProvenanceError, match=r"unknown policy 'usuall'; did you mean 'usual'\?"):
        read_documents(documents, policy="usuall", now=NOW)


def test_what_is_not_there(documents: Path, tmp_path: Path) -> None:
    with pytest.raises(ProvenanceError, match=r"governance: .*nowhere: no such directory; it holds trust.json"):
        read_documents(tmp_path / "nowhere", policy=None, now=NOW)
    (documents / "taxonomy.json").unlink()
    with pytest.raises(ProvenanceError, match=r"cannot read .*taxonomy.json"):
        desk.read(documents)


@pytest.mark.parametrize("content", ["[]", "{}", '{"private": 1, "judged": 2}', '{"private": "x", "judged": 1.5}'])
def test_a_damaged_source(documents: Path, tmp_path: Path, content: str) -> None:
    keep(desk.read(documents), tmp_path / "run")
    (tmp_path / "run" / "governance" / "source.json").write_text(content)
    with pytest.raises(RunError, match=r"source.json"):
        read_copies(tmp_path / "run")
    with pytest.raises(RunError, match=r"source.json"):
        keep(desk.read(documents), tmp_path / "run")


def test_the_source_says_where_and_when(documents: Path, tmp_path: Path) -> None:
    keep(desk.read(documents), tmp_path / "run")
    found = json.loads((tmp_path / "run" / "governance" / "source.json").read_text())
    assert found == {"private": str(documents.resolve()), "judged": NOW}
