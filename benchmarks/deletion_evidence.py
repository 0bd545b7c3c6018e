"""Measurements of a class that was deleted, of one that was only switched off, and of one that was never there.

    python benchmarks/deletion_evidence.py [RUNS]        writes benchmarks/deletion_evidence.md

The digits, in four classes by label: simulated provenance. One of them, the first digits, is the target, under three
policies: open to all, in the last half of training only, and sealed in adapters of its own. Of each there are three
seeds of the run with the class, and five of the run that never had it. Three minutes of one core.
"""

import dataclasses
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from options import options
from pages import write_page

from explorer import run_files, rundir
from explorer.analysis.forgetting import Findings, Reference, Seeds, judge, over_areas, over_seeds, reference
from explorer.data.digits import Digits
from explorer.provenance.policy import RoutingPolicy, Rule, read_policy
from explorer.provenance.regions import SealedRegion
from explorer.provenance.taxonomy import read_taxonomy
from explorer.recipes.recipe import build_recipe
from explorer.runlog.documents import Documents, keep, read_documents
from explorer.runlog.forecast import forecast
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import resolve
from explorer.training.deletion import delete
from explorer.training.demonstration import demonstrate
from explorer.training.forgetting_evidence import EXAMPLES, STEPS, Behaviour, Bench
from explorer.training.run import execute
from explorer.training.run_plan import plan_run
from explorer.yaml_document import read_document

POLICIES = Path(__file__).resolve().parents[1] / "notebooks" / "policies"
DATA = Digits(simulated_classes=4)
TARGET = "simulated/class-00"
SEEDS, REFERENCES = (0, 1, 2), (0, 1, 2, 3, 4)
TASK = {"dataset": {"digits": {"simulated_classes": 4}}, "model": {"resnet8": {"norm": "group"}}}
TRAIN = {
    "epochs": 6,
    "batch_size": 32,
    "optimizer": {"sgd": {"lr": 0.1, "weight_decay": 5e-3}},
    "schedule": {"cosine": {"warmup": 0.1}},
}
ADMITTED = Rule(classes=("simulated",), weight=1.0)
RULES: dict[str, tuple[Rule, ...]] = {
    "open": (ADMITTED,),
    "late": (Rule(classes=(TARGET,), progress=(0.0, 0.5), weight=0.0), ADMITTED),
    "sealed": (Rule(classes=(TARGET,), weight=0.0), ADMITTED),
}
REGION = SealedRegion(name="own", branch=TARGET, layers=("*",), rank=4)
WORDS = {
    "open": "open to all, from the first step",
    "late": "in the last half of training only",
    "sealed": "sealed in adapters of its own",
}


class Trained:
    """Runs on the digits under one policy, trained where they are not there yet."""

    def __init__(self, runs: Path, documents: Documents, policy: str) -> None:
        self._runs, self._documents, self._policy = runs, documents, policy

    def run(self, seed: int, *, without: Sequence[str] = ()) -> Path:
        """The directory of a finished run."""
        methods = [{"routing": {"policy": self._policy, "without": list(without)}}, "recorder"]
        name = f"{self._policy}-without" if without else self._policy
        recipe = build_recipe(name, task=TASK, train=TRAIN, methods=methods, where=name)
        record = plan_run(
            recipe,
            sweep="evidence",
            baseline=name,
            tuning=None,
            ssr=1.0,
            seed=seed,
            threads=1,
            data=None,
            documents=self._documents,
        )
        directory = self._runs / record.run_id
        keep(self._documents, directory)
        run_files.write(directory / rundir.RUN, record)
        execute(directory)
        return directory


