"""Governed runs below a directory, and one of them opened: the content of its ledger, and its integrity badge.

The entries of all steps are read into arrays once, so that any stretch of steps is quick to show.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.audit.history import Badge, Decided, DepthProfile, badge, decisions, depth_profiles
from explorer.errors import RunError, unknown
from explorer.ledger.trust_anchor import UNTRUSTED
from explorer.page import amounts
from explorer.page.document import sentence
from explorer.page.html import Markup, element, fragment
from explorer.provenance.trust import Trust, read_trust
from explorer.runlog.admission_tables import InForce, tables_in_force
from explorer.runlog.run_ledger import RunLedger
from explorer.store.run_sources import candidates, sweeps


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Steps:
    """Latest execution of each step. Shapes: T steps, C classes, L layers."""

    entries: NDArray[np.int64]  # T: numbers of the entries
    examples: NDArray[np.int64]  # T C: rows of each class in the batch, denied or not
    quarantined: NDArray[np.int64]  # T
    numbers: NDArray[np.bool_]  # T C: true if the class has numbers on record
    layers: int  # L
    tables: tuple[InForce, ...]  # the policy's weights; none: the run routes nothing

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def phases(self) -> tuple[tuple[int, str], ...]:
        """The steps at which a table of weights came into force, each with the words for its phase."""
        return tuple((table.first, table.phase) for table in self.tables)

    def weights(self, steps: range) -> NDArray[np.float64]:
        """Return the greatest weight in these steps, C L. Without a policy every class trains every layer."""
        weights = [table.weights for table in self._in_force() if table.first < steps.stop and steps.start < table.stop]
        return np.max(weights, axis=0) if weights else np.zeros((self.examples.shape[1], self.layers))

    def first_admitted(self, class_: int, layers: NDArray[np.bool_]) -> int | None:
        """Return the first step in which the class had examples and could train one of these layers."""
        for table in self._in_force():
            if table.weights[class_][layers].any():
                there = np.flatnonzero(self.examples[table.first : table.stop, class_])
                if len(there):
                    return table.first + int(there[0])
        return None

    def _in_force(self) -> tuple[InForce, ...]:
        everything = np.ones((self.examples.shape[1], self.layers))
        return self.tables or (InForce(first=0, stop=len(self), entry=0, phase="", weights=everything),)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OpenRun:
    """Run whose ledger was read and verified."""

    ledger: RunLedger
    badge: Badge
    recorded: Steps
    profiles: tuple[DepthProfile, ...]
    decisions: tuple[Decided, ...]
    trust: Trust | None  # the authorities that the reader accepts; None: no trust file
    now: int  # seconds since 1970, when it was opened

    @property
    def classes(self) -> tuple[str, ...]:
        return self.ledger.genesis.classes

    @property
    def steps(self) -> range:
        """The steps on record: a deletion takes over those before them from another run."""
        return range(self.ledger.begins, self.ledger.steps)

    @property
    def layers(self) -> tuple[str, ...]:
        return self.ledger.genesis.layers


def governed_runs(runs: Path) -> dict[str, Path]:
    """Return the runs that have a ledger, by `<sweep>/<run id>`; the one that was written to last comes first."""
    run_dirs = [path for sweep in sweeps(runs) for path in candidates(sweep) if (path / rundir.LEDGER).is_dir()]
    run_dirs.sort(key=lambda path: (path / rundir.LEDGER).stat().st_mtime_ns, reverse=True)
    return {f"{path.parent.name}/{path.name}": path for path in run_dirs}


def find_run(runs: Path, name: str) -> Path:
    """Return a governed run by its directory, its id, or `<sweep>/<id>`. Raises `RunError` with the nearest name."""
    if (Path(name) / rundir.LEDGER).is_dir():
        return Path(name)
    known = governed_runs(runs) if runs.is_dir() else {}
    named = [path for key, path in known.items() if name in (key, path.name)]
    if len(named) > 1:
        raise RunError(f"{name!r} is in {len(named)} sweeps; name one as SWEEP/RUN: {', '.join(known)}")
    if not named:
        raise RunError(f"{runs}: {unknown('governed run', name, [*known, *(path.name for path in known.values())])}")
    return named[0]


def open_run(directory: Path, *, trust: Path | Trust | None, now: int) -> OpenRun:
    """Read a run's ledger and verify it; `trust` is a trust file or its content, `now` is in seconds since 1970.

    Raises `LedgerError` for an unreadable ledger, `StoreError` for an unreadable spool, and `ProvenanceError` for an
    invalid trust file.
    """
    ledger, believed = RunLedger(directory), read_trust(trust) if isinstance(trust, Path) else trust
    return OpenRun(
        ledger=ledger,
        badge=badge(ledger, trust=believed, now=now),
        recorded=read_all_steps(ledger),
        profiles=depth_profiles(ledger),
        decisions=decisions(ledger),
        trust=believed,
        now=now,
    )


def read_all_steps(run: RunLedger) -> Steps:
    """Read the entries of all steps. Raises `LedgerError` for one that is damaged or a table that is missing."""
    count, classes = run.steps, len(run.genesis.classes)
    examples, quarantined = np.zeros((count, classes), np.int64), np.zeros(count, np.int64)
    numbers = np.zeros((count, classes), bool)
    for placed in run.read_steps(range(run.begins, count)):
        step, at = placed.entry, placed.entry.step
        examples[at], quarantined[at] = step.examples, step.quarantined
        numbers[at] = [committed is not None for committed in step.numbers]
    return Steps(
        entries=np.array(run.outline.steps, np.int64),
        examples=examples,
        quarantined=quarantined,
        numbers=numbers,
        layers=len(run.genesis.layers),
        tables=tables_in_force(run),
    )


# ---- the integrity badge

Verdict = Literal["verified", "unchecked", "broken"]
TITLES: dict[Verdict, str] = {
    "verified": "Verified",
    "unchecked": "Not verified",
    "broken": "Broken",
}
SIGNS: dict[Verdict, str] = {"verified": "\u2713", "unchecked": "?", "broken": "\u2717"}

NO_TRUST = "No trust file given."
SIMULATED = "Simulated provenance: this data has no real sources; the classes were cut for demonstration."
OUTCOMES = {
    "finished": "the run is finished",
    "stopped": "the run was stopped before its last step",
    "unfinished": "unfinished: its last entry is not 'end'",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """Content of a badge."""

    verdict: Verdict
    sentences: tuple[str, ...]
    findings: tuple[str, ...]  # contradictions

    @property
    def title(self) -> str:
        return TITLES[self.verdict]


def badge_words(badge: Badge) -> Words:
    """Return the words of a badge. A contradiction breaks a ledger, with a trust file or without one."""
    # The lack of a trust file is a finding about the reader, so it must not make a ledger look broken.
    about_reader = f"checkpoint: {UNTRUSTED}"
    findings = tuple(fault for fault in badge.faults if badge.anchored or not fault.startswith(about_reader))
    size = f"{amounts.count(badge.size, 'entry', 'entries')} for {amounts.count(badge.steps, 'step')}; "
    size += OUTCOMES[badge.outcome]
    if badge.blobs.erased:
        entries = ", ".join(map(str, badge.blobs.by))
        size += f"; {amounts.count(badge.blobs.erased, 'blob')} erased, by entry {entries} of the project's ledger: "
        size += "their content is lost"
    if findings:
        return Words(
            verdict="broken",
            sentences=(size, "Keep a copy of the directory before anything writes to it."),
            findings=findings,
        )
    if not badge.anchored:
        why = (
            f"{NO_TRUST} The files are internally consistent, which a forger could arrange too. Give a trust "
            "file from an independent source."
        )
        return Words(verdict="unchecked", sentences=(size, why), findings=())
    signed = f"Signed by {', '.join(badge.signed_by)}"
    signed += f"; cosigned by {', '.join(badge.cosigned_by)}." if badge.cosigned_by else "; no witness has cosigned it."
    roll_back = "A roll-back to an earlier state shows only against a later checkpoint."
    return Words(verdict="verified", sentences=(size, signed, roll_back), findings=())


def badge_html(words: Words) -> Markup:
    """Return the badge as HTML."""
    sign = element("span", SIGNS[words.verdict], aria_hidden="true")
    chip = element("span", sign, f" {words.title}", class_=f"x-badge x-{words.verdict}", role="status")
    sentences = element("span", " ".join(map(sentence, words.sentences)), class_="x-note")
    findings = element("ul", *(element("li", finding) for finding in words.findings), class_="x-warn")
    return chip + " " + sentences + (findings if words.findings else "")


def is_simulated(classes: tuple[str, ...]) -> bool:
    """Return whether the classes have no real sources. Their maker puts such classes on a branch of this name."""
    return any(path == "simulated" or path.startswith("simulated/") for path in classes)


def simulated_note(classes: tuple[str, ...]) -> Markup:
    """Return the banner for simulated provenance; nothing for real classes."""
    return element("p", SIMULATED, class_="x-simulated", role="note") if is_simulated(classes) else fragment()
