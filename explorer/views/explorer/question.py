"""Question that a user asks the explorer, as a plain value: the whole state of the view, which a token carries.

A question can name something that the results lack, for example after they were read again, or when it comes from a
colleague with other results: `choices.settle` then puts the first valid choice in its place.

A token is a view as text, to read, to edit and to send, for `explorer open explore --view TOKEN`:

    digits?metric=accuracy&x=cost&target=0.97&recipes=baseline,fast

Before the question mark is the sweep, `*` for all; behind it the fields that differ from their defaults, by name. Lists
have commas; what would be misread in a name is written as in a URL (`%2C`). A token comes from a stranger: it is
checked like any other file, and names that the results lack are settled like any other wish.

Tokens of the first version are still read:

    x1.<state>.<check>

`state` is canonical JSON (RFC 8785), compressed (DEFLATE, RFC 1951), in base64url without padding (RFC 4648). `check`
is the beginning of the SHA-256 of everything before it.
"""

import base64
import binascii
import hashlib
import math
import re
import shlex
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Self, get_type_hints
from urllib.parse import quote, unquote

from explorer import schema
from explorer.analysis.smoothing import SMOOTH
from explorer.errors import AnalysisError, unknown
from explorer.schema import record
from explorer.views.explorer.payments import PAYMENTS, Payment, payment_of

ALL = "*"
"""The choice of all models, sweeps or hardwares at once."""

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
    baseline_sweep: str = ""  # of all sweeps at once: the one whose baseline the recipes of all are compared with

    @property
    def paid_in(self) -> Payment:
        """The x axis: the resource that runs are paid in."""
        return payment_of(self.payment, class_=self.deletion_of)

    @property
    def across(self) -> bool:
        """True for several sweeps at once."""
        return self.sweep == ALL

    @property
    def is_survey(self) -> bool:
        """True for several sweeps without a baseline in common, so that nothing is compared."""
        return self.across and not self.baseline_sweep

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

OF_DRAWING = ("size", "log", "errors", *OF_LAYOUT)
"""Fields that only draw: what is drawn does not depend on them."""

OF_PICTURE = ("recipes", "methods", "compare", *OF_DRAWING)
"""Fields that hide or draw: comparisons do not depend on them, because each counts all recipes of the sweep."""

# ---- tokens


MAX_TOKEN = 8 * 2**10  # characters
EXAMPLE = "digits?metric=accuracy&target=0.97&recipes=baseline,fast"
WHERE = "the view"

X = "x"  # the name of the field `payment` in a token, as the chart has it
CHOICES = {"payment": PAYMENTS, "compare": COMPARE, "split": SPLITS, "order": ORDERS}
"""The fields whose values no results decide."""

_FIRST = ("metric", "payment", "target", "recipes")  # what people look for in a token
_FIELDS = {  # name in a token: field, in the order of a token
    X if name == "payment" else name: name
    for name in (*_FIRST, *(field.name for field in fields(Question) if field.name not in ("sweep", *_FIRST)))
}
_KINDS = get_type_hints(Question)
_YES, _NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_SWEEP = re.compile(r"[\w%*~-]*", re.ASCII)
_COMMAND = re.compile(r"\s*explorer open (?:explore )?--view[ =](.+)", re.DOTALL)  # what the button Copy copies


def to_token(question: Question) -> str:
    """Return the token of a question. Raises `AnalysisError` for one that no token can hold."""
    default = Question()
    differing = {key: name for key, name in _FIELDS.items() if getattr(question, name) != getattr(default, name)}
    try:
        pairs = [f"{key}={_written(getattr(question, name))}" for key, name in differing.items()]
        # A dot would look like a token of the first version.
        sweep = quote(question.sweep, safe="*").replace(".", "%2E")
    except ValueError as error:  # of a lone surrogate too
        raise AnalysisError(f"this view has no token: {error}") from error
    token = f"{sweep}?{'&'.join(pairs)}" if pairs else sweep or "?"
    if len(token) > MAX_TOKEN:
        raise AnalysisError(
            f"this view has no token: it would have {len(token)} characters, at most {MAX_TOKEN} are read; choose fewer"
        )
    return token


def from_token(text: str) -> Question:
    """Return the question of a token, in which line breaks do not count, or of the command that opens it.

    Raises `AnalysisError` for a token that is too large, for an unknown field or choice, for a value of another type,
    and for a token of the first version that is cut off or changed.
    """
    # The cheap check comes first, so that a hostile text costs nothing.
    if len(text) > 2 * MAX_TOKEN:  # twice, because line breaks do not count
        raise AnalysisError(f"{WHERE}: found {len(text)} characters; at most {MAX_TOKEN} are read")
    if command := _COMMAND.fullmatch(text):
        text = _argument(command[1])
    token = "".join(line.strip() for line in text.splitlines())
    if len(token) > MAX_TOKEN:
        raise AnalysisError(f"{WHERE}: found {len(token)} characters; at most {MAX_TOKEN} are read")
    if first := _FORM.fullmatch("".join(token.split())):
        return _of_first_version(*first.groups())
    sweep, mark, pairs = token.partition("?")
    if not mark and "=" in sweep:
        sweep, pairs = "", sweep
    if not token or not _SWEEP.fullmatch(sweep):
        raise AnalysisError(f"{WHERE}: found {token!r:.60}; expected SWEEP?FIELD=VALUE&..., such as {EXAMPLE}")
    return question_of(_unquoted(sweep), _pairs(pairs))


