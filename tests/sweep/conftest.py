"""Kernels that a test started through `perform` end with its file."""

from collections.abc import Iterator

import pytest

from explorer.sweep.work import close_engines


@pytest.fixture(autouse=True, scope="module")
def _no_kernel_is_left() -> Iterator[None]:
    yield
    close_engines()
