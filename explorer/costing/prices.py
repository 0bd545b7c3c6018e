"""Training time and prices: from step times to seconds, from seconds to money, and the tables of prices behind it."""

import calendar
import csv
import datetime
import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from explorer.errors import PriceError, RunError, unknown

# --- from step times to the time of a run ---

SAME_TIME = 0.02  # training times that differ by less are equal: a step time varies as much when measured again


class StepTime(Protocol):
    """The time of one optimiser step in one phase, in seconds, with its quartiles."""

    @property
    def seconds(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Duration:
    """A time with its lower and upper quartile, in seconds."""

    seconds: float
    low: float
    high: float


def train_seconds(phases: Mapping[str, int], step_times: Mapping[str, StepTime]) -> Duration:
    """Return the training time of a run: the sum over phases of their steps times the time of one step.

    Raises `RunError` if a phase has no step time: such a run's time is unknown.
    """
    phases = {phase: steps for phase, steps in phases.items() if steps}
    for phase in phases:
        if phase not in step_times:
            raise RunError(f"no step time: {unknown('phase', phase, step_times)}; profile the recipe again")
    return Duration(
        seconds=sum(steps * step_times[phase].seconds for phase, steps in phases.items()),
        low=sum(steps * step_times[phase].low for phase, steps in phases.items()),
        high=sum(steps * step_times[phase].high for phase, steps in phases.items()),
    )


# --- from time to money ---

USD = "USD"
OWN = "own"  # the provider of the user's own machines


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """Price of an instance for an hour. Dates are `2026-11-09` or `2026-11`; empty where the source gives none."""

    provider: str
    instance: str
    region: str = ""
    tenancy: str = "on demand"
    accelerator: str  # "H200", "A100-40GB": words that the hardware's name must contain
    count: int
    usd_per_hour: float  # for the whole instance; in `currency`, if that is another
    effective: str = ""
    retrieved: str = ""
    source: str
    own: bool = False  # from the user's file, and preferred to a shipped row
    currency: str = USD  # ISO 4217

    @property
    def usd_per_accelerator_hour(self) -> float:
        """Return US dollars for an hour of one accelerator. Raises `PriceError` for a price in another currency."""
        if self.currency != USD:
            raise PriceError(
                f"{self.provider} {self.instance}: the price is in {self.currency}, which is not converted: expected"
                f" {USD}"
            )
        return self.per_accelerator

    @property
    def per_accelerator(self) -> float:
        """Return the price of an hour of one accelerator, in `currency`."""
        return self.usd_per_hour / self.count

    @property
    def as_of(self) -> str:
        """Return the date at which the price is known to hold, the later of effective and retrieved; "" for neither."""
        return max(self.effective, self.retrieved, key=lambda text: day(text) or datetime.date.min)

    @property
    def offer(self) -> tuple[str, ...]:
        """Return what is offered, without price and dates."""
        return (
            *(self.provider, self.instance, self.region, self.tenancy, self.accelerator),
            *(str(self.own), self.currency),
        )

    def covers(self, hardware: str) -> bool:
        """Return whether this row prices the hardware of that name, such as "NVIDIA A100-SXM4-40GB".

        Every word of the accelerator's name must be a word of the hardware's. A slice of a device (MIG) is not the
        device, and costs less.
        """
        named = words(hardware)
        return "MIG" not in named and words(self.accelerator) <= named


def cost_usd(seconds: float, price: Price, world_size: int = 1) -> float:
    """Return US dollars for `seconds` of a run that uses `world_size` of the instance's accelerators.

    Raises `PriceError` for a price in another currency.
    """
    return seconds / 3600 * price.usd_per_accelerator_hour * world_size


OVERHEAD = 0.15  # seconds of a run in a warm kernel, beyond its training (`benchmarks/warm_overhead.py`)


def wall_seconds(seconds: float, *, runs: int, slowdown: float, workers: int) -> float:
    """Return the time until runs with `seconds` of quiet training in all have finished, `workers` at the same time.

    `slowdown` is by what factor evaluation and contention make a run longer than quiet training.
    """
    return (seconds * slowdown + OVERHEAD * runs) / workers


def day(text: str) -> datetime.date | None:
    """Parse a date, or a month as its last day; None for no date. Raises `ValueError` for anything else.

    >>> day("2026-02")
    datetime.date(2026, 2, 28)
    """
    if not text:
        return None
    if re.fullmatch(r"\d{4}-\d{2}", text, re.ASCII):
        year, month = int(text[:4]), int(text[5:])
        first = datetime.date(year, month, 1)
        return first.replace(day=calendar.monthrange(year, month)[1])
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        raise ValueError(f"found {text!r}; expected 2026-11-09 or 2026-11")
    return datetime.date.fromisoformat(text)


def words(name: str) -> set[str]:
    """Return the words in a name of hardware, in capitals.

    >>> sorted(words("NVIDIA A100-SXM4-40GB"))
    ['40GB', 'A100', 'NVIDIA', 'SXM4']
    """
    return {word.upper() for word in re.split(r"[^0-9A-Za-z]+", name) if word}


# --- the price that is used for some hardware ---

ON_DEMAND = "on demand"


def current(prices: Iterable[Price]) -> list[Price]:
    """Return the prices that hold now: of rows for the same offer, the one that took effect last."""
    latest: dict[tuple[str, ...], Price] = {}
    for price in prices:
        # Of equal dates the later row counts: the user's file comes after the shipped table.
        if price.offer not in latest or _since(price) >= _since(latest[price.offer]):
            latest[price.offer] = price
    return list(latest.values())


def matching(hardware: str, prices: Iterable[Price]) -> list[Price]:
    """Return the current prices of some hardware, the preferred one first.

    US dollars before other currencies; the user's own machines, then other rows of the user's file, then shipped ones;
    on demand before the rest; then the cheapest.
    """
    return sorted((price for price in current(prices) if price.covers(hardware)), key=_preference)


def default_price(hardware: str, prices: Iterable[Price]) -> Price | None:
    """Return the default price: the user's own, else the cheapest on demand.

    None means that there is no price for this hardware, or none in US dollars.
    """
    return next(filter(is_usable, matching(hardware, prices)), None)


def price_at(hardware: str, prices: Iterable[Price], provider: str) -> Price | None:
    """Return the default price of one provider. Raises `PriceError` for a provider without prices."""
    prices = tuple(prices)
    if provider not in (known := providers(prices)):
        raise PriceError(unknown("provider", provider, known))
    return default_price(hardware, (price for price in prices if price.provider == provider))


def providers(prices: Iterable[Price]) -> list[str]:
    """Return the providers with a price in US dollars, by name."""
    return sorted({price.provider for price in prices if price.currency == USD})


def is_usable(price: Price) -> bool:
    """Return whether a price can be a default. Shipped ones must be on demand: others depend on a contract."""
    return price.currency == USD and (price.own or price.tenancy == ON_DEMAND)


def _since(price: Price) -> int:
    date = day(price.effective)
    return 0 if date is None else date.toordinal()


def _preference(price: Price) -> tuple[bool, bool, bool, bool, float]:
    return (
        price.currency != USD,
        not (price.own and price.provider == OWN),
        not price.own,
        price.tenancy != ON_DEMAND,
        price.per_accelerator,
    )


# --- tables of prices: the shipped one, and the user's own file with the same columns ---
#
#     provider,instance,region,tenancy,accelerator,count,usd_per_hour,effective,retrieved,source,currency
#     own,box,,on demand,AMD EPYC,2,0.4,2026-11-01,2026-11-22,power and depreciation,USD
#
# The last column may be left out of a file: all prices are then in US dollars.

SHIPPED = Path(__file__).parents[1] / "prices.csv"
FILE = "prices.csv"  # the user's own, in the directory of runs
COLUMNS = (
    "provider", "instance", "region", "tenancy", "accelerator", "count",
    "usd_per_hour", "effective", "retrieved", "source", "currency",
)  # fmt: skip
TENANCIES = ("on demand", "spot", "reserved")
MAX_BYTES = 4 * 2**20
MAX_TEXT = 1000  # characters in a cell
MAX_PER_HOUR = 1e6


def load_prices(path: Path | None = None) -> tuple[Price, ...]:
    """Return the shipped prices, and the user's own from the CSV file `path`, which has the same columns.

    Raises `PriceError` that names file, line and column.
    """
    shipped = parse_prices(_bytes(SHIPPED), where=str(SHIPPED), own=False)
    return shipped if path is None else shipped + parse_prices(_bytes(path), where=str(path), own=True)


def own_prices(runs: Path) -> tuple[Price, ...]:
    """Return the user's own prices for a directory of runs; none if there is no file. Raises `PriceError`."""
    path = runs / FILE
    return parse_prices(_bytes(path), where=str(path), own=True) if path.exists() else ()


def parse_prices(content: bytes, *, where: str, own: bool) -> tuple[Price, ...]:
    """Parse a table of prices. Raises `PriceError` that names `where`, line and column."""
    rows = csv.reader(io.StringIO(decoded(content, where=where, most=MAX_BYTES), newline=""), strict=True)
    try:
        header = tuple(next(rows, []))
        if header not in (COLUMNS, COLUMNS[:-1]):
            raise PriceError(
                f"{where}, line 1: the columns are {','.join(header)!r:.300}; expected {','.join(COLUMNS)!r}"
            )
        return tuple(_price(header, row, where=f"{where}, line {rows.line_num}", own=own) for row in rows if row)
    except csv.Error as error:
        raise PriceError(f"{where}, line {rows.line_num}: not CSV ({error})") from error


def to_csv(prices: Iterable[Price], *, where: str) -> bytes:
    """Return the file with these rows, after reading it back once: a file that cannot be read is never written.

    Raises `PriceError` that names `where`, line and column of a cell that could not be read again.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for price in prices:
        # Never in scientific notation, which the parser refuses.
        cells = asdict(price) | {"usd_per_hour": f"{price.usd_per_hour:.12f}".rstrip("0").rstrip(".")}
        writer.writerow([cells[column] for column in COLUMNS])
    content = text.getvalue().encode()
    parse_prices(content, where=where, own=True)
    return content


def decoded(content: bytes, *, where: str, most: int) -> str:
    """Decode a CSV file from outside. Raises `PriceError` if it is too large, or no text."""
    if len(content) > most:
        raise PriceError(f"{where}: too large: at most {most} bytes are read")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PriceError(f"{where}: not UTF-8 text ({error})") from error


def check_text(text: str, *, at: str, empty: bool = False) -> str:
    """Return a cell that is one line of text. Raises `PriceError` that starts with `at`."""
    if len(text) > MAX_TEXT or not text.isprintable() or not (empty or words(text)):
        raise PriceError(f"{at}: found {text!r:.80}; expected a line of text, at most {MAX_TEXT} characters")
    return text


def check_date(text: str, *, at: str) -> str:
    """Return a cell that is a date, a month, or nothing. Raises `PriceError` that starts with `at`."""
    try:
        day(text)
    except ValueError as error:
        raise PriceError(f"{at}: found {text!r:.80}; expected 2026-11-09, 2026-11 or nothing") from error
    return text


def check_currency(text: str, *, at: str) -> str:
    """Return a cell that is the code of a currency. Raises `PriceError` that starts with `at`."""
    if not re.fullmatch("[A-Z]{3}", text):
        raise PriceError(f"{at}: found {text!r:.80}; expected a code of ISO 4217 such as {USD}")
    return text


def _bytes(path: Path) -> bytes:
    if path.is_fifo():  # opening a pipe waits for its writer, and there may be none
        raise PriceError(f"cannot read the prices in {path}: found a pipe; expected a file")
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PriceError(f"cannot read the prices in {path}: {error.strerror or error}") from error


def _price(header: tuple[str, ...], row: list[str], *, where: str, own: bool) -> Price:
    if len(row) != len(header):
        raise PriceError(f"{where}: {len(row)} columns; expected {len(header)}: {','.join(header)}")
    cells = {column: cell.strip() for column, cell in zip(header, row, strict=True)}
    for column in ("provider", "instance", "accelerator", "source", "region"):
        check_text(cells[column], at=f"{where}, column {column}", empty=column == "region")
    if cells["tenancy"] not in TENANCIES:
        raise PriceError(f"{where}, column tenancy: {unknown('tenancy', cells['tenancy'][:80], TENANCIES)}")
    for column in ("effective", "retrieved"):
        check_date(cells[column], at=f"{where}, column {column}")
    check_currency(cells.setdefault("currency", USD), at=f"{where}, column currency")
    texts = {column: cell for column, cell in cells.items() if column not in ("count", "usd_per_hour")}
    return Price(
        **texts,
        own=own,
        count=int(_number(cells["count"], at=f"{where}, column count", whole=True, most=100_000)),
        usd_per_hour=_number(cells["usd_per_hour"], at=f"{where}, column usd_per_hour", most=MAX_PER_HOUR),
    )


def _number(text: str, *, at: str, most: float, whole: bool = False) -> float:
    pattern, expected = (r"\d{1,6}", "a whole number") if whole else (r"\d{1,9}(\.\d{1,12})?", "a number such as 21.95")
    value = float(text) if re.fullmatch(pattern, text, re.ASCII) else 0.0
    if not 0 < value <= most:
        raise PriceError(f"{at}: found {text!r:.80}; expected {expected} above 0, at most {most:g}")
    return value


# --- prices from the user's copy of a catalogue in the schema of SkyPilot (`vms.csv`) ---
#
#     InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,GpuInfo,AvailabilityZone
#     p5en.48xlarge,H200,8.0,192.0,2048.0,63.296,24.1,us-east-1,"{'Gpus': [...]}",us-east-1a
#
# The columns come in any order, and there may be others. Of the zones of a region the cheapest counts, once on demand
# and once as spot. The name of an accelerator says how much memory it has only where it is the larger size
# ("A100-80GB"); the smaller one is "A100" and becomes "A100-40GB" here, so that it prices no other. The size in
# `GpuInfo` takes precedence; that column is a Python literal and is searched, never evaluated.
#
# https://github.com/skypilot-org/skypilot-catalog

MAX_CATALOGUE_BYTES = 64 * 2**20
MAX_ROWS = 1_000_000
NEEDED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price")
OPTIONAL = ("SpotPrice", "Region", "GpuInfo")
TWO_SIZES = {"A100": 40, "V100": 16}  # GB of memory of the accelerator whose name gives none
NOTHING = ("", "nan", "NaN", "None")

_NUMBER = re.compile(r"\d{1,9}(\.\d{0,30})?([eE][+-]?\d{1,2})?", re.ASCII)
_MEMORY = re.compile(r"'SizeInMiB': (\d{1,7})(?:\.0)?\b", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """Prices of a catalogue, and the number of other rows by the reason why they were skipped."""

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
    """Parse a catalogue of prices.

    Args:
        content: the file.
        name: of the file, for messages and as the source of the prices.
        provider: name of the provider for all prices.
        retrieved: the date of the copy.
        region: only this region; by default all.
        accelerator: only accelerators with these words in their names; by default all.

    Raises `PriceError` that names file, line and column.
    """
    lines = csv.reader(io.StringIO(decoded(content, where=name, most=MAX_CATALOGUE_BYTES), newline=""), strict=True)
    # The digest of the copy makes a price traceable to the file that it came from.
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
            offer = _row(columns, row, where=f"{name}, line {lines.line_num}")
            # Rows that are no prices are counted by reason: catalogues list instances without accelerators too.
            reason = offer.reason or offer.outside(region, accelerator)
            if reason:
                skipped[reason] += 1
            for price in () if reason else offer.prices(provider=provider, retrieved=retrieved, source=source):
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
        """Return why the row is no price of an instance with accelerators; "" if it is."""
        if not self.accelerator:
            return "without an accelerator"
        if not self.instance:
            return "of an accelerator without an instance"
        if self.count < 1 or self.count % 1:
            return "with a part of an accelerator"
        return "without a price" if self.on_demand is None and self.spot is None else ""

    def outside(self, region: str | None, accelerator: str | None) -> str:
        """Return which of the two filters excludes the row, if any."""
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
    """Return the position of each column that is read; under "" the number of all columns."""
    for name in NEEDED:
        if name not in header:
            raise PriceError(f"{where}, line 1: there is no column {name}; expected {', '.join(NEEDED)}")
    for name in (*NEEDED, *OPTIONAL):
        if header.count(name) > 1:
            raise PriceError(f"{where}, line 1: the column {name} occurs twice")
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
        _catalogued_number(cells.get(name, ""), at=f"{where}, column {name}")
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
    """Return a name or nothing. One that begins with a letter or digit is no formula in a spreadsheet."""
    if text in NOTHING:
        return ""
    if not text[0].isalnum():
        raise PriceError(f"{at}: found {text!r:.80}; expected a name that begins with a letter or a digit")
    return check_text(text, at=at)


def _catalogued_number(text: str, *, at: str) -> float | None:
    """Return a number above zero; None for an empty cell or zero, which some catalogues write instead."""
    if text in NOTHING:
        return None
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not 0 <= value <= MAX_PER_HOUR:
        raise PriceError(f"{at}: found {text!r:.80}; expected a number, at most {MAX_PER_HOUR:g}, or nothing")
    return value if value >= 1e-9 else None


def _with_memory(accelerator: str, info: str) -> str:
    """Return the accelerator's name with its memory, if it comes in two sizes and the name leaves it open."""
    usual = TWO_SIZES.get(accelerator)
    if usual is None:
        return accelerator
    stated = _MEMORY.search(info)
    size = int(stated[1]) if stated else usual
    return f"{accelerator}-{size // 1024 if size >= 1024 else size}GB"  # some catalogues mean GiB
