"""The table in the docs is what running gives."""

import re

import pytest

from tests.architectures.models import ARCHITECTURES
from tests.architectures.table import PAGE, page, row

TEXT = PAGE.read_text(encoding="utf-8")


def test_rows_are_what_surgery_does_here() -> None:
    here = [architecture for architecture in ARCHITECTURES if not architecture.library]
    reasons = re.findall(r"^\d+\. (.*)$", TEXT, re.MULTILINE)
    told = list(reasons)
    assert [architecture.name for architecture in here if row(architecture, reasons) not in TEXT.splitlines()] == []
    assert reasons == told


@pytest.mark.slow  # needs packages that `.ci/run` installs for slow tests
def test_the_page_is_what_running_gives() -> None:
    if missing := [architecture.library for architecture in ARCHITECTURES if not architecture.is_here]:
        pytest.skip(f"{missing[0]} is not installed")
    assert page() == TEXT, "run `python -m tests.architectures.table`"
