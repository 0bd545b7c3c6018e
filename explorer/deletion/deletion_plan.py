"""The plan of a deletion: its level, work, cost and limits, and the request that it answers.

There are four levels. Only at G2 and G3 may a target be called *deleted*.

    G0  inactive: what belongs to the target is switched off, and all of it still exists
    G1  localised and ablated: what routing gathered in one place is set to zero; the rest of the target in the model is
        measured, and never proved to be nothing
    G2  exact by structure: the sealed regions that only the target had are dropped
    G3  exact by replay: training continues without the target from a state that the target had not moved

The certificate and the project's ledger keep only a commitment to the request:

    {"format": "explorer/request/v1", "salt": "...", "commitment": "..."}

The commitment is SHA-256(salt || the text in UTF-8). With the text and this file a reader can check that they belong
together; without them the commitment reveals nothing about the person.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from explorer.canonical import canonical
from explorer.costing import Duration, Price, cost_usd, default_price, load_prices
from explorer.deletion.unreachable import beyond
from explorer.entries.fields import Digest
from explorer.errors import ProvenanceError
from explorer.project import runs_of
from explorer.provenance.commitments import commit, new_salt
from explorer.provenance.deletion_certificate import MEANS, NotReached
from explorer.provenance.keys import write_private
from explorer.run_files import RunRecord
from explorer.rundir import PRIVATE, read_bytes
from explorer.runlog.forecast import Forecast, forecast_of
from explorer.runlog.influence import Presence
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.schema import from_json, parse_json, record, to_json

PRICES = "prices.csv"  # in the directory of runs: the user's own prices

LEVELS: dict[Literal["G0", "G1", "G2", "G3"], str] = {
    "G0": "inactive: switched off, and still in the model",
    "G1": "localised and ablated: empirical only, measured and never proved; not a deletion",
    "G2": f"exact by structure; certified, it will be called deleted. {MEANS['G2']}",
    "G3": f"exact by replay; certified, it will be called deleted. {MEANS['G3']}",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """US dollars at one price. None: the time is not known."""

    price: Price
    usd: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Work, cost and limits of deleting a target from a run."""

    run: str
    continues: tuple[str, ...]  # other runs' models, states and first steps, in words
    target: Target
    forecast: Forecast
    cost: Cost | None  # None: no price for this hardware
    beyond: tuple[NotReached, ...]


def plan(run: RunLedger, target: Target, *, step: Duration | None = None, private: Path | None = None) -> Plan:
    """Plan a deletion; nothing is changed. `step` is the time of one step to replay, measured now.

    `private` is where the salts and the trainer's key are now, if not where the run had them.

    Raises `LedgerError` for a target that the run does not have and for damage, `ProvenanceError` for documents that
    are not the run's, `RunError` for damaged records, `PriceError` for prices that cannot be used.
    """
    presence = Presence(run)
    forecast = forecast_of(presence, target, step=step, private=private)
    return Plan(
        run=run.genesis.run,
        continues=run.continues,
        target=target,
        forecast=forecast,
        cost=_cost(presence, forecast, runs_of(run.run)),
        beyond=beyond(presence, forecast.reach),
    )


def _cost(presence: Presence, forecast: Forecast, runs: Path) -> Cost | None:
    # A custom loop does not record the hardware that a price could be looked up for.
    if not isinstance(presence.recipe, RunRecord):
        return None
    hardware, own = presence.recipe.hardware, runs / PRICES
    price = default_price(hardware.name, load_prices(own if own.exists() else None))
    if price is None:
        return None
    times = (forecast.time.seconds, forecast.time.low, forecast.time.high)
    middle, low, high = (None if time is None else cost_usd(time, price, hardware.world_size) for time in times)
    return Cost(price=price, usd=middle, low=low, high=high)


# --- the request ---

REQUEST_FILE = f"{PRIVATE}/request"  # in the new run's directory
MAX_BYTES = 4096


@record
class Request:
    """The file with the commitment to a request."""

    format: Literal["explorer/request/v1"]
    salt: Digest
    commitment: Digest


def keep_request(run: Path, text: str) -> str:
    """Return the commitment to the text of the request; make it with a fresh salt on the first call.

    Raises `ProvenanceError` for a run that answers another request.
    """
    path = run / REQUEST_FILE
    if not path.exists():
        salt = new_salt()
        made = Request(format="explorer/request/v1", salt=salt.hex(), commitment=commit(salt, text.encode()).hex())
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, canonical(to_json(made)))
    request = _read(path)
    if commit(bytes.fromhex(request.salt), text.encode()).hex() != request.commitment:
        raise ProvenanceError(f"{path}: the deletion answers another request than this one")
    return request.commitment


def read_request(run: Path) -> str | None:
    """Read the commitment to the request; None: the run answers none. Raises `ProvenanceError` for a damaged file."""
    path = run / REQUEST_FILE
    return _read(path).commitment if path.exists() else None


def _read(path: Path) -> Request:
    content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
    value = parse_json(content, where=str(path), error=ProvenanceError, max_bytes=MAX_BYTES)
    return from_json(Request, value, where=str(path), error=ProvenanceError)
