"""From steps to time, and from time to money: the arithmetic, and a dated, sourced table of prices.

A price is a row of `prices.csv`: what one instance costs an hour, how many accelerators it has, since when, and who
says so. A run of `world_size` processes uses that many of the `count` accelerators and is charged for its share. For
hardware that is no accelerator, such as a CPU of one's own, `count` is the number of training processes that share the
machine. Hardware without a row has no price: that is `None`, never zero.

>>> cost_usd(1800, Price(provider="own", instance="box", accelerator="H200", count=2, usd_per_hour=8.0, source="us"))
2.0
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from explorer.errors import PriceError, RunError, unknown

SHIPPED = Path(__file__).with_name("prices.csv")
COLUMNS = (
    "provider", "instance", "region", "tenancy", "accelerator", "count",
    "usd_per_hour", "effective", "retrieved", "source",
)  # fmt: skip
TENANCIES = ("on demand", "spot", "reserved")
MAX_BYTES = 2**20
MAX_USD_PER_HOUR = 1e6
SAME_TIME = 0.02  # two training times that differ by no more are equal: measured again, a step time moves as much

_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What an instance costs an hour. Dates are `2026-11-09` or `2026-11`; empty where the source gives none."""

    provider: str
    instance: str
    region: str = ""
    tenancy: str = "on demand"
    accelerator: str  # "H200", "A100-40GB": words that the hardware's name must hold
    count: int
    usd_per_hour: float  # for the whole instance
    effective: str = ""
    retrieved: str = ""
    source: str
    own: bool = False  # from the user's file, and preferred to a shipped row

    @property
    def usd_per_accelerator_hour(self) -> float:
        return self.usd_per_hour / self.count

    def covers(self, hardware: str) -> bool:
        """Whether this row prices the hardware of that name, such as "NVIDIA A100-SXM4-40GB".

        Every word of the accelerator's name has to be a word of the hardware's. A slice of a device (MIG) is not the
        device.
        """
        words = _words(hardware)
        return "MIG" not in words and _words(self.accelerator) <= words


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
    """The training time of a run: for every phase, its steps times the time of one step in that phase, added up.

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


def cost_usd(seconds: float, price: Price, world_size: int = 1) -> float:
    """US dollars for `seconds` of a run that uses `world_size` of the instance's accelerators."""
    return seconds / 3600 * price.usd_per_accelerator_hour * world_size


def current(prices: Iterable[Price]) -> list[Price]:
    """The prices that hold now: of rows for the same offer, the one that took effect last."""
    latest: dict[tuple[str, ...], Price] = {}
    for price in prices:
        offer = (price.provider, price.instance, price.region, price.tenancy, price.accelerator, str(price.own))
        if offer not in latest or price.effective >= latest[offer].effective:
            latest[offer] = price
    return list(latest.values())


def matching(hardware: str, prices: Iterable[Price]) -> list[Price]:
    """The current prices of that hardware: the user's own first, then on demand, then the cheapest."""
    found = [price for price in current(prices) if price.covers(hardware)]
    return sorted(
        found, key=lambda price: (not price.own, price.tenancy != "on demand", price.usd_per_accelerator_hour)
    )


def default_price(hardware: str, prices: Iterable[Price]) -> Price | None:
    """The price that is used unless another one is chosen: the user's own, else the cheapest on demand.

    `None` means that there is no price for this hardware.
    """
    usable = [price for price in matching(hardware, prices) if price.own or price.tenancy == "on demand"]
    return usable[0] if usable else None


def load_prices(path: Path | None = None) -> tuple[Price, ...]:
    """The shipped prices, and the user's own from the CSV file `path`, which has the same columns.

    Raises `PriceError` that names file, line and column.
    """
    shipped = _read(SHIPPED, own=False)
    return shipped if path is None else shipped + _read(path, own=True)


def _read(path: Path, *, own: bool) -> tuple[Price, ...]:
    rows = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        header = next(rows, [])
        if tuple(header) != COLUMNS:
            raise PriceError(f"{path}, line 1: the columns are {','.join(header)!r}; expected {','.join(COLUMNS)!r}")
        return tuple(_price(row, where=f"{path}, line {rows.line_num}", own=own) for row in rows if row)
    except csv.Error as error:
        raise PriceError(f"{path}, line {rows.line_num}: not CSV ({error})") from error


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise PriceError(f"{path}: too large: at most {MAX_BYTES} bytes are read")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise PriceError(f"cannot read the prices in {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PriceError(f"{path}: not UTF-8 text ({error})") from error


def _price(row: list[str], *, where: str, own: bool) -> Price:
    if len(row) != len(COLUMNS):
        raise PriceError(f"{where}: {len(row)} columns; expected {len(COLUMNS)}: {','.join(COLUMNS)}")
    cells = {column: cell.strip() for column, cell in zip(COLUMNS, row, strict=True)}
    for column in ("provider", "instance", "accelerator", "source"):
        if not _words(cells[column]):
            raise PriceError(f"{where}, column {column}: found {cells[column]!r}; expected a text")
    if cells["tenancy"] not in TENANCIES:
        raise PriceError(f"{where}, column tenancy: {unknown('tenancy', cells['tenancy'], TENANCIES)}")
    for column in ("effective", "retrieved"):
        if cells[column] and not _DATE.fullmatch(cells[column]):
            raise PriceError(
                f"{where}, column {column}: found {cells[column]!r}; expected 2026-11-09, 2026-11 or nothing"
            )
    texts = {column: cell for column, cell in cells.items() if column not in ("count", "usd_per_hour")}
    return Price(
        **texts,
        own=own,
        count=int(_number(cells["count"], at=f"{where}, column count", whole=True, most=100_000)),
        usd_per_hour=_number(cells["usd_per_hour"], at=f"{where}, column usd_per_hour", most=MAX_USD_PER_HOUR),
    )


def _number(text: str, *, at: str, most: float, whole: bool = False) -> float:
    pattern, expected = (r"\d{1,6}", "a whole number") if whole else (r"\d{1,9}(\.\d{1,12})?", "a number such as 21.95")
    value = float(text) if re.fullmatch(pattern, text, re.ASCII) else 0.0
    if not 0 < value <= most:
        raise PriceError(f"{at}: found {text!r}; expected {expected} above 0, at most {most:g}")
    return value


def _words(name: str) -> set[str]:
    return {word.upper() for word in re.split(r"[^0-9A-Za-z]+", name) if word}
