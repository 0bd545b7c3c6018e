"""Claims: one holder at a time, taken over after its lease, and a history of what happened to a run."""

import time
from typing import Any

import pytest

from explorer.errors import PlaceError
from explorer.objects import DirectoryObjects
from explorer.place import leases
from explorer.place.leases import claims_of, end, forgive, held, key_of, losses, read_claim, take, waits_until


@pytest.fixture
def place(tmp_path) -> DirectoryObjects:
    return DirectoryObjects(tmp_path / "place")


class Clock:
    """A clock that a test sets."""

    now = 1_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(leases.time, "time", clock.time)
    return clock


def claimed(place, host="one", **settings) -> Any:
    return take(place, "run", host=host, hardware="CPU", **settings)


def test_a_run_has_one_holder(place, clock):
    first = claimed(place)
    assert first is not None and first.epoch == 1
    assert claimed(place, "two") is None
    clock.now += leases.LEASE + leases.SLACK - 1
    assert claimed(place, "two") is None, "the lease is not over"


def test_a_holder_that_is_lost_loses_the_run(place, clock):
    claimed(place)
    clock.now += leases.LEASE + leases.SLACK + leases.PAUSES[0] + 1
    second = claimed(place, "two")
    assert second is not None and second.epoch == 2
    assert [claim.ending(clock.now) for claim in claims_of(place, "run")] == ["lost worker", None]


def test_a_lease_is_renewed_while_its_holder_works(place, monkeypatch):
    monkeypatch.setattr(leases, "SLACK", 0.0)
    claim = claimed(place, lease=2.0)
    called = []
    with held(place, claim, lease=2.0, also=lambda: called.append(1)):
        time.sleep(0.2)  # less than a renewal takes to come
        deadline = time.monotonic() + 60
        while read_claim(place, key_of("run", 1)).until <= claim.until and time.monotonic() < deadline:
            time.sleep(0.02)
        assert claimed(place, "two") is None
    assert called and read_claim(place, key_of("run", 1)).until > claim.until


def test_the_end_of_a_claim_is_not_taken_back(place):
    claim = claimed(place)
    with held(place, claim, lease=0.04):
        time.sleep(0.05)
    end(place, claim, "preempted")
    assert [claim.ended for claim in claims_of(place, "run")] == ["preempted"]


def test_a_preempted_run_is_free_at_once_and_counts_as_no_loss(place, clock):
    for epoch in range(1, 8):
        claim = claimed(place, f"host {epoch}")
        assert claim is not None and claim.epoch == epoch
        end(place, claim, "preempted")
    assert losses(claims_of(place, "run"), clock.now) == []


def test_losses_are_forgiven_and_stay_in_the_history(place, clock):
    end(place, claimed(place, "one"), "lost worker", "gone")
    clock.now += 1000
    end(place, claimed(place, "two"), "failed", "no such file")
    held_now = claimed(place, "three")
    forgive(place, "run")
    claims = claims_of(place, "run")
    assert [(claim.ended, claim.message) for claim in claims] == [
        ("forgiven", "lost worker: gone"),
        ("forgiven", "failed: no such file"),
        (None, ""),
    ]
    assert claims[-1] == held_now and not losses(claims, clock.now)


def test_a_run_waits_longer_after_every_loss(place, clock):
    waits = []
    for _ in leases.PAUSES:
        claim = claimed(place)
        assert claim is not None
        end(place, claim, "dead kernel", "out of memory")
        waits.append(waits_until(claims_of(place, "run"), clock.now) - clock.now)
        assert claimed(place) is None
        clock.now += waits[-1]
    assert waits == list(leases.PAUSES)
    assert len(losses(claims_of(place, "run"), clock.now)) == leases.MOST_LOST


def test_of_two_workers_that_see_an_expired_claim_one_gets_the_run(place, clock, monkeypatch):
    claimed(place)
    clock.now += 1000
    seen = claims_of(place, "run")
    monkeypatch.setattr(leases, "claims_of", lambda *_: seen)  # both looked before either created
    assert claimed(place, "faster") is not None
    assert claimed(place, "slower") is None
    monkeypatch.undo()
    assert [claim.host for claim in claims_of(place, "run")] == ["one", "faster"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "Claim|object|mapping"),
        (b'{"format": 1, "run_id": "run", "epoch": 0}', "epoch|missing|host"),
        (b"{" + b" " * leases.MAX_CLAIM + b"}", "too large"),
    ],
)
def test_a_damaged_claim_is_named(place, content, words):
    place.put(key_of("run", 1), content)
    with pytest.raises(PlaceError, match=rf"claims/run/00000001\.json.*({words})"):
        claimed(place)
