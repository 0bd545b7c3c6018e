"""Content of `notebooks/run.ipynb`: the run, its loss curve and its outcome. Light, because every run executes it.

Tables are plain HTML and the curve is a PNG picture, because JupyterLab shows neither scripts nor SVG of a notebook
that it did not execute itself.
"""

import base64
import html
import itertools
import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import vl_convert
from IPython.display import HTML, Image

from explorer import run_files, rundir
from explorer.analysis.bottleneck import ahead_words, bound_words
from explorer.run_files import METRICS, PLAIN, TRAIN_LOSS, Interval, Metric, ResultRecord, RunRecord, Timeline

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 30, 40
FONT = "Arial, Helvetica, sans-serif"
INK, GRID, LINE = "#333333", "#E6E6E6", "#0072B2"
MAX_POINTS = 2000  # of the curve; more would overlap

SIDE, ABOVE, LANE, GAP = 104, 26, 22, 8  # of the picture of a few steps
LANES: Mapping[str, tuple[str, bool, frozenset[str]]] = {  # colour, of the second thread, parts
    "load": ("#56B4E9", True, frozenset({"read"})),
    "preprocess": ("#E69F00", True, frozenset({"preprocess"})),
    "wait, transfer": ("#CC79A7", False, frozenset({"read", "preprocess", "wait", "transfer"})),
    "compute": ("#0072B2", False, frozenset({"forward", "backward", "optimizer", "governance", "other"})),
}

PHASES = {
    "read": "reading data",
    "preprocess": "preprocessing",
    "transfer": "transfer to the device",
    "wait": "waiting for data",
    "forward": "forward pass",
    "backward": "backward pass",
    "optimizer": "optimiser step",
    "governance": "governance",
    "other": "other work of a step",
}


def describe(directory: Path | str) -> HTML:
    """Return the settings of a run, from its `run.json`, and the command that trains it again.

    That of a recipe comes to the same bits; the run of a command need not.
    """
    path = Path(directory) / rundir.RUN
    run = run_files.read(RunRecord, path)
    hardware = run.hardware
    rows = [
        ("run", _code(run.run_id)),
        ("sweep", html.escape(run.sweep)),
        ("task", f"{html.escape(run.model)} on {html.escape(run.dataset)}"),
        ("recipe", f"<b>{html.escape(run.recipe)}</b>"),
        ("methods", _methods(run)),
        ("budget", f"{run.ssr:g} of the full schedule{_steps(run)}"),
        ("seed", str(run.seed)),
        ("precision", html.escape(run.precision)),
        ("hardware", f"{html.escape(hardware.name)}, {_count(hardware.threads, 'thread')}"),
        *(("guarantees", html.escape(words)) for words in filter(None, (run_files.given_up(run),))),
        ("train again", _code(f"explorer run {shlex.quote(str(path))} --out again")),
    ]
    return HTML(_table(rows))


def loss_curve(directory: Path | str) -> Image:
    """Return a picture of the training loss after every step, with its running mean."""
    points = _read_metric(Path(directory) / rundir.METRICS, TRAIN_LOSS)
    if not points:
        raise ValueError(f"{directory}: no loss was recorded")
    png = vl_convert.svg_to_png(_curve(points, _loss(Path(directory))), scale=1.5)
    return Image(png, width=WIDTH, alt=f"Training loss over {points[-1][0]} steps")


def outcome(result: ResultRecord, directory: Path | str | None = None) -> HTML:
    """Return the final metrics, the digest of the trained model, and where the time went; with the directory of the run
    also what was read ahead of its steps."""
    rows = [(html.escape(name), f"<b>{_value(METRICS.get(name), value)}</b>") for name, value in result.metrics.items()]
    rows += [("examples in the batches", f"{result.examples:,}")] if result.examples else []
    rows.append(("resumed", _count(result.resumed, "time")))
    if result.trunk is not None:  # its records are those of all steps all the same
        rows.append(("first steps", f"{result.trunk.step:,}, made by {_code(result.trunk.run)}"))
    rows += [("digest of the model", _code(result.state_digest))] if result.state_digest else []
    return HTML(
        _table(rows)
        + "<h3>Where the time went</h3>"
        + _times(result)
        + _bound(result)
        + _ahead(result, directory)
        + _caveat(result)
    )


