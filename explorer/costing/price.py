"""A price: what one instance costs an hour, since when, and who says so."""

import calendar
import datetime
import re
from dataclasses import dataclass

from explorer.errors import PriceError

USD = "USD"
OWN = "own"  # the provider of machines of one's own


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What an instance costs an hour. Dates are `2026-11-09` or `2026-11`; empty where the source gives none."""

    provider: str
    instance: str
    region: str = ""
    tenancy: str = "on demand"
    accelerator: str  # "H200", "A100-40GB": words that the hardware's name must hold
    count: int
    usd_per_hour: float  # for the whole instance; in `currency`, if that is another
    effective: str = ""
    retrieved: str = ""
    source: str
    own: bool = False  # from the user's file, and preferred to a shipped row
    currency: str = USD  # ISO 4217

    @property
    def usd_per_accelerator_hour(self) -> float:
        """Raises `PriceError` for a price that is not in US dollars."""
        if self.currency != USD:
            raise PriceError(
                f"{self.provider} {self.instance}: the price is in {self.currency}, which is not converted: expected"
                f" {USD}"
            )
        return self.per_accelerator

    @property
    def per_accelerator(self) -> float:
        """An hour of one accelerator, in `currency`."""
        return self.usd_per_hour / self.count

    @property
    def as_of(self) -> str:
        """The date that the price is known to hold for: effective or retrieved, whichever is later; "" for neither."""
        return max(self.effective, self.retrieved, key=lambda text: day(text) or datetime.date.min)

    @property
    def offer(self) -> tuple[str, ...]:
        """What is offered, whatever it costs and whenever."""
        return (
            *(self.provider, self.instance, self.region, self.tenancy, self.accelerator),
            *(str(self.own), self.currency),
        )

    def covers(self, hardware: str) -> bool:
        """Whether this row prices the hardware of that name, such as "NVIDIA A100-SXM4-40GB".

        Every word of the accelerator's name has to be a word of the hardware's. A slice of a device (MIG) is not the
        device.
        """
        named = words(hardware)
        return "MIG" not in named and words(self.accelerator) <= named


def cost_usd(seconds: float, price: Price, world_size: int = 1) -> float:
    """US dollars for `seconds` of a run that uses `world_size` of the instance's accelerators.

    Raises `PriceError` for a price in another currency.
    """
    return seconds / 3600 * price.usd_per_accelerator_hour * world_size


def day(text: str) -> datetime.date | None:
    """A date, of a month its last day; None for no date. Raises `ValueError` for anything else.

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
    """The words of a name of hardware, in capitals.

    >>> sorted(words("NVIDIA A100-SXM4-40GB"))
    ['40GB', 'A100', 'NVIDIA', 'SXM4']
    """
    return {word.upper() for word in re.split(r"[^0-9A-Za-z]+", name) if word}
