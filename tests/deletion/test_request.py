"""The request: a commitment is kept, and the text nowhere."""

import json
from pathlib import Path

import pytest

from explorer.deletion.request import FILE, keep_request, read_request
from explorer.errors import ProvenanceError
from explorer.provenance.commitments import commit


def test_what_is_kept_commits_to_the_text_and_does_not_hold_it(tmp_path: Path) -> None:
    assert read_request(tmp_path) is None
    made = keep_request(tmp_path, "Forget Ada")
    path = tmp_path / FILE
    assert b"Ada" not in path.read_bytes() and path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    salt = bytes.fromhex(json.loads(path.read_text())["salt"])
    assert made == commit(salt, b"Forget Ada").hex() == read_request(tmp_path) == keep_request(tmp_path, "Forget Ada")


def test_the_same_text_has_another_commitment_elsewhere(tmp_path: Path) -> None:
    """Nobody who reads two certificates can tell that they answer one person."""
    (tmp_path / "other").mkdir()
    assert keep_request(tmp_path, "Forget Ada") != keep_request(tmp_path / "other", "Forget Ada")


def test_another_text_is_refused(tmp_path: Path) -> None:
    keep_request(tmp_path, "Forget Ada")
    with pytest.raises(ProvenanceError, match="answers another request"):
        keep_request(tmp_path, "Forget Bob")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format":"explorer/request/v2"}', b"x" * 5000])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ProvenanceError, match=FILE):
        read_request(tmp_path)
