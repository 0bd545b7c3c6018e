"""A governed run under report: values that several sections need, computed once.

Everything comes from the run directory and the project's ledger next to it. Every figure names its evidence: entries,
or documents that the first entry binds.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from explorer import run_files, rundir
from explorer.audit.conditions import Outcome, together
from explorer.audit.conform import Conformance, conform
from explorer.audit.history import Vouchers, vouchers
from explorer.audit.shares import Shares, is_confidential, shares
from explorer.audit.trace import Check, check_sums
from explorer.canonical import digest
from explorer.errors import ExplorerError, ProvenanceError, RunError
from explorer.provenance.routing_weights import Routing, confidential
from explorer.provenance.trust import Trust, read_trust
from explorer.report.run.class_lines import ClassLine, class_lines, deletability
from explorer.report.run.references import GENESIS, Citations, Document, Reference, refer, references_in
from explorer.report.section import Section, Subject
from explorer.run_files import RunRecord
from explorer.runlog.documents import TRUST_FILE
from explorer.runlog.run_keys import NoKeys
from explorer.runlog.run_ledger import Missing, RunLedger
from explorer.schema import parse_json
from explorer.views.ledger import matrices
from explorer.views.ledger.open_run import OpenRun, badge_words, is_simulated

MOST = 200  # characters of a value in the environment


def opens(run: RunLedger) -> bool:
    """Return True if the reader has keys to sealed numbers: the report then shows numbers that others cannot read."""
    return not isinstance(run.keys, NoKeys)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinned:
    """Unsigned files of a run that its first entry binds by digest."""

    record: RunRecord | None
    environment: Mapping[str, str] | None  # flat: "packages.torch"
    trust: Trust | None  # the run's own copy
    absent: tuple[str, ...]  # files that are missing or not the bound ones, and why


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportedRun(Subject):
    """A governed run under report."""

    cited: tuple[Section[Any, Any], ...]  # the sections whose references are listed at the end
    opened: OpenRun
    directory: Path  # as commands name it
    commands: tuple[tuple[str, str], ...]  # to type, each with its purpose

    # --- signed documents ---

    @property
    def ledger(self) -> RunLedger:
        return self.opened.ledger

    @property
    def run_id(self) -> str:
        return self.ledger.genesis.run

    @property
    def simulated(self) -> bool:
        return is_simulated(self.ledger.genesis.classes)

    @cached_property
    def conformance(self) -> Conformance:
        return conform(self.ledger, trust=self.opened.trust, now=self.opened.now)

    @cached_property
    def _vouchers(self) -> tuple[Vouchers | None, str | None]:
        if self.ledger.genesis.taxonomy is None:
            return None, "its first entry names no taxonomy and no tags, because the run was recorded but not governed"
        try:
            return vouchers(self.ledger, trust=self.opened.trust), None
        except ExplorerError as error:
            return None, str(error)

    @property
    def vouchers(self) -> Vouchers | None:
        """The signed documents; None: they are not trusted."""
        return self._vouchers[0]

    @property
    def not_vouched(self) -> str | None:
        """The reason why the signed documents are not trusted; None: they are."""
        return self._vouchers[1]

    @property
    def routing(self) -> Routing | None:
        return self.vouchers.rules.routing if self.vouchers and self.vouchers.rules else None

    @property
    def tagged(self) -> dict[str, int] | None:
        """Tagged records by class; None: the tags are not trusted."""
        return self.vouchers.tags.table.histogram if self.vouchers else None

    @cached_property
    def pinned(self) -> Pinned:
        """The files that the first entry binds. Raises `RunError` for a damaged file."""
        absent: list[str] = []
        record, environment = _record(self.ledger, absent), _environment(self.ledger, absent)
        trust = _trust(self.ledger, absent)
        return Pinned(record=record, environment=environment, trust=trust, absent=tuple(absent))

    @cached_property
    def documents(self) -> dict[str, Document]:
        """The documents that the first entry binds and that are present and trusted, by kind."""
        digests = {}
        if self.vouchers:
            digests = {
                "taxonomy": self.vouchers.basis.taxonomy.digest,
                "tags": self.vouchers.tags.attestation,
            }
        if self.routing:
            digests["policy"] = self.routing.policy.digest
        if self.pinned.trust:
            digests["trust file"] = self.pinned.trust.digest
        if self.pinned.record:
            digests["recipe"] = self.ledger.genesis.recipe
        if self.pinned.environment is not None:
            digests["environment"] = self.ledger.genesis.environment
        return {what: Document(what=what, digest=digest) for what, digest in digests.items()}

    # --- numbers ---

    @cached_property
    def sealed(self) -> bool:
        """True if numbers of some classes are encrypted."""
        return is_confidential(self.ledger)

    @property
    def confidential(self) -> str | None:
        """A warning for the reader of a run with confidential classes; None: it has none."""
        if not self.sealed:
            return None
        routing = self.routing
        whose = ", ".join(sorted(confidential(routing, self.ledger.genesis.classes))) if routing else "some classes"
        if opens(self.ledger):
            return f"This report shows confidential numbers of {whose}: sharing the report discloses them."
        # A sum over all classes would give away that of a single confidential one, so such numbers are sealed too.
        return f"Numbers of {whose}, and those over several classes at once, are {Missing.SEALED}."

    @cached_property
    def sums(self) -> Check:
        """The comparison of the shares with the ledger."""
        return check_sums(self.ledger, list(self.ledger.segments()))

    @cached_property
    def shares(self) -> Shares:
        return shares(self.ledger)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The shares in the form that the heat map draws."""
        return matrices.cells(self.shares, self.opened.recorded)

    @cached_property
    def classes(self) -> tuple[ClassLine, ...]:
        # Only a sound ledger that meets all conditions establishes what was denied; valid signatures do not suffice.
        broken = badge_words(self.conformance.badge).verdict == "broken"
        outcomes = (condition.outcome for condition in self.conformance.conditions)
        denied = together((Outcome.FAILS if broken else Outcome.HOLDS, *outcomes))
        deletable = deletability(self.ledger, denied=denied)
        return class_lines(
            self.ledger, self.opened.recorded, routing=self.routing, tagged=self.tagged, deletable=deletable
        )

    @property
    def quarantined(self) -> int:
        """Slots of batches, over all steps, that were never read."""
        return int(self.opened.recorded.quarantined.sum())

    # --- references ---

    @property
    def whole(self) -> Reference:
        """The ledger from end to end."""
        return Reference(first=0, last=self.opened.badge.size - 1)

    @property
    def steps(self) -> Reference:
        """All steps and states."""
        states = [index for _, index in self.ledger.outline.states]
        return refer([*self.opened.recorded.entries[self.ledger.begins :].tolist(), *states])

    @property
    def states(self) -> Reference | None:
        states = [index for _, index in self.ledger.outline.states]
        return refer(states) if states else None

    @cached_property
    def cite(self) -> Citations:
        """Links to all entries that the sections' records, or the references above, name."""
        states = [self.states] if self.states else []
        cited = references_in([self.of(type(section)) for section in self.cited])
        return Citations(self.ledger, {GENESIS, self.whole, self.steps, *states, *cited})


