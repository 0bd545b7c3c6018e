"""Certificates of deletions beside a run: its own, those of the runs that deletions made of it, those of a pack."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.deletion.conclude import CERTIFICATE
from explorer.errors import ExplorerError, ProvenanceError
from explorer.project import runs_of
from explorer.provenance.deletion_certificate import MEANS, UNREACHED, Opened, open_certificate
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.trust import Trust
from explorer.runlog.counterfactual import SWEEP
from explorer.runlog.run_ledger import RunLedger

KEPT_COPIES = "deletions"  # where a pack has certificates, by run
MAX_CERTIFICATES = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Certified:
    """A certificate of a deletion that is believed."""

    digest: str  # of what was signed
    old: str  # the run that had the target
    new: str  # the run without it
    target: str
    level: str
    means: str
    signed_by: tuple[str, ...]
    issued: str
    expires: str
    request: str | None  # a salted commitment
    model: str  # SHA-256 of the new model's file
    not_reached: tuple[str, ...]  # as the signer says
    to_destroy: Mapping[str, int]  # how many of what, as the signer says


def certificates(
    run: RunLedger, origin: str, *, trust: Trust | None, now: int
) -> tuple[dict[str, Certified], list[str]]:
    """Those about this run, by digest; and why others are not believed."""
    found: dict[str, Certified] = {}
    faults: list[str] = []
    for path in [*_places(run.run)][:MAX_CERTIFICATES]:
        try:
            if trust is None:
                raise ProvenanceError(f"{path.name}: there is no trust file to judge it by")
            content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
            opened = open_certificate(content, trust=trust, now=now, where=path.name)
        except ExplorerError as error:
            faults.append(str(error))
            continue
        if origin in (opened.value.old.ledger.origin, opened.value.new.ledger.origin):
            found[opened.digest] = _opened(opened)
    return found, faults


def _places(run: Path) -> Iterator[Path]:
    """Where certificates may lie: in the run, as a pack has them, and in the runs that deletions made."""
    places = [run / CERTIFICATE, *sorted((run / KEPT_COPIES).glob("*.json"))]
    places += [
        made / CERTIFICATE for made in rundir.run_directories(runs_of(run) / SWEEP, loops=True) if made != run.resolve()
    ]
    return (path for path in places if path.is_file() and not path.is_symlink())


def _opened(opened: Opened) -> Certified:
    value = opened.value
    return Certified(
        digest=opened.digest,
        old=value.old.run,
        new=value.new.run,
        target=value.target.words,
        level=value.level,
        means=MEANS[value.level],
        signed_by=tuple(each.name for each in opened.authorities),
        issued=value.issued,
        expires=value.expires,
        request=value.request,
        model=opened.model,
        not_reached=tuple(f"{UNREACHED[each.what]}: {each.detail}" for each in value.not_reached),
        to_destroy=dict(Counter(str(each.what) for each in value.to_destroy)),
    )