def governance(runs: Path) -> Path:
    """The documents of all three policies."""
    template = read_policy(read_document(POLICIES / "simulated.policy.yaml"))
    policies: list[RoutingPolicy] = [
        dataclasses.replace(template, name=name, rules=rules, sealed=(REGION,) if name == "sealed" else ())
        for name, rules in RULES.items()
    ]
    taxonomy = read_taxonomy(read_document(POLICIES / "simulated.taxonomy.yaml"))
    return demonstrate(
        runs / "_governance", DATA, data=None, taxonomy=taxonomy, policies=policies, now=int(time.time())
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Findings for one policy, over the seeds of the runs with the class."""

    models: dict[str, list[Findings]]
    twins: list[Findings]  # the retrained runs of the same seeds
    retrained: Reference


def measured(trained: Trained) -> Measured:
    """Train and measure. Relearning aims at what each run knew itself, so each has the references measured again."""
    retrained = [trained.run(seed, without=[TARGET]) for seed in REFERENCES]
    models: dict[str, list[Findings]] = {}
    twins, references = [], []
    for seed in SEEDS:
        run = trained.run(seed)
        target = resolve(RunLedger(run), class_=TARGET)
        bench = Bench(run, target)
        references = [bench.without(each) for each in retrained]
        made: dict[str, Behaviour] = {"the run": bench.whole()}
        made |= {"G0, its region off": bench.switched_off()} if bench.sealed else {}
        made |= {"G1, localised and ablated": bench.ablated()}
        route = forecast(RunLedger(run), target).route
        left = delete(run, target, route=route, to=run.parent / "deletions")
        made |= {f"{route.level}, what `explorer delete run` left": bench.without(left)}
        for name, each in made.items():
            models.setdefault(name, []).append(judge(each, references))
        twins += [judge(each, references) for each in references if each.seed == seed]
    return Measured(models=models, twins=twins, retrained=reference(references))


def table(found: Measured) -> str:
    """The numbers of one policy."""
    retrained = found.retrained
    rows = [f"| {name} | {' | '.join(_cells(each, retrained))} |" for name, each in found.models.items()]
    seeds = (retrained.target, retrained.others, retrained.quality, retrained.auc)
    means = [_interval(each) for each in seeds]
    expected = [f"{each.least:.3f} to {each.most:.3f}" for each in seeds]
    rows += [
        f"| **retrained without it**, {retrained.target.n} seeds | {' | '.join(means)} | {_steps(found.twins)} | |",
        f"| where one more of these would lie | {' | '.join(expected)} | | |",
    ]
    return "\n".join(rows)


def _cells(found: list[Findings], retrained: Reference) -> list[str]:
    """Mean and interval over the seeds, marked where a seed's number is not what one more reference would have."""
    numbers = {
        "target": [each.target for each in found],
        "others": [each.others for each in found],
        "quality": [each.quality for each in found],
        "auc": [each.membership.auc for each in found],
    }
    cells = []
    for name, values in numbers.items():
        seeds = over_areas(values, examples=EXAMPLES) if name == "auc" else over_seeds(values)
        outside = sum(not getattr(retrained, name).expects(value) for value in values)
        told = f" **{outside} of {len(values)}**" if outside else ""
        cells.append(f"{_interval(seeds)}{told}")
    return [*cells, _steps(found), f"{sum(bool(each.same) for each in found)} of {len(found)}"]


def _interval(seeds: Seeds) -> str:
    return f"{seeds.mean:.3f} ({seeds.low:.3f} to {seeds.high:.3f})"


def _steps(found: list[Findings]) -> str:
    return " ".join(f"> {STEPS}" if each.relearned is None else str(each.relearned) for each in found)


def report(tables: dict[str, str], *, seconds: float) -> str:
    sections = "\n\n".join(
        f"## {WORDS[name].capitalize()}\n\n"
        "| model | loss on the class | on the others | accuracy | membership | relearned in | equal to retrained |\n"
        "|---|---|---|---|---|---|---|\n"
        f"{each}"
        for name, each in tables.items()
    )
    return f"""# What measurements tell about a deleted class

`resnet8` on the digits, simulated provenance: four classes by label, of which `{TARGET}`, the first digits, is the
target. {len(SEEDS)} seeds of each run, {len(REFERENCES)} of the run that never had the class; {seconds:.0f} s of one
core, runs included. Made by `benchmarks/deletion_evidence.py`.

**None of this is proof.** It shows what the levels are worth by the numbers that an outsider could take. Losses are in
nats on training examples; accuracy is of the test side, which has the class's digits too; membership is the area under
the curve of a test of each example (0.5: chance); relearned in: steps on only the class until it is known as well as
the run knew it, a number for each seed. Means with 95% intervals, by Student's t over the seeds. In bold: in how many
seeds the number is not where one more retrained run would have it (95%). Equal to retrained: in how many seeds
every single loss, the accuracy and the steps are exactly those of the retrained run of the same seed.

{sections}

- What a deletion at G2 or G3 left has the numbers of the retrained run of its seed: not close, the same, every one.
  Under the sealed policy so has the run with its region off, because of the seal and nowhere else.
- G1 puts back every layer that the class trained, with all that the others had taught it since. Open to all, that is
  the untrained model: nothing passes tests of forgetting more easily than a model that knows nothing, and the columns
  of what should have been kept say so. Late, it is the model of half the training: it passes all three tests of
  forgetting and is not the model that never had the class.
- A difference between two seeds is a difference between two models: the spread of the references is the noise that a
  membership test has to rise above. A score is taken from the mean of three models here, and another is held out.
"""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("runs", nargs="?", type=Path, help="a directory that keeps the runs")
    kept = parser.parse_args().runs
    start = time.process_time()
    with tempfile.TemporaryDirectory() as temporary:
        runs = kept or Path(temporary)
        directory = governance(runs)
        tables = {}
        for name in RULES:
            documents = read_documents(directory, policy=name, now=int(time.time()))
            tables[name] = table(measured(Trained(runs / "evidence", documents, name)))
            print(f"{WORDS[name]}\n{tables[name]}\n", flush=True)
    text = report(tables, seconds=time.process_time() - start)
    write_page(Path(__file__).with_suffix(".md"), text)


if __name__ == "__main__":
    main()