def _record(run: RunLedger, absent: list[str]) -> RunRecord | None:
    path = run.run / rundir.RUN
    if not path.exists():
        absent.append(f"the recipe: {rundir.RUN} is not next to the ledger")
        return None
    record = run_files.read(RunRecord, path)
    if digest(record.identity) != run.genesis.recipe:
        absent.append(f"the recipe: {rundir.RUN} is not the one that the first entry names")
        return None
    return record


def _environment(run: RunLedger, absent: list[str]) -> dict[str, str] | None:
    path = run.run / rundir.ENVIRONMENT
    if not path.exists():
        absent.append(f"the environment: {rundir.ENVIRONMENT} is not next to the ledger")
        return None
    content = rundir.read_bytes(path, max_bytes=rundir.MAX_JSON_BYTES, error=RunError)
    if hashlib.sha256(content).hexdigest() != run.genesis.environment:
        absent.append(f"the environment: {rundir.ENVIRONMENT} is not the one that the first entry names")
        return None
    return _flat(parse_json(content, where=str(path), error=RunError, max_bytes=rundir.MAX_JSON_BYTES))


def _trust(run: RunLedger, absent: list[str]) -> Trust | None:
    path = run.run / rundir.GOVERNANCE / TRUST_FILE
    if run.genesis.trust is None or not path.exists():
        absent.append("the trust file: the run had none" if run.genesis.trust is None else "the trust file: not here")
        return None
    try:
        trust = read_trust(path)
    except ProvenanceError as error:
        absent.append(f"the trust file: {error}")
        return None
    if trust.digest != run.genesis.trust:
        absent.append("the trust file: not the one that the first entry names")
        return None
    return trust


def _flat(value: Any, name: str = "") -> dict[str, str]:
    if not isinstance(value, dict):
        return {name: (value if isinstance(value, str) else json.dumps(value))[:MOST]}
    pairs: dict[str, str] = {}
    for key, inner in value.items():
        pairs |= _flat(inner, f"{name}.{key}" if name else str(key))
    return pairs
