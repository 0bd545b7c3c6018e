"""What lies beside a ledger unsigned and is bound by its first entry all the same: the recipe, the environment, the
trust file. Each is what the report says only if it has the digest that stands there."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from explorer import records, rundir
from explorer.audit.vouched import TRUST
from explorer.canonical import digest
from explorer.errors import ProvenanceError, RunError
from explorer.provenance.trust import Trust, read_trust
from explorer.records import RunRecord
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import parse_json

MOST = 200  # characters of a value


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinned:
    """What is here and has its digest; `absent` says of all else why it is not."""

    record: RunRecord | None
    environment: Mapping[str, str] | None  # flat: "packages.torch"
    trust: Trust | None  # the run's own copy
    absent: tuple[str, ...]


def pinned(run: RunLedger) -> Pinned:
    """Hold the files against the first entry. Raises `RunError` or `ProvenanceError` for one that is damaged."""
    absent: list[str] = []
    record, environment, trust = _record(run, absent), _environment(run, absent), _trust(run, absent)
    return Pinned(record=record, environment=environment, trust=trust, absent=tuple(absent))


def _record(run: RunLedger, absent: list[str]) -> RunRecord | None:
    path = run.run / rundir.RUN
    if not path.exists():
        absent.append(f"the recipe: {rundir.RUN} is not beside the ledger")
        return None
    found = records.read(RunRecord, path)
    if digest(found.identity) != run.genesis.recipe:
        absent.append(f"the recipe: {rundir.RUN} is not the one that the first entry names")
        return None
    return found


def _environment(run: RunLedger, absent: list[str]) -> dict[str, str] | None:
    path = run.run / rundir.ENVIRONMENT
    if not path.exists():
        absent.append(f"the environment: {rundir.ENVIRONMENT} is not beside the ledger")
        return None
    content = rundir.read_bytes(path, max_bytes=rundir.MAX_JSON_BYTES, error=RunError)
    if hashlib.sha256(content).hexdigest() != run.genesis.environment:
        absent.append(f"the environment: {rundir.ENVIRONMENT} is not the one that the first entry names")
        return None
    return _flat(parse_json(content, where=str(path), error=RunError, max_bytes=rundir.MAX_JSON_BYTES))


def _trust(run: RunLedger, absent: list[str]) -> Trust | None:
    path = run.run / rundir.GOVERNANCE / TRUST
    if run.genesis.trust is None or not path.exists():
        absent.append("the trust file: the run had none" if run.genesis.trust is None else "the trust file: not here")
        return None
    try:
        found = read_trust(path)
    except ProvenanceError as error:
        absent.append(f"the trust file: {error}")
        return None
    if found.digest != run.genesis.trust:
        absent.append("the trust file: not the one that the first entry names")
        return None
    return found


def _flat(value: Any, name: str = "") -> dict[str, str]:
    if not isinstance(value, dict):
        return {name: (value if isinstance(value, str) else json.dumps(value))[:MOST]}
    found: dict[str, str] = {}
    for key, each in value.items():
        found |= _flat(each, f"{name}.{key}" if name else str(key))
    return found
