"""`explorer delete evidence`: what measurements tell about a class in a model, beside models trained without it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.output import print_json, print_table, visible
from explorer.cli.settings import Data, Json
from explorer.cli.trace import RunDirectory

if TYPE_CHECKING:
    from explorer.analysis.forgetting import Findings, Reference, Seeds

NO_PROOF = (
    "Evidence, and no proof: that measurements find nothing does not show that nothing is left. What a deletion rests"
    " on is the ledger and the certificate that names it: explorer delete verify."
)
COLUMNS = ("loss on it", "on the others", "membership", "relearned in", "equal")
NUMBERS = ("target", "others", "quality", "auc", "relearned")
FEW = 8  # references below which the table says what they cannot show


def evidence(
    run: RunDirectory,
    class_: Annotated[str, typer.Argument(metavar="CLASS", help="A class of the run, or a branch of classes.")],
    references: Annotated[
        list[Path],
        typer.Option(
            "--references",
            metavar="DIR",
            help="A finished run of the same plan without the class, of any seed, or what a deletion left. Say it again"
            " for each: three seeds at least.",
        ),
    ],
    data: Data = None,
    json: Json = False,
) -> None:
    """Measure what a model knows of a class, beside models that were trained without it. This proves nothing.

    Loss on the class's examples and on the others', quality, a membership test for each example, and how fast the class
    is learned again. Measured are the run, the run with the class's regions off (G0), the run with the layers that the
    class trained put back (G1), and what deletions left (G2, G3).
    """
    from explorer import rundir
    from explorer.analysis.forgetting import judge, reference
    from explorer.errors import RunError
    from explorer.runlog.run_ledger import RunLedger
    from explorer.runlog.target import read_origin, resolve
    from explorer.training.forgetting_evidence import Bench

    target = resolve(RunLedger(run), class_=class_)
    bench = Bench(run, target, data=data)
    origins = {path: read_origin(path) for path in references}
    for path, origin in origins.items():
        if origin is not None and (origin.run, origin.target) != (bench.record.run_id, target):
            raise RunError(f"{path}: a deletion of {origin.target.words} from {origin.run}; expected {target.words}")
    retrained = [bench.without(path) for path, origin in origins.items() if origin is None]
    beside = reference(retrained)
    subjects = {"the run": bench.whole()}
    subjects |= {"G0, its regions off": bench.switched_off()} if bench.sealed else {}
    subjects |= {"G1, localised and ablated": bench.ablated()}
    for path, origin in origins.items():
        if origin is not None:
            subjects[f"{origin.level}, as its {rundir.ORIGIN} says"] = bench.without(path)
    found = {name: judge(each, retrained) for name, each in subjects.items()}
    if json:
        rows = [{"model": name, **asdict(each)} for name, each in found.items()]
        head = {"run": bench.record.run_id, "classes": target.classes, "quality": bench.record.quality}
        print_json({**head, "models": rows, "references": asdict(beside), "says": NO_PROOF})
    else:
        print(visible(f"{bench.record.run_id}: {target.words}, beside {len(retrained)} runs that never had it\n"))
        _print(found, beside, quality=bench.record.quality)


def _print(found: "dict[str, Findings]", beside: "Reference", *, quality: str) -> None:
    from explorer.training.forgetting_evidence import STEPS

    before, after = COLUMNS[:2], COLUMNS[2:]
    columns = ("model", *before, quality.replace("_", " "), *after)
    rows = [[name, *_cells(each, beside)] for name, each in found.items()]
    seeds = [getattr(beside, name) for name in NUMBERS]
    means = [f"some > {STEPS}" if each is None else f"{each.mean:.3f}" for each in seeds]
    rows.append([f"retrained without it, mean of {beside.target.n}", *means, None])
    for end, word in (("least", "one more of these: from"), ("most", "to")):
        rows.append([word, *(None if each is None else f"{getattr(each, end):.3f}" for each in seeds), None])
    print_table(columns, [[each if each is None else str(each) for each in row] for row in rows], right=columns[1:])
    print("* outside of where one more run without the class would lie (95%, Student's t over the seeds)")
    print(
        "losses in nats; membership: area under the curve, 0.5 is chance, with a bootstrap interval over the examples"
    )
    print(f"relearned in: steps until the class is known as well as the run knew it; > {STEPS}: not within so many")
    print("equal: every loss, the quality and the steps are those of the retrained run of the same seed, bit for bit")
    if beside.target.n < FEW:
        print(
            f"{beside.target.n} references are few: each example's score is taken from the mean of at most"
            f" {beside.target.n - 1} models, so that a weak trace of one example goes unseen"
        )
    print(NO_PROOF)


def _cells(found: "Findings", beside: "Reference") -> list[Any]:
    """The numbers of one model, each marked where it is not what one more reference would have."""
    from explorer.training.forgetting_evidence import STEPS

    member, steps = found.membership, found.relearned
    values = {"target": found.target, "others": found.others, "quality": found.quality, "auc": member.auc}
    cells = {name: f"{value:.3f}{_mark(value, getattr(beside, name))}" for name, value in values.items()}
    cells["auc"] = f"{cells['auc']} [{member.low:.2f}, {member.high:.2f}]"
    cells["relearned"] = f"> {STEPS}" if steps is None else f"{steps}{_mark(steps, beside.relearned)}"
    twin = None if found.same is None else "yes" if found.same else "no"
    return [*(cells[name] for name in NUMBERS), twin]


def _mark(value: float, seeds: "Seeds | None") -> str:
    return "" if seeds is None or seeds.expects(value) else "*"
