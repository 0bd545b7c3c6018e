"""Places for tests: a directory, and a bucket of an S3 server on loopback."""

import pytest

from explorer.objects import Objects, open_objects


@pytest.fixture(params=["directory", pytest.param("bucket", marks=pytest.mark.slow)])
def objects(request: pytest.FixtureRequest, tmp_path) -> Objects:
    """Both kinds of place, which keep the same promises."""
    return open_objects(str(tmp_path / "place") if request.param == "directory" else request.getfixturevalue("bucket"))
