"""Claims: which worker executes a run at a place, and until when.

A claim is an object `claims/<run>/<epoch>.json` that can be created once. Its holder renews the lease; a worker that
finds the newest one ended, or its lease over, creates the next epoch. So a run has one holder at a time as long as
clocks agree to `SLACK` seconds. Where they do not, or a stopped worker continues later, two of them execute the
same run, which costs time and changes no result: the first one published is the result.

The claims of a run are its history: how often it was tried, where, and what ended it.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Literal

from pydantic import Field

from explorer.errors import PlaceError
from explorer.objects import Objects
from explorer.repeated import repeated
from explorer.schema import from_json, parse_json, record, to_json

LEASE = 60.0  # seconds; a worker that is lost holds its run for so long
SLACK = 5.0  # seconds that clocks may differ
PAUSES = (1.0, 5.0, 25.0)  # seconds before a run is tried again, after its first, second and third loss
MOST_LOST = 3  # workers that a run may cost before it is set aside
MAX_CLAIM = 10_000  # bytes

Ending = Literal["done", "failed", "preempted", "lost worker", "dead kernel", "timeout", "full disk", "forgiven"]
LOSSES = ("lost worker", "dead kernel", "timeout", "full disk")  # endings that may be the run's own doing

Moment = Annotated[float, Field(ge=0, lt=10**11)]  # seconds since 1970


@record
class Claim:
    """`claims/<run>/<epoch>.json`."""

    format: Literal[1] = 1
    run_id: str
    epoch: Annotated[int, Field(ge=1, lt=10**8)]
    holder: Annotated[str, Field(max_length=100)]  # random, so that no two claims have the same content
    host: Annotated[str, Field(max_length=300)]
    hardware: Annotated[str, Field(max_length=300)]
    begun: Moment
    until: Moment  # later than that, others may take the run
    ended: Ending | None = None  # None: its holder works, or was lost
    message: Annotated[str, Field(max_length=2000)] = ""

    def open(self, now: float) -> bool:
        """Return whether the run is still its holder's."""
        return self.ended is None and now <= self.until + SLACK

    def ending(self, now: float) -> Ending | None:
        """Return how the claim ended: a holder that said nothing until its lease was over is lost."""
        return self.ended or (None if self.open(now) else "lost worker")


def key_of(run_id: str, epoch: int) -> str:
    """Return the key of a claim."""
    return f"claims/{run_id}/{epoch:08d}.json"


def read_claim(objects: Objects, key: str) -> Claim:
    """Read a claim. Raises `PlaceError` for a damaged one."""
    where = f"{objects.url}/{key}"
    content = objects.read(key, max_bytes=MAX_CLAIM)
    value = parse_json(content, where=where, error=PlaceError, max_bytes=MAX_CLAIM)
    return from_json(Claim, value, where=where, error=PlaceError)


def claims_of(objects: Objects, run_id: str) -> list[Claim]:
    """Return all claims of a run, oldest first."""
    return [read_claim(objects, key) for key in sorted(listed.key for listed in objects.list(f"claims/{run_id}/"))]


def losses(claims: Sequence[Claim], now: float) -> list[Claim]:
    """Return the claims after which the run was no further, and nothing but the run itself may be to blame."""
    return [claim for claim in claims if claim.ending(now) in LOSSES]


def waits_until(claims: Sequence[Claim], now: float) -> float:
    """Return when the run may be claimed, in seconds since 1970; 0: now."""
    if not claims:
        return 0.0
    last = claims[-1]
    if last.open(now):
        return last.until + SLACK
    lost = losses(claims, now)
    if not lost or lost[-1] is not last:
        return 0.0
    return last.until + PAUSES[min(len(lost), len(PAUSES)) - 1]


def take(
    objects: Objects,
    run_id: str,
    *,
    host: str,
    hardware: str,
    lease: float = LEASE,
    claims: Sequence[Claim] | None = None,
) -> Claim | None:
    """Claim a run; None: another worker holds it, or was faster, or the run has to wait. `claims` are those of the run,
    if they are known already."""
    claims, now = claims_of(objects, run_id) if claims is None else claims, time.time()
    if now < waits_until(claims, now):
        return None
    claim = Claim(
        run_id=run_id,
        epoch=claims[-1].epoch + 1 if claims else 1,
        holder=secrets.token_hex(16),
        host=host,
        hardware=hardware,
        begun=now,
        until=now + lease,
    )
    return claim if objects.create(key_of(run_id, claim.epoch), encoded(claim)) else None


def end(objects: Objects, claim: Claim, how: Ending, message: str = "") -> None:
    """Say that the holder is done with the run, and how."""
    ended = _changed(claim, until=time.time(), ended=how, message=message[:2000])
    objects.put(key_of(claim.run_id, claim.epoch), encoded(ended))


def forgive(objects: Objects, run_id: str) -> None:
    """Let a run be tried again as if nothing had been lost. Its claims stay, so that no epoch comes twice."""
    now = time.time()
    for claim in claims_of(objects, run_id):
        if not claim.open(now):
            message = f"{claim.ending(now)}: {claim.message}"[:2000]
            objects.put(key_of(run_id, claim.epoch), encoded(_changed(claim, ended="forgiven", message=message)))


@contextmanager
def held(
    objects: Objects, claim: Claim, *, lease: float = LEASE, also: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Renew the lease within the block, four times a lease, and call `also` as often.

    A place that does not answer is asked again: the lease runs on meanwhile, and at worst another worker takes the run.
    """

    def renew() -> bool:
        with suppress(PlaceError):
            objects.put(key_of(claim.run_id, claim.epoch), encoded(_changed(claim, until=time.time() + lease)))
            also()
        return False

    with repeated(renew, every=lease / 4, name="lease"):  # a renewal after the end would take the end back
        yield


def _changed(claim: Claim, **fields: object) -> Claim:
    return from_json(Claim, {**to_json(claim), **fields}, where="claim", error=PlaceError)


def encoded(claim: Claim) -> bytes:
    """Return a claim as the content of its object."""
    return json.dumps(to_json(claim)).encode()
