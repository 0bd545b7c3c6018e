"""A whole sweep in a bucket of a server that fails: results, measurements and digests as undisturbed."""

from collections.abc import Iterator

import pytest

from explorer import objects as objects_module
from explorer.objects import open_objects
from explorer.place.leases import claims_of, take
from explorer.sweep.at_place import publish
from explorer.sweep.run_at import Worker, run_any
from tests.place.faulty_server import FaultyServer
from tests.sweep.sweeps import execute, outcomes, plan

pytestmark = pytest.mark.slow


@pytest.fixture
def faulty(s3_server: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    """The server of `bucket`, with half of all requests failing: more than the worst that is promised."""
    server = FaultyServer(s3_server, share=0.5)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setattr(objects_module, "PAUSES", (0.01,) * 20)
    yield server
    server.close()


def test_a_sweep_survives_a_store_that_fails(tmp_path, bucket, faulty):
    publish(plan(tmp_path / "planned"), bucket)
    ended = []
    run_any(Worker(place=bucket, engine="inline"), on_end=ended.append)
    assert [run.state for run in ended] == ["done"] * 4
    assert execute(tmp_path / "runs", place=bucket).complete
    assert execute(tmp_path / "calm").complete
    assert outcomes(tmp_path / "runs") == outcomes(tmp_path / "calm")
    assert min(faulty.failures.values()) >= 5, "the control: the store did fail, in both ways"
    objects = open_objects(bucket)
    assert all(len(claims_of(objects, run.run_id)) == 1 for run in ended), "no run was executed twice"


def test_a_claim_whose_answer_was_lost_is_held(bucket, faulty, monkeypatch):
    fates = iter(["answered", "lost", *["answered"] * 10])  # the listing, then the creation
    monkeypatch.setattr(faulty, "fate", lambda: next(fates))
    assert take(open_objects(bucket), "run", host="one", hardware="CPU") is not None
    assert take(open_objects(bucket), "run", host="two", hardware="CPU") is None
