"""What stands at the head of a run's report and between its sections: the sentence, the facts, what came out, the
commands that check it or do it again, and what a record of this kind does not show."""

import shlex
from pathlib import Path

from explorer import rundir
from explorer.entries.fields import read_float
from explorer.entries.run import End
from explorer.provenance.routing import Routing, confidential
from explorer.records import METRICS
from explorer.report.run_classes import ClassLine
from explorer.report.run_pinned import Pinned
from explorer.report.run_references import Reference, refer
from explorer.runlog.blobs import Missing
from explorer.runlog.keys import NoKeys
from explorer.runlog.run_ledger import RunLedger
from explorer.views import text
from explorer.views.ledger.open_run import OpenRun

MOST = 5  # classes that the sentence names

LIMITS = (
    "The record says what this pipeline did with the tags it was given. Whether a tag is true, its authority vouches "
    "for; whether the record is true, a replay shows.",
    "A denied class has no direct part in a layer. Through layers that admit it, it reaches every later forward pass: "
    "only a class that is sealed or denied everywhere leaves the rest untouched.",
    "A share is a class's part in the summed gradient over these steps. It is neither what the class taught nor what "
    "the model would be without it.",
    "That classes can be told apart in a layer does not show that training on them is why.",
    "Tokeniser, normalisation constants, chosen hyper-parameters and the order of work before the run are not on this "
    "record.",
    "A ledger that was rolled back to an earlier checkpoint looks like this too: only who holds a later one can tell.",
)


def opens(run: RunLedger) -> bool:
    """Whether whoever reads has keys at all: then what is read holds numbers that are sealed for others."""
    return not isinstance(run.keys, NoKeys)


def confidential_words(run: RunLedger, routing: Routing | None) -> str:
    """What the reader of a run with confidential classes has to know."""
    whose = ", ".join(sorted(confidential(routing, run.genesis.classes))) if routing else "some classes"
    if opens(run):
        return f"This report holds numbers of {whose}, which are confidential: whoever has it has them."
    return f"Numbers of {whose}, and those over several classes at once, are {Missing.SEALED}."


def sentence_of(lines: tuple[ClassLine, ...], *, measured: bool, closed: bool, erased: bool = False) -> str:
    """Who moved the layers most, and who was kept out."""
    moved = sorted((line for line in lines if line.share is not None), key=lambda line: -(line.share or 0))
    kept = [line.path for line in lines if line.first_admitted is None]
    words = "What moved this model was not measured"
    if measured:
        gone = "numbers of it were erased" if erased else "the sums are not beside the ledger"
        where = f"is {Missing.SEALED}" if closed else gone
        words = f"What moved this model was measured, and {where}"
    if moved:
        named = [f"{line.path} {_rounded(line.share or 0)}" for line in moved[:MOST]]
        named += [f"{len(moved) - MOST} more"] if len(moved) > MOST else []
        words = f"What moved this model: {', '.join(named)}"
    return f"{words}; denied everywhere: {', '.join(kept)}." if kept else f"{words}."


def _rounded(share: float) -> str:
    """A share in a headline: one that is not zero is never called zero."""
    return "under 1%" if 0 < abs(share) < 0.01 else f"{share:.0%}"


def facts_of(run: RunLedger, opened: OpenRun, pinned: Pinned) -> dict[str, str]:
    """What the run was."""
    genesis, recorded = run.genesis, opened.recorded
    facts = {
        "Steps": f"{len(recorded):,}, {opened.badge.outcome}",
        "Classes, layers": f"{len(genesis.classes)}, {len(genesis.layers)}",
        "Strategy": genesis.strategy,
        "Seed": str(genesis.seed),
        "Ledger": f"{opened.badge.origin}, {text.count(opened.badge.size, 'entry', 'entries')}",
        "Root": opened.badge.root,
        "Recipe": genesis.recipe,
        "Code": genesis.code,
        "Environment": genesis.environment,
        "Data": genesis.data,
        "Starts from": "; ".join(parent.words for parent in genesis.parents) or "nothing that was trained before",
    }
    if pinned.record is None:
        return facts
    record = pinned.record
    task = {"Task": f"{record.model} on {record.dataset}", "Methods": ", ".join(record.methods) or "none"}
    return {**task, "Hardware": f"{record.hardware.name}, {record.precision}", **facts}


def metrics_of(run: RunLedger) -> tuple[dict[str, str], Reference | None]:
    """What came out, as the last entry says."""
    if run.outline.end is None:
        return {}, None
    (end,) = run.read([run.outline.end], End)
    found = {
        name: METRICS[name].show(read_float(value)) if name in METRICS else f"{read_float(value):.4g}"
        for name, value in end.entry.metrics.items()
    }
    return found, refer([end.index])


def commands_of(directory: Path, steps: range) -> tuple[tuple[str, str], ...]:
    """What to type, and what it does."""
    where = shlex.quote(directory.as_posix())
    ledger = shlex.quote((directory / rundir.LEDGER).as_posix())
    return (
        (f"explorer ledger verify {ledger} --trust TRUST.json", "the tree, the signatures, every blob"),
        (f"explorer conform {where} --trust TRUST.json", "the conditions of a conforming pipeline"),
        (
            f"explorer replay {where} --steps {steps.start}:{steps.stop}",
            "execute it again and compare it entry by entry, bit for bit",
        ),
        (f"explorer ledger show {ledger}", "every entry"),
        (f"explorer ledger prove {ledger} INDEX --out FILE", "a proof of one entry, for somebody far away"),
    )
