"""A picture of a few steps: what the program did, and what the thread that reads ahead did meanwhile."""

import base64
import html
from collections.abc import Callable, Mapping

import vl_convert

from explorer.run_files import Interval, Timeline

WIDTH, LEFT, RIGHT, TOP, LANE, GAP = 720, 104, 16, 26, 22, 8
FONT = "Arial, Helvetica, sans-serif"
INK, GRID = "#333333", "#E6E6E6"

LANES: Mapping[str, tuple[str, bool, frozenset[str]]] = {  # colour, of the second thread, parts
    "load": ("#56B4E9", True, frozenset({"read"})),
    "preprocess": ("#E69F00", True, frozenset({"preprocess"})),
    "wait, transfer": ("#CC79A7", False, frozenset({"read", "preprocess", "wait", "transfer"})),
    "compute": ("#0072B2", False, frozenset({"forward", "backward", "optimizer", "governance", "other"})),
}


def timeline_html(timeline: Timeline) -> str:
    """Return the picture as HTML, or nothing where no step is shown."""
    # PNG, since JupyterLab shows no SVG of notebooks that it did not execute itself.
    if not timeline.shown:
        return ""
    png = base64.b64encode(vl_convert.svg_to_png(timeline_svg(timeline), scale=1.5)).decode()
    words = "Loading, preprocessing, transfer and computing of a few steps, over time"
    return f'<img alt="{words}" width="{WIDTH}" src="data:image/png;base64,{png}"/>'


def timeline_svg(timeline: Timeline) -> str:
    """Return the picture as SVG: four lanes over time."""
    end = max(interval.end for interval in timeline.shown)
    height = TOP + len(LANES) * (LANE + GAP) + 26
    across = WIDTH - LEFT - RIGHT

    def x(seconds: float) -> float:
        return round(LEFT + across * seconds / end, 1)

    parts = [f'<rect width="{WIDTH}" height="{height}" fill="white"/>', _text("a few steps over time", LEFT, 16)]
    for tick in range(5):
        at = end * tick / 4
        parts.append(f'<line x1="{x(at)}" x2="{x(at)}" y1="{TOP}" y2="{height - 24}" stroke="{GRID}"/>')
        parts.append(_text(f"{at * 1e3:.0f} ms", x(at), height - 8, anchor="end" if tick == 4 else "middle"))
    for row, (name, (colour, ahead, of)) in enumerate(LANES.items()):
        y = TOP + row * (LANE + GAP)
        parts.append(_text(name, LEFT - 8, y + 15, anchor="end"))
        parts += [_bar(one, x, y, colour) for one in timeline.shown if one.ahead == ahead and one.part in of]
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}">{"".join(parts)}</svg>'


def _bar(interval: Interval, x: Callable[[float], float], y: float, colour: str) -> str:
    start, stop = x(interval.start), x(interval.end)
    width = max(0.5, round(stop - start, 1))
    opacity = 0.45 if interval.part == "wait" else 1
    return f'<rect x="{start}" y="{y}" width="{width}" height="{LANE}" fill="{colour}" fill-opacity="{opacity}"/>'


def _text(text: str, x: float, y: float, *, anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-family="{FONT}" font-size="12" fill="{INK}">'
        f"{html.escape(text)}</text>"
    )
