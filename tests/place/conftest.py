"""Places for tests: a directory, and a bucket of an S3 server on loopback."""

import os
from collections.abc import Iterator

import pytest

from explorer.place.objects import Objects
from explorer.place.opened import open_objects


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server of this test session. A test that asks for it is skipped without `moto`."""
    server_of = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'explorer[peers]'")
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'explorer[cloud]'")
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty place in a bucket; credentials and address are in the usual variables."""
    boto3 = pytest.importorskip("boto3")
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{os.urandom(6).hex()}"
    boto3.client("s3", endpoint_url=s3_server).create_bucket(Bucket=name)
    return f"s3://{name}/runs/mine"


@pytest.fixture(params=["directory", pytest.param("bucket", marks=pytest.mark.slow)])
def objects(request: pytest.FixtureRequest, tmp_path) -> Objects:
    """Both kinds of place, which keep the same promises."""
    return open_objects(str(tmp_path / "place") if request.param == "directory" else request.getfixturevalue("bucket"))
