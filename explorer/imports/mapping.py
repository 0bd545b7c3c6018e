"""Which column of a source means what, and the rows of a source as runs.

A column may be named (`--map quality=val/acc`), or is guessed from its name and shown before anything is written. Two
forms say more than a name: `recipe=optimizer+lr` joins several columns, and `seconds=hours*3600` multiplies. Nothing
else is made up: a row without quality is left out and listed, and a text where a number should be is an error.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from explorer.errors import RunError, unknown
from explorer.imports.imported_file import MAX_POINTS, MAX_RUNS, UNKNOWN, Curves, ImportedRun, name_fault
from explorer.run_files import FRACTION, METRICS, Metric

Cell = str | int | float | None

# The meanings, each with the names of columns that are taken for it, the likeliest first. Names are compared without
# case, punctuation and the words that tools put in front ("config/", "metrics.", "_"): see `plain`.
GUESSES: dict[str, tuple[str, ...]] = {
    "recipe": (
        "recipe",
        "method",
        "algorithm",
        "optimizer",
        "variant",
        "group",
        "config",
        "experiment",
        "run_name",
        "name",
    ),
    "budget": (
        *("budget", "ssr", "epochs", "max_epochs", "num_epochs", "num_train_epochs", "max_steps", "num_steps"),
        *("total_steps", "train_steps", "iterations", "max_iters"),
    ),
    "seed": ("seed", "random_seed", "rng_seed", "random_state"),
    "seconds": (
        *("train_seconds", "seconds", "train_time", "training_time", "train_runtime", "runtime", "duration"),
        *("wall_time", "walltime", "elapsed", "time", "duration_seconds"),
    ),
    "quality": (
        *("quality", "test_accuracy", "val_accuracy", "validation_accuracy", "eval_accuracy", "accuracy", "test_acc"),
        *("val_acc", "eval_acc", "acc", "top1", "val_f1", "f1", "mean_iou", "bits_per_byte", "test_loss", "val_loss"),
        *("validation_loss", "eval_loss", "loss"),
    ),
    "steps": ("steps", "global_step", "step"),
    "examples": ("examples", "samples", "tokens"),
    "hardware": ("hardware", "gpu", "gpu_type", "accelerator", "device"),
    "run": ("run_id", "run", "id"),
}
NEEDED = ("recipe", "quality")
SAMPLE = 1000  # rows that a guess looks at

_HIGHER = ("acc", "accuracy", "f1", "auc", "auroc", "iou", "precision", "recall", "dice", "top1", "top5", "map")
_SCORES = ("bleu", "score", "reward", "return", "rouge", "r2")  # higher is better, of any size
_LOWER = ("loss", "nll", "err", "error", "perplexity", "ppl", "mse", "rmse", "mae", "bits", "wer", "cer", "fid")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRow:
    """One run of a source: its cells by column, and its learning curves."""

    where: str  # for messages: file and row
    run_id: str
    cells: Mapping[str, Cell]
    curves: Curves = field(default_factory=dict)
    fault: str = ""  # why it is no finished run, by what its tool says


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A source that was opened: its columns, and its rows, which can be read more than once."""

    tool: str
    name: str
    sha256: str
    columns: tuple[str, ...]
    rows: Callable[[], Iterator[SourceRow]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Meaning:
    """The source of a meaning: columns, whose numbers are multiplied by `factor`."""

    columns: tuple[str, ...]
    factor: float = 1.0
    guessed: bool = False

    @property
    def words(self) -> str:
        times = "" if self.factor == 1 else f"*{self.factor:g}"
        return "+".join(self.columns) + times


Mapped = Mapping[str, Meaning]


@dataclass(frozen=True, kw_only=True, slots=True)
class Converted:
    """A source as runs, with everything that was decided on the way."""

    runs: tuple[ImportedRun, ...]
    mapped: Mapped
    metric: Metric
    baseline: str
    baseline_guessed: bool
    notes: tuple[str, ...]  # decisions in sentences
    left_out: tuple[str, ...]  # rows that are no runs, with the reason
    unused: tuple[str, ...]  # columns that mean nothing here


def given(texts: Iterable[str], columns: Sequence[str]) -> dict[str, Meaning]:
    """Return the meanings that `--map` names. Raises `RunError` for an unknown meaning or column.

    >>> given(["recipe=opt+lr,seconds=hours*3600"], ["opt", "lr", "hours"])["seconds"].factor
    3600.0
    """
    meanings = dict[str, Meaning]()
    for part in (part for text in texts for part in _parts(text, columns)):
        meaning, equals, written = part.partition("=")
        if not equals or not written:
            raise RunError(f"--map: found {part!r:.80}; expected MEANING=COLUMN, such as recipe=optimizer")
        if meaning not in GUESSES:
            raise RunError(f"--map: {unknown('meaning', meaning, GUESSES)}")
        if meaning in meanings:
            raise RunError(f"--map: found {meaning} twice; expected it once")
        meanings[meaning] = _meaning(written, columns)
    return meanings


def guessed(source: Source, meanings: Mapping[str, Meaning]) -> dict[str, Meaning]:
    """Return the meanings with guesses for those that are not given, where a column has a likely name and content.

    Raises `RunError` where a needed meaning has no column.
    """
    sample = list(islice(source.rows(), SAMPLE))
    if not sample:
        raise RunError(f"{source.name}: no row below the header")
    taken = {column for meaning in meanings.values() for column in meaning.columns}
    mapped = dict(meanings)
    for meaning, names in GUESSES.items():
        if meaning in mapped:
            continue
        free = {}
        for column in source.columns:
            if column not in taken:
                free.setdefault(plain(column), column)
        numeric = meaning not in ("recipe", "hardware", "run")
        column = next(
            (free[name] for name in names if name in free and _fits(free[name], sample, numeric=numeric)), None
        )
        if column is not None:
            mapped[meaning] = Meaning(columns=(column,), guessed=True)
            taken.add(column)
    for meaning in NEEDED:
        if meaning not in mapped:
            shown = ", ".join(source.columns[:40])
            raise RunError(
                f"{source.name}: no column looks like the {meaning}; name it with --map {meaning}=COLUMN."
                f" Columns: {shown or 'none'}"
            )
    return mapped


def plain(column: str) -> str:
    """Return the name of a column as it is compared: `config/Learning-Rate` is `learning_rate`.

    >>> plain("metrics.val/acc"), plain("_runtime"), plain("params.seed")
    ('val_acc', 'runtime', 'seed')
    """
    # A tool's prefix is dropped; "val/acc" is a metric's own name and stays whole.
    name = re.sub(r"^(config|summary|params|metrics|tags)[./]", "", column.strip(), flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def metric_name(column: str) -> str:
    """Return a column's name as that of a metric.

    >>> metric_name("metrics.val/acc"), metric_name("1st")
    ('val_acc', 'm_1st')
    """
    name = re.sub(r"[^A-Za-z0-9_.@+-]", "_", re.sub(r"^(config|summary|params|metrics)[./]", "", column))
    return (name if re.match(r"[A-Za-z]", name) else f"m_{name}")[:64]


def convert(
    source: Source, mapped: Mapped, *, baseline: str | None = None, better: str | None = None, metric: str | None = None
) -> Converted:
    """Return the rows of a source as runs.

    Args:
        source: the source.
        mapped: what its columns mean.
        baseline: the recipe that others are compared with; by default one that is called so, else the first.
        better: "higher" or "lower"; by default what the metric's name says.
        metric: name of the metric; by default that of its column.

    Raises `RunError` that names file, row and column for what cannot be a run.
    """
    rows, left_out = list[_Read](), list[str]()
    points = 0
    for row in source.rows():
        read = _read(row, mapped)
        if isinstance(read, str):
            left_out.append(read)
            continue
        rows.append(read)
        points += sum(len(steps) for steps, _ in row.curves.values())
        if len(rows) > MAX_RUNS:
            raise RunError(f"{source.name}: more than {MAX_RUNS:,} runs; import a part of it")
        if points > MAX_POINTS:
            raise RunError(f"{source.name}: more than {MAX_POINTS:,} points of learning curves; import a part of it")
    if not rows:
        some = f": {left_out[0]}" if left_out else ""
        raise RunError(f"{source.name}: no row is a run with a quality{some}")
    named = _metric_names(row.curves for row in rows)
    kind, scale, said = _metric(metric or mapped["quality"].columns[-1], [row.quality for row in rows], better=better)
    full, budget_words = _full(rows, mapped)
    numbers = _seeds(rows, "seed" in mapped, full)
    runs = tuple(
        ImportedRun(
            run_id=row.run_id,
            recipe=row.recipe,
            ssr=row.budget / full,
            seed=seed,
            quality=row.quality * scale,
            seconds=row.seconds,
            steps=row.steps or max((steps[-1] for steps, _ in row.curves.values()), default=0) or None,
            examples=row.examples,
            hardware=row.hardware,
            curves={named[metric]: points for metric, points in row.curves.items()},
        )
        for row, seed in zip(rows, numbers, strict=True)
    )
    _refuse_twice(runs, rows)
    base, base_guessed = _baseline([run.recipe for run in runs], baseline)
    used = {column for meaning in mapped.values() for column in meaning.columns}
    notes = [said, budget_words]
    if "seed" not in mapped:
        notes.append("seeds: rows of one recipe and budget are numbered in their order")
    if "seconds" not in mapped:
        notes.append("seconds: no column, so no time is known")
    return Converted(
        runs=runs,
        mapped=mapped,
        metric=kind,
        baseline=base,
        baseline_guessed=base_guessed,
        notes=tuple(notes),
        left_out=tuple(left_out),
        unused=tuple(column for column in source.columns if column not in used),
    )


# --- one row ---


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """A row whose cells were read."""

    where: str
    run_id: str
    recipe: str
    budget: float
    seed: int | None
    quality: float
    seconds: float | None
    steps: int | None
    examples: int | None
    hardware: str
    curves: Curves


def _read(row: SourceRow, mapped: Mapped) -> "_Read | str":
    """Return what a row says of its run; a sentence if it is none, because it lacks recipe or quality."""
    if row.fault:
        return f"{row.where}: {row.fault}"
    recipe = _recipe(row, mapped["recipe"])
    if recipe is None:
        return f"{row.where}: no recipe"
    quality = _number(row, mapped["quality"])
    if quality is None or not math.isfinite(quality):
        shown = "no quality" if quality is None else f"the quality is {quality}"
        return f"{row.where}: {shown}"
    budget = _finite(row, mapped, "budget")
    if budget is not None and budget <= 0:
        raise _fault(row, mapped["budget"], f"found {budget:g}; expected a budget above 0")
    if budget is None and "budget" in mapped:
        return f"{row.where}: no budget"
    seconds = _finite(row, mapped, "seconds")
    if seconds is not None and seconds <= 0:
        raise _fault(row, mapped["seconds"], f"found {seconds:g}; expected seconds above 0")
    hardware = _text(row, mapped.get("hardware")) or UNKNOWN
    run_id = (_text(row, mapped.get("run")) or row.run_id).replace("/", "_")
    for meaning, text in (("recipe", recipe), ("hardware", hardware), ("run", run_id)):
        if fault := name_fault(text):
            raise _fault(row, mapped.get(meaning), f"{text!r:.40} cannot be a name: {fault}")
    return _Read(
        where=row.where,
        run_id=run_id,
        recipe=recipe,
        budget=1.0 if budget is None else budget,
        seed=_whole(row, mapped, "seed", least=0),
        quality=quality,
        seconds=seconds,
        steps=_whole(row, mapped, "steps", least=1),
        examples=_whole(row, mapped, "examples", least=1),
        hardware=hardware,
        curves=row.curves,
    )


def _recipe(row: SourceRow, meaning: Meaning) -> str | None:
    if len(meaning.columns) == 1:
        return _text(row, meaning)
    cells = [(plain(column), _words(row.cells.get(column))) for column in meaning.columns]
    return " ".join(f"{name}={text or '-'}" for name, text in cells) if any(text for _, text in cells) else None


def _text(row: SourceRow, meaning: Meaning | None) -> str | None:
    return None if meaning is None else _words(row.cells.get(meaning.columns[0])) or None


def _words(cell: Cell) -> str:
    return "" if cell is None else " ".join(str(cell).split())


_PERCENT = re.compile(r"(.*\d)\s*%\Z")


def _number(row: SourceRow, meaning: Meaning) -> float | None:
    """Return a number, which may be NaN or infinite; None for an empty cell."""
    cell = row.cells.get(meaning.columns[0])
    if cell is None or cell == "":
        return None
    try:
        return parsed(cell) * meaning.factor
    except ValueError:
        raise _fault(row, meaning, f"found {cell!r:.60}; expected a number") from None


def parsed(cell: str | int | float) -> float:
    """Return a cell as a number: `0.97`, `97%`, `1e-3`. Raises `ValueError` for anything else.

    >>> parsed("97%"), parsed(" 1e-3")
    (0.97, 0.001)
    """
    if isinstance(cell, str):
        text = cell.strip()
        if "_" in text or len(text) > 60 or not text.isascii():  # Python would read 1_000 and other scripts' digits
            raise ValueError(text)
        percent = _PERCENT.match(text)
        return float(percent[1]) / 100 if percent else float(text)
    return float(cell)


def _finite(row: SourceRow, mapped: Mapped, name: str) -> float | None:
    """Return a number; None where there is no column, an empty cell or NaN."""
    number = _number(row, mapped[name]) if name in mapped else None
    return number if number is not None and math.isfinite(number) else None


def _whole(row: SourceRow, mapped: Mapped, name: str, *, least: int) -> int | None:
    number = _finite(row, mapped, name)
    if number is None:
        return None
    if number != int(number) or not least <= number < 2**53:
        raise _fault(row, mapped[name], f"found {number:g}; expected a whole number of {least} or more")
    return int(number)


def _fault(row: SourceRow, meaning: Meaning | None, message: str) -> RunError:
    column = f", column {'+'.join(meaning.columns)!r:.80}" if meaning else ""
    return RunError(f"{row.where}{column}: {message}")


# --- all rows ---


def _metric(name: str, values: Sequence[float], *, better: str | None) -> tuple[Metric, float, str]:
    """Return the metric of the qualities, what they are multiplied by, and how that was decided."""
    known = METRICS.get(plain(name))
    parts = plain(name).split("_")
    higher = any(part in (*_HIGHER, *_SCORES) for part in parts)
    if better is None and known is None and higher == any(part in _LOWER for part in parts):
        raise RunError(
            f"{name!r:.80}: whether higher is better cannot be told from the name: say --better higher or lower"
        )
    up = better == "higher" if better is not None else known.higher_is_better if known else higher
    share = up and (known.unit == FRACTION if known else any(part in _HIGHER for part in parts))
    least, most = min(values), max(values)
    fraction = share and least >= 0 and most <= 100
    scale = 0.01 if fraction and most > 1 else 1.0
    label = metric_name(name)
    unit = FRACTION if fraction else known.unit if known and known.unit != FRACTION else "1"
    words = f"quality: {label}, {'higher' if up else 'lower'} is better"
    words += ", read as percent and divided by 100" if scale != 1 else ""
    return Metric(name=label, unit=unit, higher_is_better=up), scale, words


def _metric_names(curves: Iterable[Iterable[str]]) -> dict[str, str]:
    """Return the name of each metric; of several that would have one name, all but the first are numbered."""
    named, taken = dict[str, str](), Counter[str]()
    for metric in dict.fromkeys(metric for names in curves for metric in names):
        name = metric_name(metric)
        taken[name] += 1
        named[metric] = name if taken[name] == 1 else f"{name[:56]}_{taken[name]}"
    return named


def _full(rows: Sequence[_Read], mapped: Mapped) -> tuple[float, str]:
    """Return the full budget, in the source's unit, and how it was decided."""
    if "budget" not in mapped:
        return 1.0, "budget: no column, so every run counts as one of the full budget"
    most = max(row.budget for row in rows)
    if most <= 1:
        return 1.0, "budget: fractions of the full budget, as they are"
    return most, f"budget: fractions of the largest, {most:g} ({mapped['budget'].words})"


def _seeds(rows: Sequence[_Read], mapped: bool, full: float) -> Iterator[int]:
    """Yield the seeds. Where the source has none, rows of one recipe, budget and hardware are numbered."""
    seen = Counter[tuple[str, float, str]]()
    for row in rows:
        if mapped and row.seed is None:
            raise RunError(f"{row.where}: no seed; leave seeds to their order with --map without seed=")
        if row.seed is not None:
            yield row.seed
            continue
        key = row.recipe, row.budget / full, row.hardware
        yield seen[key]
        seen[key] += 1


def _refuse_twice(runs: Sequence[ImportedRun], rows: Sequence[_Read]) -> None:
    """Raise `RunError` for two runs with one name, or of one recipe, budget, seed and hardware."""
    names, keys = dict[str, str](), dict[tuple[object, ...], str]()
    for run, row in zip(runs, rows, strict=True):
        first = names.setdefault(run.run_id, row.where)
        if first != row.where:
            raise RunError(f"{row.where}: the run {run.run_id!r:.80} is there twice: see {first}")
        first = keys.setdefault(run.key, row.where)
        if first != row.where:
            raise RunError(
                f"{row.where}: the same recipe, budget and seed as {first} ({run.recipe!r:.60}, {run.ssr:g}, seed"
                f" {run.seed}); tell them apart with --map, for example recipe=recipe+lr"
            )


def _baseline(recipes: Sequence[str], wanted: str | None) -> tuple[str, bool]:
    """Return the baseline, and whether it was guessed."""
    names = list(dict.fromkeys(recipes))
    if wanted is not None:
        if wanted not in names:
            raise RunError(f"--baseline: {unknown('recipe', wanted, names[:40])}")
        return wanted, False
    called = next((name for name in names if "baseline" in name.lower()), None)
    return (called, True) if called else (min(names), True)


def _parts(text: str, columns: Sequence[str]) -> Iterator[str]:
    """Yield the parts of a `--map`, between commas that a meaning follows: names of columns may contain commas."""
    yield from re.split(rf",(?=(?:{'|'.join(GUESSES)}|[a-z]+)=)", text)


def _meaning(written: str, columns: Sequence[str]) -> Meaning:
    if written in columns:
        return Meaning(columns=(written,))
    factor = re.fullmatch(r"(.+)\*([0-9.e+-]{1,20})", written)
    if factor and factor[1] in columns:
        try:
            times = float(factor[2])
        except ValueError:
            times = math.nan
        if not 0 < times < math.inf:
            raise RunError(f"--map: found {written!r:.80}; expected COLUMN*NUMBER with a number above 0")
        return Meaning(columns=(factor[1],), factor=times)
    parts = tuple(written.split("+"))
    if len(parts) > 1 and all(part in columns for part in parts):
        return Meaning(columns=parts)
    missing = next((part for part in parts if part not in columns), written)
    raise RunError(f"--map: {unknown('column', missing, columns)}")


def _fits(column: str, sample: Sequence[SourceRow], *, numeric: bool) -> bool:
    """Return whether the first rows have something in a column, and numbers where numbers are expected."""
    cells = [cell for row in sample if (cell := row.cells.get(column)) is not None and cell != ""]
    if not numeric:
        return bool(cells)
    try:
        return bool([parsed(cell) for cell in cells])
    except ValueError:
        return False
