"""Checkpoints: the known answer, and what is none."""

import pytest

from explorer.errors import LedgerError
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.merkle import EMPTY_ROOT

ROOT = bytes.fromhex("5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328")
TEXT = "example.com/explorer-kat\n8\nXcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=\n"


def test_the_known_answer() -> None:
    known = Checkpoint(origin="example.com/explorer-kat", size=8, root=ROOT)
    assert known.text == TEXT
    assert parse_checkpoint(TEXT) == known


def test_extension_lines_are_kept() -> None:
    found = parse_checkpoint(TEXT + "one\ntwo lines\n")
    assert found.extensions == ("one", "two lines")
    assert found.text == TEXT + "one\ntwo lines\n"


@pytest.mark.parametrize(
    "origin", ("go.sum database tree", "rekor.sigstore.dev - 2605736670972794746", "example.com/a+b", "a\u200bb")
)
def test_an_origin_is_any_line_of_text(origin: str) -> None:
    """The first two are those of logs in use; only the names of keys are without space and plus."""
    text = TEXT.replace("example.com/explorer-kat", origin)
    assert parse_checkpoint(text).origin == origin
    assert parse_checkpoint(text).text == text


BAD = {
    "nothing": ("", "expected three lines"),
    "no root": ("a\n8\n", "expected three lines"),
    "no newline": (TEXT[:-1], "expected three lines"),
    "no origin": (TEXT.replace("example.com/explorer-kat", ""), "not an origin"),
    "a control character in the origin": (TEXT.replace("explorer-kat", "a\tb"), "not an origin"),
    "a long origin": (TEXT.replace("explorer-kat", "a" * 1_000), "expected a line of 1 to 1000 characters"),
    "a leading zero": (TEXT.replace("\n8\n", "\n08\n"), "line 2 .* not a size: '08'"),
    "a sign": (TEXT.replace("\n8\n", "\n+8\n"), "not a size"),
    "other digits": (TEXT.replace("\n8\n", "\n\u0668\n"), "not a size"),
    "an underscore": (TEXT.replace("\n8\n", "\n1_0\n"), "not a size"),
    "too large": (TEXT.replace("\n8\n", "\n9223372036854775808\n"), "size 9223372036854775808"),
    "a long number": (TEXT.replace("\n8\n", f"\n{'9' * 5000}\n"), "not a size"),
    "not base64": (TEXT.replace("Xcna", "X na"), "line 3 .* not a root"),
    "not ASCII": (TEXT.replace("Xcna", "Xcné"), "line 3 .* not a root"),
    "not canonical": (TEXT.replace("Qyg=", "Qyh="), "not canonical base64"),
    "too short": ("a\n8\nXcnaeacGWamtVZy3Ad7Zog==\n", "32 bytes, found 16"),
    "an empty extension": (TEXT + "\nmore\n", "extension line"),
    "an empty last line": (TEXT + "\n", "extension line"),
    "another empty root": (TEXT.replace("\n8\n", "\n0\n"), "size 0 with root"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_checkpoint(name: str) -> None:
    text, message = BAD[name]
    with pytest.raises(LedgerError, match=message):
        parse_checkpoint(text)


@pytest.mark.parametrize("size", (-1, 2**63))
def test_a_size_that_no_log_has(size: int) -> None:
    with pytest.raises(LedgerError, match="a checkpoint of size"):
        Checkpoint(origin="a", size=size, root=ROOT)


def test_an_extension_cannot_smuggle_in_a_line() -> None:
    with pytest.raises(LedgerError, match="extension line"):
        Checkpoint(origin="a", size=1, root=ROOT, extensions=("two\nlines",))
    assert Checkpoint(origin="a", size=0, root=EMPTY_ROOT).text.startswith("a\n0\n47DEQ")
