"""What a user of the explorer asks, as a plain value: the whole state of the view, which a token can carry.

A question can name what the results do not have, for example after they were read again, or because it comes from a
colleague whose results are others. `settle.settle` then puts the first valid choice in its place.
"""

from dataclasses import asdict
from typing import Any

from explorer.schema import record
from explorer.views.axes import Payment, payment_of

ALL = "*"
"""The choice of all models, sweeps or hardwares at once."""

COMPARE = {"recipe": "Recipe", "methods": "Methods", "hardware": "Hardware", "policy": "Policy"}
"""What gives curves their colour."""

SPLITS = {
    "": "one chart",
    "model": "a chart for each model",
    "hardware": "a chart for each hardware",
    "policy": "a chart for each policy",
    "seed": "a chart for each seed",
}
"""What small multiples are made for."""

ORDERS = {"least": "least {payment} at equal quality", "best": "best quality at equal {payment}"}


@record
class Question:
    """A view of the results. An empty text stands for the first choice, an empty tuple for everything."""

    dataset: str = ""
    model: str = ""  # or ALL
    sweep: str = ""  # or ALL
    hardware: str = ""  # a machine in words, or ALL
    cloud: str = ""  # at whose prices, a provider of the price table; empty: own prices, else the cheapest on demand
    metric: str = ""
    recipes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()  # recipes with at least one of these, beside the baseline
    seeds: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()  # where times come from: measured, profiled, predicted
    compare: str = "recipe"  # a key of COMPARE
    split: str = ""  # a key of SPLITS
    size: str = ""  # a key of `measures.MEASURES`: what the size of a mark says
    baseline: str = ""
    baseline_hardware: str = ""  # a machine in words; empty: of each recipe its own
    payment: str = "time"  # a key of `PAYMENTS`
    deletion_of: str = ""  # a class, where deletion is what is paid; empty: the dearest
    log: bool = True
    order: str = "least"  # a key of ORDERS
    target: float | None = None  # None: the baseline's quality at the full budget
    usd_per_hour: float | None = None  # for one accelerator or machine; None: the price table
    brush: tuple[float, ...] = ()  # x from, x to, quality from, quality to
    chosen: tuple[str, ...] = ()  # directories of runs that are shown as cards
    versus: tuple[str, ...] = ()  # two recipes side by side
    section: str = ""  # what is open below the chart, a key of `sections.SECTIONS`

    @property
    def paid_in(self) -> Payment:
        """What runs are paid in."""
        return payment_of(self.payment, class_=self.deletion_of)

    @property
    def is_survey(self) -> bool:
        """Whether several sweeps are looked at, which have no common baseline: nothing is compared then."""
        return self.sweep == ALL

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