def _steps(run: RunRecord) -> str:
    """Return the amount of training, as far as it is known: that of a command has no batches, and no steps yet."""
    batch = f" of {run.batch_size} examples" if run.batch_size else ""
    return f": {run.steps} steps{batch}" if run.steps else ""


def _methods(run: RunRecord) -> str:
    methods = run.identity["recipe"].get("methods")
    if methods is None:  # the run of a command, whose recipe is values of placeholders
        return "<br>".join(map(html.escape, run.methods)) or "none: the sweep's own values"
    return "<br>".join(_method(*item) for method in methods for item in method.items()) or "none: plain training"


def _method(name: str, parameters: dict[str, Any]) -> str:
    values = ", ".join(f"{key} {value}" for key, value in parameters.items())
    return html.escape(f"{name} ({values})" if values else name)


def _value(metric: Metric | None, value: float) -> str:
    return html.escape(metric.show(value) if metric else f"{value:.4g}")


def _times(result: ResultRecord) -> str:
    """Return the seconds of the timed steps by part, and below them the work that is timed separately."""
    timings, training = result.timings, result.timings.training()
    rows = [
        (label, _seconds(seconds), f"{seconds / training:.0%}")
        for name, label in PHASES.items()
        if (seconds := getattr(timings, name))
    ]
    apart = [
        (f"<i>{label}</i>", _seconds(seconds), "")
        for label, seconds in (
            ("first steps (warm-up)", timings.warmup),
            *([("steps that compiled", timings.compile)] if timings.compile else []),
            ("evaluation", timings.evaluation),
            ("checkpoints", timings.checkpoint),
        )
    ]
    total = ("<b>training</b>", f"<b>{_seconds(training)}</b>", f"{result.timed_steps} steps{_rate(result)}")
    return _table([*rows, total, *apart], header=("part", "seconds", "share"))


def _rate(result: ResultRecord) -> str:
    """Return the examples that training takes in a second, if both are known."""
    training = result.timings.training()
    if not result.examples or not result.steps or not training > 0:
        return ""
    return f", {result.examples / result.steps * result.timed_steps / training:,.4g} examples a second"


def _bound(result: ResultRecord) -> str:
    words = bound_words({part: getattr(result.timings, part) for part in PHASES})
    return f"<p>{html.escape(words)}</p>" if words else ""


def _ahead(result: ResultRecord, directory: Path | str | None) -> str:
    """Return what a second thread read while steps computed, if one did, with a picture."""
    path = None if directory is None else Path(directory) / rundir.TIMELINE
    if path is None or not path.exists() or not result.timed_steps:
        return ""
    timeline = run_files.read(Timeline, path)
    seconds = result.timings.training()
    words = ahead_words(timeline, wait=result.timings.wait, steps=result.timed_steps, seconds=seconds)
    return f"<p>{html.escape(words)}</p>{timeline_html(timeline)}"


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
    height = ABOVE + len(LANES) * (LANE + GAP) + 26
    across = WIDTH - SIDE - RIGHT

    def x(seconds: float) -> float:
        return round(SIDE + across * seconds / end, 1)

    parts = [f'<rect width="{WIDTH}" height="{height}" fill="white"/>', _text("a few steps over time", SIDE, 16)]
    for tick in range(5):
        at = end * tick / 4
        parts.append(f'<line x1="{x(at)}" x2="{x(at)}" y1="{ABOVE}" y2="{height - 24}" stroke="{GRID}"/>')
        parts.append(_text(f"{at * 1e3:.0f} ms", x(at), height - 8, anchor="end" if tick == 4 else "middle"))
    for row, (name, (colour, ahead, of)) in enumerate(LANES.items()):
        y = ABOVE + row * (LANE + GAP)
        parts.append(_text(name, SIDE - 8, y + 15, anchor="end"))
        parts += [_bar(one, x, y, colour) for one in timeline.shown if one.ahead == ahead and one.part in of]
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}">{"".join(parts)}</svg>'


def _bar(interval: Interval, x: Callable[[float], float], y: float, colour: str) -> str:
    start, stop = x(interval.start), x(interval.end)
    width = max(0.5, round(stop - start, 1))
    opacity = 0.45 if interval.part == "wait" else 1
    return f'<rect x="{start}" y="{y}" width="{width}" height="{LANE}" fill="{colour}" fill-opacity="{opacity}"/>'


