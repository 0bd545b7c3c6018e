"""Question that a user asks the explorer, as a plain value: the whole state of the view, which a token carries.

A question can name something that the results lack, for example after they were read again, or when it comes from a
colleague with other results: `choices.settle` then puts the first valid choice in its place.

A token is text to paste to a colleague, `explorer open explore --view TOKEN`:

    x1.<state>.<check>

`state` is the fields of the question that differ from their defaults: canonical JSON (RFC 8785), compressed (DEFLATE,
RFC 1951), in base64url without padding (RFC 4648). `check` is the beginning of the SHA-256 of everything before it,
so that a token that lost or changed a character is refused and not misread. It is no signature: the content of a
token is checked like any other file from a stranger, and names that the results lack are settled like any other wish.
"""

import base64
import binascii
import hashlib
import re
import zlib
from dataclasses import asdict, replace
from typing import Any, Self

from explorer import schema
from explorer.canonical import canonical
from explorer.errors import AnalysisError, ExplorerError
from explorer.schema import record
from explorer.views.explorer.payments import Payment, payment_of

ALL = "*"
"""The choice of all models, sweeps or hardwares at once."""

SMOOTH = 0.05
"""The share of a run that learning curves are smoothed over at first."""

COMPARE = {"recipe": "Recipe", "methods": "Methods", "hardware": "Hardware", "policy": "Policy"}
"""The choices for the colour of curves."""

SPLITS = {
    "": "one chart",
    "model": "a chart for each model",
    "hardware": "a chart for each hardware",
    "policy": "a chart for each policy",
    "seed": "a chart for each seed",
}
"""The choices for small multiples."""

ORDERS = ("least", "best", "recipe", "reach", "-least", "-best", "-recipe", "-reach")
"""The orders of the comparison table: by the amount at equal quality, by the quality at equal budget, by name, by reach
rate; with "-" the other way round."""


@record
class Question:
    """A view of the results. An empty text means the first choice, an empty tuple for everything."""

    dataset: str = ""
    model: str = ""  # or ALL
    sweep: str = ""  # or ALL
    hardware: str = ""  # a machine in words, or ALL
    cloud: str = ""  # at whose prices, a provider of the price table; empty: own prices, else the cheapest on demand
    metric: str = ""
    recipes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()  # shows recipes with at least one of these, and the baseline
    seeds: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()  # where times come from: measured, profiled, predicted
    compare: str = "recipe"  # a key of COMPARE
    split: str = ""  # a key of SPLITS
    size: str = ""  # a key of `payments.MEASURES`: the meaning of the size of a mark
    baseline: str = ""
    baseline_hardware: str = ""  # a machine in words; empty: the machine of each recipe
    payment: str = "time"  # a key of `PAYMENTS`
    deletion_of: str = ""  # a class, where the x axis is its deletion; empty: the costliest
    log: bool = True
    order: str = "least"  # a key of ORDERS
    target: float | None = None  # None: the baseline's quality at the full budget
    usd_per_hour: float | None = None  # for one accelerator or machine; None: the price table
    brush: tuple[float, ...] = ()  # x from, x to, quality from, quality to
    chosen: tuple[str, ...] = ()  # directories of runs that are shown as cards
    versus: tuple[str, ...] = ()  # two recipes side by side
    section: str = ""  # what is open below the chart, a key of `sections.SECTIONS`
    curve: str = ""  # the metric of the learning curves; empty: the training loss
    curve_x: str = "steps"  # what they are drawn over, a key of `curves_chart.OVER`
    curve_runs: bool = False  # each run, instead of means over seeds
    curve_smooth: float = SMOOTH  # the share of a run; 0: as measured
    curve_log: bool = False
    bands: str = ""  # "all": every recipe has its band; empty: the baseline and what is highlighted
    errors: bool = True  # qualities on a log scale of the error, where they differ enough; else on a plain one

    @property
    def paid_in(self) -> Payment:
        """The x axis: the resource that runs are paid in."""
        return payment_of(self.payment, class_=self.deletion_of)

    @property
    def is_survey(self) -> bool:
        """True for several sweeps at once. They have no common baseline, so nothing is compared."""
        return self.sweep == ALL

    def without(self, *fields: str) -> Self:
        """Return the question with these fields at their defaults."""
        return replace(self, **{name: getattr(Question(), name) for name in fields})

    def as_json(self) -> dict[str, Any]:
        """Return the fields by name, as a token holds them."""
        return asdict(self)


