"""The table of prices: what is shipped, and the user's own file, which has the same columns.

    provider,instance,region,tenancy,accelerator,count,usd_per_hour,effective,retrieved,source,currency
    own,box,,on demand,AMD EPYC,2,0.4,2026-11-01,2026-11-22,power and depreciation,USD

The last column may be left out of a file: then all is in US dollars.
"""

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from explorer.costing.price import USD, Price, day, words
from explorer.errors import PriceError, unknown

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
    """The shipped prices, and the user's own from the CSV file `path`, which has the same columns.

    Raises `PriceError` that names file, line and column.
    """
    shipped = parse_prices(_bytes(SHIPPED), where=str(SHIPPED), own=False)
    return shipped if path is None else shipped + parse_prices(_bytes(path), where=str(path), own=True)


def own_prices(runs: Path) -> tuple[Price, ...]:
    """The user's own prices for a directory of runs; none where there is no file. Raises `PriceError`."""
    path = runs / FILE
    return parse_prices(_bytes(path), where=str(path), own=True) if path.exists() else ()


def parse_prices(content: bytes, *, where: str, own: bool) -> tuple[Price, ...]:
    """The rows of a table. Raises `PriceError` that names `where`, line and column."""
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
    """The file that holds these rows. It is read once before it is given away.

    Raises `PriceError` that names `where`, line and column of what could not be read again.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for price in prices:
        cells = asdict(price) | {"usd_per_hour": f"{price.usd_per_hour:.12f}".rstrip("0").rstrip(".")}
        writer.writerow([cells[column] for column in COLUMNS])
    content = text.getvalue().encode()
    parse_prices(content, where=where, own=True)
    return content


def decoded(content: bytes, *, where: str, most: int) -> str:
    """The text of a CSV file of anybody's. Raises `PriceError` if it is too large, or no text."""
    if len(content) > most:
        raise PriceError(f"{where}: too large: at most {most} bytes are read")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PriceError(f"{where}: not UTF-8 text ({error})") from error


def check_text(text: str, *, at: str, empty: bool = False) -> str:
    """A cell that is one line of text. Raises `PriceError` that starts with `at`."""
    if len(text) > MAX_TEXT or not text.isprintable() or not (empty or words(text)):
        raise PriceError(f"{at}: found {text!r:.80}; expected a line of text, at most {MAX_TEXT} characters")
    return text


def check_date(text: str, *, at: str) -> str:
    """A cell that is a date, a month, or nothing. Raises `PriceError` that starts with `at`."""
    try:
        day(text)
    except ValueError as error:
        raise PriceError(f"{at}: found {text!r:.80}; expected 2026-11-09, 2026-11 or nothing") from error
    return text


def check_currency(text: str, *, at: str) -> str:
    """A cell that is the code of a currency. Raises `PriceError` that starts with `at`."""
    if not re.fullmatch("[A-Z]{3}", text):
        raise PriceError(f"{at}: found {text!r:.80}; expected a code of ISO 4217 such as {USD}")
    return text


def _bytes(path: Path) -> bytes:
    if path.is_fifo():  # whoever opens one waits for its writer, and there may be none
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
