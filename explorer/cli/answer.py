"""The answer of a sweep in the terminal: what each recipe needs to be as good as the baseline."""

from pathlib import Path

from explorer.analysis import sentences
from explorer.analysis.equal_quality import EqualQuality, Outcome, equal_quality
from explorer.cli.output import print_table
from explorer.records import metric_of
from explorer.store import frames
from explorer.store.place import database
from explorer.views import text


def print_answer(runs: Path, sweep: str) -> None:
    """One sentence and the equal-quality table, for time. Quality is the sweep's own metric at its full budget."""
    frame = frames.results(database(runs), sweep=sweep)
    found = sorted(equal_quality(frame), key=lambda result: (result.ratio is None, result.ratio or 0.0))
    kind = metric_of(frame.iloc[0].to_dict())
    full = frame[frame["ssr"] == 1.0].groupby("recipe")["quality"].mean()
    baseline = found[0].baseline
    columns = ("recipe", kind.name, "time to equal", "of baseline", "95% interval", "reach rate")
    rows = [(baseline, text.quality(full.get(baseline), kind), text.seconds(found[0].baseline_x), "1", "", "")]
    for result in found:
        rows.append((result.label, text.quality(full.get(result.recipe), kind), *_needed(result)))
    print(f"\n{sentences.summary(found)}")
    print_table(columns, rows, right=columns[1:4])
    print(f"{kind.name}: mean over seeds at full budget; time to equal: training time to reach {baseline}'s")


def _needed(result: EqualQuality) -> tuple[str, str, str, str]:
    """The time a recipe needs, the ratio, its interval, and how often resampled seeds reach the target."""
    reach = "" if result.reach_rate is None else f"{result.reach_rate:.0%}"
    if result.outcome != Outcome.REACHED or result.ratio is None:
        return str(result.outcome), "", "", reach
    if result.ratio_low is None or result.ratio_high is None:
        interval = "n=1" if result.n == 1 else "none"
    else:
        interval = f"{result.ratio_low:.2f} to {result.ratio_high:.2f}"
    return text.seconds(result.recipe_x), f"{result.ratio:.2f}", interval, reach