def _caveat(result: ResultRecord) -> str:
    if not result.contended:
        return ""
    return "<p>Other runs shared the machine, so these times do not measure cost.</p>"


def _table(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Return a table whose first column names the row; the others are numbers with a header, text without one."""
    side = "right" if header else "left"
    head = f"<thead>{_row(header, kind='th', side=side)}</thead>" if header else ""
    body = "".join(_row(row, kind="td", side=side) for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def _row(cells: Sequence[str], *, kind: str, side: str) -> str:
    first, *rest = cells
    others = "".join(f'<{kind} style="text-align: {side}">{cell}</{kind}>' for cell in rest)
    return f'<tr><th style="text-align: left">{first}</th>{others}</tr>'


def _code(text: str) -> str:
    return f"<code>{html.escape(text)}</code>"


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _read_metric(path: Path, name: str) -> list[tuple[int, float]]:
    """Return the measurements of one metric. The file was just written by this process, so it is not checked."""
    lines = map(json.loads, path.read_text().splitlines())
    return [(line["step"], line["value"]) for line in lines if line["metric"] == name]


def _loss(directory: Path) -> Metric:
    """Return the training loss in the unit of the run's task."""
    path = directory / rundir.RUN
    return (run_files.read(RunRecord, path).metric(TRAIN_LOSS) if path.exists() else None) or METRICS[TRAIN_LOSS]


def _curve(points: Sequence[tuple[int, float]], loss: Metric) -> str:
    """Return an SVG picture: the losses as a light line, their running mean as a dark one."""
    # --- scales ---
    smooth = list(zip((step for step, _ in points), _running_mean([loss for _, loss in points]), strict=True))
    shown = _thinned(points)
    x_ticks = _ticks(0, points[-1][0])
    y_ticks = _ticks(min(0.0, *(loss for _, loss in shown)), max(loss for _, loss in shown))
    x_high, y_low, y_high = max(x_ticks[-1], points[-1][0]), y_ticks[0], y_ticks[-1]

    def place(step: float, loss: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / x_high
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (loss - y_low) / (y_high - y_low)
        return round(x, 1), round(y, 1)

    # --- grid and labels ---
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for tick in y_ticks:
        y = place(0, tick)[1]
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="{GRID}"/>')
        parts.append(_text(f"{tick:g}", LEFT - 8, y + 4, anchor="end"))
    for tick in x_ticks:
        parts.append(_text(f"{tick:g}", place(tick, y_low)[0], HEIGHT - BOTTOM + 18, anchor="middle"))
    unit = "" if loss.unit == PLAIN else f" ({loss.unit})"
    parts.append(_text(f"training loss{unit}; dark: running mean", LEFT, 16))
    parts.append(_text("step", WIDTH - RIGHT, HEIGHT - 6, anchor="end"))
    # --- curves, the light one first, so that the dark one lies on top ---
    for line, opacity, width in ((shown, 0.3, 1), (_thinned(smooth), 1, 2)):
        path = " ".join(f"{x},{y}" for x, y in itertools.starmap(place, line))
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-opacity="{opacity}"'
            f' stroke-width="{width}" stroke-linejoin="round"/>'
        )
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">{"".join(parts)}</svg>'


def _text(text: str, x: float, y: float, *, anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-family="{FONT}" font-size="12" fill="{INK}">'
        f"{html.escape(text)}</text>"
    )


def _thinned(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    stride = math.ceil(len(points) / MAX_POINTS)
    return points[::stride]


def _running_mean(values: Sequence[float]) -> list[float]:
    """Return the exponential running mean over about a twentieth of the run.

    It begins at zero, so early means are divided by the weight that they have gathered, as Adam does.
    """
    keep = 1 - 1 / max(1.0, len(values) / 20)
    mean, result = 0.0, []
    for count, value in enumerate(values, start=1):
        mean = keep * mean + (1 - keep) * value
        result.append(mean / (1 - keep**count))
    return result


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers, from at or below `low` to at or above `high`."""
    high = high if high > low else low + 1.0
    span = high - low
    unit = 10.0 ** math.floor(math.log10(span / 4))
    step = next(unit * factor for factor in (1, 2, 5, 10) if span / (unit * factor) <= 5)
    return [index * step for index in range(math.floor(low / step), math.ceil(high / step) + 1)]