def question_of(sweep: str, written: dict[str, str]) -> Question:
    """Return the question about a sweep, with fields by their names in a token, and as texts as a token has them.

    Raises `AnalysisError` for an unknown field or choice and for a value of another type.
    """
    state: dict[str, Any] = {}
    for key, text in written.items():
        if key not in _FIELDS:
            raise AnalysisError(f"{WHERE}: {unknown('field', key, _FIELDS)}")
        name = _FIELDS[key]
        value = state[name] = _read(key, text, _KINDS[name])
        if name in CHOICES and value not in CHOICES[name]:
            raise AnalysisError(f"{WHERE}: {unknown(key, text, filter(None, CHOICES[name]))}")
    question = schema.from_json(Question, {"sweep": sweep, **state}, where=WHERE, error=AnalysisError)
    to_token(question)  # a view that opens can be passed on
    return question


def composed(view: str | None, sweep: str | None, written: dict[str, str]) -> str:
    """Return the token of a view in which a sweep, and fields by their names in a token, have other values.

    Raises `AnalysisError` for what `from_token` refuses.
    """
    whole = from_token(view) if view else Question()
    changed = question_of(whole.sweep if sweep is None else sweep, written)
    names = ["sweep", *(_FIELDS[key] for key in written)]
    return to_token(replace(whole, **{name: getattr(changed, name) for name in names}))


def changed(question: Question, wished: Mapping[str, object]) -> Question:
    """Return a question with other fields, by their names here or in a token, as Python has them or as a token does.

    Raises `AnalysisError` for an unknown field, and for a value of another type.
    """
    state = question.as_json()
    for key, value in wished.items():
        name = _FIELDS.get(key, key)
        if name not in _KINDS:
            raise AnalysisError(f"{WHERE}: {unknown('field', key, ['sweep', *_FIELDS])}")
        if isinstance(value, str) and _KINDS[name] is not str:
            value = _read(key, value, _KINDS[name])
        state[name] = list(value) if isinstance(value, tuple) else value
    try:
        question = schema.from_json(Question, state, where=WHERE, error=AnalysisError)
    except TypeError as error:
        raise AnalysisError(f"{WHERE}: {error}; expected texts, numbers, or lists of them") from error
    to_token(question)
    return question


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in filter(None, text.split("&")):
        key, equals, value = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise AnalysisError(f"{WHERE}: found {pair!r:.60}; expected FIELD=VALUE, such as target=0.97")
        if key in pairs:
            raise AnalysisError(f"{WHERE}: {key} is given twice")
        pairs[key] = value
    return pairs


def _written(value: Any) -> str:
    """Return a value as a token has it. Raises `ValueError` for a number that is not finite."""
    if isinstance(value, tuple):
        return ",".join(map(_written, value))
    if isinstance(value, bool):
        return _YES[0] if value else _NO[0]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"found {value}; expected a finite number")
        return repr(value).removesuffix(".0")
    return quote(str(value), safe="/:@()*")


def _read(key: str, text: str, kind: Any) -> Any:
    """Return a value of a token as JSON would have it."""
    if kind is bool:
        word = text.strip().lower()
        if word not in (*_YES, *_NO):
            raise AnalysisError(f"{WHERE}: {key}: found {text!r:.40}; expected yes or no")
        return word in _YES
    one: Callable[[str], Any] = _unquoted
    if kind in (tuple[float, ...], float, float | None):
        one = _number(key, float)
    elif kind in (tuple[int, ...], int | None, int):
        one = _number(key, int)
    return [one(part) for part in text.split(",")] if getattr(kind, "__origin__", None) is tuple else one(text)


def _number(key: str, kind: type[float] | type[int]) -> Callable[[str], float]:
    def read(text: str) -> float:
        written = _unquoted(text).strip()
        share = kind is float and written.endswith("%")
        digits = written.removesuffix("%").rstrip() if share else written
        if not _NUMBER.fullmatch(digits) or (kind is int and not _WHOLE.fullmatch(digits)):
            example = "0.97 or 97%" if kind is float else "0"
            raise AnalysisError(f"{WHERE}: {key}: found {text!r:.40}; expected a number, such as {example}")
        if kind is int:
            return int(digits)
        # The decimal point is moved in the text: 96.7 / 100 would be 0.9670000000000001.
        value = float(f"{digits}e-2") if share and "e" not in digits.lower() else float(digits) / (100 if share else 1)
        if not math.isfinite(value):
            raise AnalysisError(f"{WHERE}: {key}: found {text!r:.40}; too large for a number")
        return value

    return read


def _argument(text: str) -> str:
    """Return the only argument in a part of a command line."""
    try:
        (argument,) = shlex.split(text)
    except ValueError as error:
        raise AnalysisError(f"{WHERE}: found {text!r:.60}; expected one view in quotes, such as '{EXAMPLE}'") from error
    return argument


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise AnalysisError(f"{WHERE}: found {text!r:.60}, which is not UTF-8") from error


# ---- tokens of the first version

PREFIX = "x1"
MAX_STATE = 64 * 2**10  # bytes, once decompressed
RAW_DEFLATE = -15  # for zlib: without its header and checksum

_FORM = re.compile(r"([A-Za-z0-9]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


def _of_first_version(version: str, packed: str, check: str) -> Question:
    # Version, then digest, then content.
    if version != PREFIX:
        raise AnalysisError(f"{WHERE}: found version {version!r:.20}; this explorer reads {PREFIX!r}, and {EXAMPLE}")
    if check != _check(packed):
        raise AnalysisError(
            f"{WHERE}: cut off or changed on its way: its check is {check!r:.20}, not {_check(packed)!r}"
        )
    state = schema.parse_json(_unpacked(packed), where=WHERE, error=AnalysisError, max_bytes=MAX_STATE)
    question = schema.from_json(Question, state, where=WHERE, error=AnalysisError)
    to_token(question)
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
