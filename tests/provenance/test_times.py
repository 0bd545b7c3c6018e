"""Moments in documents: one spelling, and nothing else."""

import pytest

from explorer.errors import ProvenanceError
from explorer.provenance.spellings import format_time, parse_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:00Z", 1767225600),
        ("2024-02-29T23:59:59Z", 1709251199),
        ("0001-01-01T00:00:00Z", -62135596800),
        ("9999-12-31T23:59:59Z", 253402300799),
    ],
)
def test_a_moment_there_and_back(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds
    assert format_time(seconds) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01t00:00:00z",
        "2026-01-01 00:00:00Z",
        "2026-01-01T00:00:00+00:00",
        "2026-01-01T00:00:00.5Z",
        "2026-01-01T00:00:00Z\n",
        "2026-1-01T00:00:00Z",
        "2025-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-06-30T23:59:60Z",
        "0000-01-01T00:00:00Z",
        "\uff12026-01-01T00:00:00Z",
    ],
)
def test_any_other_spelling_is_refused(text: str) -> None:
    with pytest.raises(ProvenanceError, match="expected UTC such as"):
        parse_time(text)


@pytest.mark.parametrize("seconds", [-62135596801, 253402300800, 2**63, -(2**63)])
def test_no_spelling_for_moments_beyond_the_years(seconds: int) -> None:
    with pytest.raises(ProvenanceError, match="years 1 to 9999"):
        format_time(seconds)