# Fields by what depends on them: an answer is computed again only from the first part that a changed field touches.

OF_CURVES = ("curve", "curve_x", "curve_runs", "curve_smooth", "curve_log")

OF_SECTIONS = ("brush", "chosen", "versus", "section", *OF_CURVES)
"""Fields that only the sections below the chart depend on."""

OF_HIGHLIGHTS = ("bands", *OF_SECTIONS)
"""Fields that leave the drawn chart as it is: they only highlight some of it."""

OF_LAYOUT = ("split", "order", *OF_HIGHLIGHTS)
"""Fields that the content of the chart does not depend on."""

OF_PICTURE = ("recipes", "methods", "compare", "size", "log", "errors", *OF_LAYOUT)
"""Fields that hide or draw: comparisons do not depend on them, because each counts all recipes of the sweep."""

# ---- tokens


PREFIX = "x1"
MAX_TOKEN = 8 * 2**10  # characters
MAX_STATE = 64 * 2**10  # bytes, once decompressed
RAW_DEFLATE = -15  # for zlib: without its header and checksum
WHERE = "the view token"

_FORM = re.compile(r"([A-Za-z0-9]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


def to_token(question: Question) -> str:
    """Return the token of a question. Raises `AnalysisError` for one that no token can hold."""
    default = asdict(Question())
    state = {name: value for name, value in asdict(question).items() if value != default[name]}
    try:
        content = canonical(state)
    except ExplorerError as error:
        raise AnalysisError(f"this view has no token: {error}") from error
    packed = base64.urlsafe_b64encode(zlib.compress(content, 9, RAW_DEFLATE)).decode().rstrip("=")
    token = f"{PREFIX}.{packed}.{_check(packed)}"
    if len(token) > MAX_TOKEN or len(content) > MAX_STATE:
        raise AnalysisError(
            f"this view has no token: it would have {len(token)} characters, at most {MAX_TOKEN} are read; choose fewer"
        )
    return token


def from_token(text: str) -> Question:
    """Return the question of a token, in which spaces and line breaks do not count.

    Raises `AnalysisError` for a token that is cut off or changed, of another version or too large, and for an unknown
    field or a value of another type.
    """
    # The cheap checks come first, so that a hostile text costs nothing: length, form, version, digest, then content.
    if len(text) > 2 * MAX_TOKEN:  # twice, because line breaks do not count
        raise AnalysisError(f"{WHERE}: found {len(text)} characters; at most {MAX_TOKEN} are read")
    token = "".join(text.split())
    if len(token) > MAX_TOKEN:
        raise AnalysisError(f"{WHERE}: found {len(token)} characters; at most {MAX_TOKEN} are read")
    parts = _FORM.fullmatch(token)
    if parts is None:
        raise AnalysisError(
            f"{WHERE}: found {token!r:.60}; expected {PREFIX}.<state>.<check>, as the explorer shows it"
        )
    version, packed, check = parts.groups()
    if version != PREFIX:
        raise AnalysisError(f"{WHERE}: found version {version!r:.20}; this explorer reads {PREFIX!r}")
    if check != _check(packed):
        raise AnalysisError(
            f"{WHERE}: cut off or changed on its way: its check is {check!r:.20}, not {_check(packed)!r}"
        )
    state = schema.parse_json(_unpacked(packed), where=WHERE, error=AnalysisError, max_bytes=MAX_STATE)
    question = schema.from_json(Question, state, where=WHERE, error=AnalysisError)
    to_token(question)  # a view that opens can be passed on: no number and no text that canonical JSON lacks
    return question


def _check(packed: str) -> str:
    """Return the check of a state: 36 bits in six characters, enough against slips of the hand."""
    return base64.urlsafe_b64encode(hashlib.sha256(f"{PREFIX}.{packed}".encode()).digest()).decode()[:6]


def _unpacked(packed: str) -> bytes:
    """Return the bytes of the state; a compression bomb is stopped at `MAX_STATE` bytes."""
    try:
        content = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        unpacker = zlib.decompressobj(RAW_DEFLATE)
        state = unpacker.decompress(content, MAX_STATE + 1)
    except (binascii.Error, zlib.error) as error:
        raise AnalysisError(f"{WHERE}: damaged: {error}") from error
    if len(state) > MAX_STATE:
        raise AnalysisError(f"{WHERE}: it unpacks to more than {MAX_STATE} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise AnalysisError(f"{WHERE}: damaged: the compressed state does not end where the token does")
    return state
