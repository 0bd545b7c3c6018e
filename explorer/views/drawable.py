"""A chart's specification with texts that can be drawn, for whatever turns it into a picture.

A control character in a name ends the whole process in vl-convert, which measures words as XML, and half a character
(a lone surrogate) is refused by it; measuring a name of 10,000 characters takes it seconds. So names are cleaned, and
long ones cut. A name that was changed ends in the beginning of its digest, because two names that a chart takes for
one would be one curve: tables beside the chart have them whole.
"""

import hashlib
import re
from typing import Any

LONGEST = 200  # characters of a name in a chart, whose labels show fewer
PROGRAMS = ("expr", "labelExpr", "calculate", "filter", "test")  # keys whose texts are not names
PROSE = ("description",)  # read aloud, and not measured
INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def drawable(value: Any, key: str = "") -> Any:
    """A specification, or the part of one that stands under `key`, made fit."""
    if isinstance(value, str):
        return _fit(value, key)
    if isinstance(value, list):
        return [drawable(each, key) for each in value]
    return {name: drawable(each, name) for name, each in value.items()} if isinstance(value, dict) else value


def _fit(text: str, key: str) -> str:
    shown = INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text)
    if key in PROGRAMS or key in PROSE or (shown == text and len(text) <= LONGEST):
        return shown
    mark = f" ({hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:6]})"
    room = LONGEST - len(mark)
    return (shown if len(shown) <= room else f"{shown[: room - 40]}\N{HORIZONTAL ELLIPSIS}{shown[-39:]}") + mark
