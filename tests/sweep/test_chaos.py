"""Ten rounds of `benchmarks/chaos.py`."""

from pathlib import Path

import pytest

from benchmarks.chaos import rounds


@pytest.mark.slow
def test_ten_rounds_change_nothing(tmp_path: Path):
    report = rounds(10, tmp_path)
    assert report.done.total() >= 10
    assert (report.different, report.findings) == (0, 0)
    assert report.attempts > report.runs - report.aside, "the control: workers did lose runs"
