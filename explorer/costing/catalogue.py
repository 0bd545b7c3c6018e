"""Prices from a catalogue in the schema of SkyPilot (`vms.csv`), of which the user has a copy.

    InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,GpuInfo,AvailabilityZone
    p5en.48xlarge,H200,8.0,192.0,2048.0,63.296,24.1,us-east-1,"{'Gpus': [...]}",us-east-1a

The columns come in any order, and there may be others. Of the zones of a region the cheapest counts, once on demand and
once as spot. The name of an accelerator says how much memory it has only where it is the larger size ("A100-80GB");
the smaller one is "A100": here it becomes "A100-40GB", so that it prices no other. What `GpuInfo` says of it goes
before; that is a Python literal and is searched, never evaluated.

https://github.com/skypilot-org/skypilot-catalog
"""

import csv
import hashlib
import io
import re
from collections import Counter
from dataclasses import dataclass

from explorer.costing.price import Price, words
from explorer.costing.table import MAX_PER_HOUR, check_text, decoded
from explorer.errors import PriceError

MAX_CATALOGUE_BYTES = 64 * 2**20
MAX_ROWS = 1_000_000
NEEDED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price")
OPTIONAL = ("SpotPrice", "Region", "GpuInfo")
TWO_SIZES = {"A100": 40, "V100": 16}  # GB of memory of the accelerator that is called so without more
NOTHING = ("", "nan", "NaN", "None")

_NUMBER = re.compile(r"\d{1,9}(\.\d{0,30})?([eE][+-]?\d{1,2})?", re.ASCII)
_MEMORY = re.compile(r"'SizeInMiB': (\d{1,7})(?:\.0)?\b", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """What was found in a catalogue: the prices, and of the other rows how many there are for each reason."""

    prices: tuple[Price, ...]
    rows: int
    skipped: dict[str, int]


def parse_catalogue(
    content: bytes,
    *,
    name: str,
    provider: str,
    retrieved: str,
    region: str | None = None,
    accelerator: str | None = None,
) -> Catalogue:
    """The prices in a catalogue file called `name`, of one region and of accelerators of that name where one is given.

    Raises `PriceError` that names file, line and column.
    """
    lines = csv.reader(io.StringIO(decoded(content, where=name, most=MAX_CATALOGUE_BYTES), newline=""), strict=True)
    source = f"catalogue {name}, sha256 {hashlib.sha256(content).hexdigest()}"
    best: dict[tuple[str, ...], Price] = {}
    skipped: Counter[str] = Counter()
    rows = 0
    try:
        columns = _columns(next(lines, []), where=name)
        for row in filter(None, lines):
            rows += 1
            if rows > MAX_ROWS:
                raise PriceError(f"{name}, line {lines.line_num}: at most {MAX_ROWS} rows are read")
            found = _row(columns, row, where=f"{name}, line {lines.line_num}")
            reason = found.reason or found.outside(region, accelerator)
            if reason:
                skipped[reason] += 1
            for price in () if reason else found.prices(provider=provider, retrieved=retrieved, source=source):
                if price.offer not in best or price.per_accelerator < best[price.offer].per_accelerator:
                    best[price.offer] = price
    except csv.Error as error:
        raise PriceError(f"{name}, line {lines.line_num}: not CSV ({error})") from error
    return Catalogue(prices=tuple(best.values()), rows=rows, skipped=dict(skipped))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """An offer in a catalogue, whether it is a price of an instance with accelerators or not."""

    instance: str
    accelerator: str
    count: float
    on_demand: float | None
    spot: float | None
    region: str

    @property
    def reason(self) -> str:
        """Why it is none; "" for one that is."""
        if not self.accelerator:
            return "without an accelerator"
        if not self.instance:
            return "of an accelerator without an instance"
        if self.count < 1 or self.count % 1:
            return "with a part of an accelerator"
        return "without a price" if self.on_demand is None and self.spot is None else ""

    def outside(self, region: str | None, accelerator: str | None) -> str:
        """Which of the two it is outside of, if any."""
        if region is not None and self.region != region:
            return f"not in {region}"
        return f"not of {accelerator}" if accelerator and not words(accelerator) <= words(self.accelerator) else ""

    def prices(self, *, provider: str, retrieved: str, source: str) -> list[Price]:
        amounts = {"on demand": self.on_demand, "spot": self.spot}
        return [
            Price(
                provider=provider,
                instance=self.instance,
                region=self.region,
                tenancy=tenancy,
                accelerator=self.accelerator,
                count=int(self.count),
                usd_per_hour=amount,
                retrieved=retrieved,
                source=source,
                own=True,
            )
            for tenancy, amount in amounts.items()
            if amount is not None
        ]


def _columns(header: list[str], *, where: str) -> dict[str, int]:
    """Where each column stands that is read."""
    for name in NEEDED:
        if name not in header:
            raise PriceError(f"{where}, line 1: there is no column {name}; expected {', '.join(NEEDED)}")
    for name in (*NEEDED, *OPTIONAL):
        if header.count(name) > 1:
            raise PriceError(f"{where}, line 1: the column {name} stands there twice")
    return {name: header.index(name) for name in header if name in NEEDED + OPTIONAL} | {"": len(header)}


def _row(columns: dict[str, int], row: list[str], *, where: str) -> _Row:
    if len(row) != columns[""]:
        raise PriceError(f"{where}: {len(row)} columns; expected {columns['']}, as in the first line")
    cells = {name: row[at].strip() for name, at in columns.items() if name}
    instance, accelerator, region = (
        _name(cells.get(name, ""), at=f"{where}, column {name}")
        for name in ("InstanceType", "AcceleratorName", "Region")
    )
    price, spot, count = (
        _number(cells.get(name, ""), at=f"{where}, column {name}")
        for name in ("Price", "SpotPrice", "AcceleratorCount")
    )
    return _Row(
        instance=instance,
        accelerator=_with_memory(accelerator, cells.get("GpuInfo", "")),
        count=count or 0.0,
        on_demand=price,
        spot=spot,
        region=region,
    )


def _name(text: str, *, at: str) -> str:
    """A name or nothing. One that begins with a letter or digit is no formula for whoever opens the prices."""
    if text in NOTHING:
        return ""
    if not text[0].isalnum():
        raise PriceError(f"{at}: found {text!r:.80}; expected a name that begins with a letter or a digit")
    return check_text(text, at=at)


def _number(text: str, *, at: str) -> float | None:
    """A number above zero; None for nothing, or zero, which is how some catalogues write nothing."""
    if text in NOTHING:
        return None
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not 0 <= value <= MAX_PER_HOUR:
        raise PriceError(f"{at}: found {text!r:.80}; expected a number, at most {MAX_PER_HOUR:g}, or nothing")
    return value if value >= 1e-9 else None


def _with_memory(accelerator: str, info: str) -> str:
    """The accelerator's name with its memory, if it comes in two sizes and the name is that of either."""
    usual = TWO_SIZES.get(accelerator)
    if usual is None:
        return accelerator
    said = _MEMORY.search(info)
    size = int(said[1]) if said else usual
    return f"{accelerator}-{size // 1024 if size >= 1024 else size}GB"  # some catalogues mean GiB
