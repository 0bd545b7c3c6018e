"""A run's family: the runs that it continues and that continue it, its model, and the observations about the model.

The first entry of every ledger names the runs that it continues, by the state of their ledgers; ties follow from that.
A tie is *certain* where the named ledger is here and has that state or has grown from it, or where a signature that the
reader trusts connects the two; any other tie rests on the word of the run that names it. Cycles are cut: each run is
visited once.

Each relative has a standing. *Verified*: by the reader's trust file, its ledger verifies in full, its attestation is
signed and about these files, or the signer of the observation was entitled to make it. *Here*: it is present, and no
trust file was given. *Refused*: it does not verify. Everything else is *claimed* by the run that names it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from explorer import rundir
from explorer.audit.history import badge
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Genesis, Observation, Parent, Trunk, decode
from explorer.errors import ExplorerError, ProvenanceError
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.project import read_project, runs_of
from explorer.provenance.envelope import MAX_BYTES, parse_envelope
from explorer.provenance.model_attestation import PREDICATE_TYPE, Attested, open_model
from explorer.provenance.statement import parse_statement
from explorer.provenance.trust import Trust
from explorer.release.attest import OBSERVATIONS
from explorer.release.observations import weigh
from explorer.rundir import read_bytes
from explorer.runlog.attested import ATTESTATION, PARENTS, ModelPlace, continues_ledger, read_attested
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import read_origin

# --- members ---

Standing = Literal["verified", "here", "refused", "claimed"]
UNASKED = "signatures not checked: no trust file was given"
MOST_OBSERVATIONS = 1_000  # files that are listed: anyone may add some to a shipped model


@dataclass(frozen=True, kw_only=True, slots=True)
class Relative:
    """A run, a model, or an observation."""

    key: str
    what: Literal["run", "model", "observation"]
    name: str
    digest: str  # root of the ledger, SHA-256 of the model's file, digest of the statement; "": unknown
    standing: Standing
    why: str  # in words
    generation: int  # 0: the run itself; negative: ancestors; positive: descendants


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    """The reader who asks for the family."""

    trust: Trust | None  # the authorities that count; None: signatures are not checked
    now: int  # seconds since 1970


def run_here(place: Path, origin: str, name: str, root: str, generation: int, reader: Reader) -> Relative:
    """Return a run whose ledger is here, verified in full where a trust file was given.

    Args:
        place: the run's directory.
        origin: the name of its ledger, which is its key.
        name: the run's id.
        root: the root of its ledger, in hexadecimal.
        generation: its distance from the run that was asked for.
        reader: the reader who asks.
    """
    standing, why = _sound(place, reader)
    return Relative(key=origin, what="run", name=name, digest=root, standing=standing, why=why, generation=generation)


def run_named(named: LedgerState, generation: int) -> Relative:
    """Return a run whose ledger is not here."""
    why = f"no ledger here has its {named.size:,} entries: its name is all that is known"
    key = f"{named.origin} {named.root}"
    return Relative(
        key=key, what="run", name=named.origin, digest=named.root, standing="claimed", why=why, generation=generation
    )


def own_model(run: RunLedger, reader: Reader) -> tuple[Attested | None, Relative]:
    """Return a run's attested model, and its attestation where that is believed."""
    place = run.run / rundir.MODEL
    name, path = f"model of {run.genesis.run}", place / ATTESTATION
    if reader.trust is None:
        return None, _model(name, _subject(path), "here", UNASKED, 1)
    try:
        attested = read_attested(ModelPlace.of(place), trust=reader.trust, now=reader.now)
    except ExplorerError as error:
        return None, _model(name, _subject(path), "refused", str(error), 1)
    return attested, _model(name, attested.model, "verified", f"attested by {_names(attested)}", 1)


def first_model(run: Path, parent: Parent, judged: int, generation: int, reader: Reader) -> Relative:
    """Return the model that a run began with, as attested in the copy that the run keeps.

    Args:
        run: the run's directory.
        parent: the entry in its genesis that names the model.
        judged: the time for which the run judged the attestation, in seconds since 1970.
        generation: the model's distance from the run that was asked for.
        reader: the reader who asks.
    """
    name, model = f"model of {parent.ledger.origin}", parent.model or ""
    path = run / rundir.GOVERNANCE / PARENTS / f"{parent.attestation}.json"
    if parent.attestation is None or not path.exists():
        return _model(name, model, "claimed", "the run keeps no attestation of it", generation)
    if reader.trust is None:
        return _model(name, model, "here", UNASKED, generation)
    try:
        content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
        opened = open_model(content, trust=reader.trust, now=judged, where=path.name)
    except ExplorerError as error:
        return _model(name, model, "refused", str(error), generation)
    if (opened.digest, opened.model) != (parent.attestation, model):
        return _model(name, model, "refused", "the attestation that the run keeps is of another model", generation)
    return _model(name, model, "verified", f"attested by {_names(opened)}, when the run began", generation)


def observations(place: Path, attested: Attested | None, reader: Reader) -> Iterator[Relative]:
    """Yield the observations that are stored with a model.

    They have no weight here: weights belong to a gate.
    """
    # Observations name the attestation they were made for. Without one that is believed, none can be checked.
    if attested is None or reader.trust is None:
        for path in sorted((place / OBSERVATIONS).glob("*.json"))[:MOST_OBSERVATIONS]:
            why = UNASKED if reader.trust is None else "of a model whose attestation is not believed"
            yield _observation(path.stem, "a statement", "here", why)
        return
    for weighed in weigh(place, attested, (), trust=reader.trust, now=reader.now):
        digest = weighed.file.removesuffix(".json")
        if weighed.value is None or weighed.by is None:
            yield _observation(digest, "a statement", "refused", weighed.why)
        else:
            yield _observation(digest, f"{weighed.by} as {weighed.value.role}", "verified", f"signed by {weighed.by}")


def recorded_observation(entry: Observation) -> Relative:
    """Return an observation that the project's ledger names and that is not stored with the model."""
    why = "the project's ledger names it; its file is not here"
    return _observation(entry.statement, f"a statement as {entry.role}", "claimed", why)


def _sound(place: Path, reader: Reader) -> tuple[Standing, str]:
    if reader.trust is None:
        return "here", UNASKED
    try:
        seal = badge(RunLedger(place), trust=reader.trust, now=reader.now)
    except ExplorerError as error:
        return "refused", str(error)
    if seal.findings:
        return "refused", seal.findings[0]
    return "verified", f"its ledger verifies, signed by {', '.join(seal.signed_by)}"


def _names(attested: Attested) -> str:
    return ", ".join(authority.name for authority in attested.authorities)


def _model(name: str, sha256: str, standing: Standing, why: str, generation: int) -> Relative:
    key = f"model {sha256 or name}"
    return Relative(key=key, what="model", name=name, digest=sha256, standing=standing, why=why, generation=generation)


def _observation(digest: str, name: str, standing: Standing, why: str) -> Relative:
    key = f"observation {digest}"
    return Relative(key=key, what="observation", name=name, digest=digest, standing=standing, why=why, generation=2)


def _subject(path: Path) -> str:
    """Return the SHA-256 of the model that an attestation names, without checking its signature; empty for a file that
    is no attestation."""
    try:
        envelope = parse_envelope(read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError), where=str(path))
        return parse_statement(envelope.payload, predicate_type=PREDICATE_TYPE, where=str(path)).subjects[0].sha256
    except ProvenanceError:
        return ""


# --- ties ---

MOST = 60  # relatives: about what one drawing can show
LOOKED = 2_000  # runs whose first entry is read


@dataclass(frozen=True, kw_only=True, slots=True)
class Tie:
    """A tie from a relative to one that came from it."""

    source: str  # the key of a relative, like target
    target: str
    words: str
    certain: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """All relatives, the run itself first."""

    relatives: tuple[Relative, ...]
    ties: tuple[Tie, ...]
    left_out: int  # relatives that the search met and had no room for
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Known:
    """A run below the directory of runs."""

    path: Path
    ledger: LedgerDirectory
    genesis: Genesis


def family(run: RunLedger, *, trust: Trust | None, now: int) -> Family:
    """Return the family of a run, the nearest relatives first, at most `MOST`. `now` is in seconds since 1970.

    Raises `LedgerError` for a project's ledger that is damaged.
    """
    search = _Search(run, Reader(trust=trust, now=now))
    # Ancestors first: what a model was made of matters most where the limit cuts.
    search.ancestors()
    search.model()
    search.descendants()
    return search.family()


class _Search:
    """A search through the family: breadth first from the run itself, so that the nearest relatives come first and the
    limit cuts off the farthest."""

    def __init__(self, run: RunLedger, reader: Reader) -> None:
        self._run, self._reader = run, reader
        self._origin = run.ledger.checkpoint().origin
        self._relatives: dict[str, Relative] = {}
        self._ties: dict[tuple[str, str], Tie] = {}
        self._left_out: set[str] = set()
        self._remarks: list[str] = []
        self._known = self._read_known()
        self._known[self._origin] = _Known(path=run.run, ledger=run.ledger, genesis=run.genesis)
        self._meet(self._origin, 0)

    def family(self) -> Family:
        """Return what the search has collected, without ties to relatives that had no room."""
        ties = [tie for tie in self._ties.values() if {tie.source, tie.target} <= self._relatives.keys()]
        return Family(
            relatives=tuple(self._relatives.values()),
            ties=tuple(ties),
            left_out=len(self._left_out),
            remarks=tuple(self._remarks),
        )

    def ancestors(self) -> None:
        """Add the runs that this one continues, and those that they continue, as far as their ledgers are here."""
        waiting = [(self._origin, 0)]
        while waiting:
            child, generation = waiting.pop(0)
            waiting += self._parents(child, generation)

    def model(self) -> None:
        """Add the run's model, if it has an attestation, and the observations about it."""
        place = self._run.run / rundir.MODEL
        entries = (recorded.entry for recorded in read_project(runs_of(self._run.run)))
        on_record = [entry for entry in entries if isinstance(entry, Observation)]
        on_record = [entry for entry in on_record if entry.ledger.origin == self._origin]
        if not (place / ATTESTATION).exists():
            if on_record:
                words = f"{len(on_record)} observations of its model are on record, but no attestation of it is here"
                self._remarks.append(words)
            return
        attested, model = own_model(self._run, self._reader)
        key = self._add(model)
        self._tie(self._origin, key, "attested", certain=attested is not None)
        # An observation both in the model's directory and on record is one relative: the file counts, since it can be
        # verified.
        here = list(observations(place, attested, self._reader))
        known = {relative.digest for relative in here}
        elsewhere = [recorded_observation(entry) for entry in on_record if entry.statement not in known]
        for relative in (*here, *elsewhere):
            self._tie(key, self._add(relative), "observed", certain=relative.standing == "verified")

    def descendants(self) -> None:
        """Add the runs below the directory of runs that continue this one, and those that continue them."""
        waiting = [(self._origin, 0)]
        while waiting:
            source, generation = waiting.pop(0)
            for name, child in self._known.items():
                links = chain(child.genesis.parents, self._trunks(child, next_to=source))
                parents = (parent for parent in links if parent.ledger.origin == source)
                if name == source or (parent := next(parents, None)) is None:
                    continue
                # A run that was met before is not searched again. One that was met as an ancestor would name this run
                # and be named by it. Honest ledgers cannot: each would have to hold a root that covers the other's.
                met = self._relatives.get(name)
                of_model = isinstance(parent, Parent) and parent.kind == "model"
                if met is None and self._meet(name, generation + 1 + of_model):
                    waiting.append((name, self._relatives[name].generation))
                elif met is not None and met.generation <= 0:
                    self._remarks.append(f"{name} and {source} name each other as parent: at least one of them lies")
                # A run that began with a model that is shown is tied to the model, not to the run that made it.
                through = f"model {parent.model}" if isinstance(parent, Parent) and of_model else ""
                begins = through in self._relatives
                certain = self._is_here(parent.ledger)
                self._tie(through if begins else source, name, _words(parent, child.path), certain=certain)

    def _parents(self, origin: str, generation: int) -> Iterator[tuple[str, int]]:
        """Add the runs that a run continues; yield those whose ledgers are here, to be searched next."""
        child = self._known[origin]
        for parent in (*child.genesis.parents, *self._trunks(child)):
            target, words, place, here = (
                origin,
                _words(parent, child.path),
                generation - 1,
                self._is_here(parent.ledger),
            )
            if isinstance(parent, Parent) and parent.kind == "model":
                # Between the two runs comes the model: run -> attested -> model -> began with it -> child, one
                # generation each. The attestation is judged for the moment for which the child judged it.
                judged = child.genesis.judged or self._reader.now
                model = first_model(child.path, parent, judged, place, self._reader)
                target, place = self._add(model), place - 1
                self._tie(target, origin, words, certain=True)  # its own first entry names that very file
                words, certain = "attested", model.standing == "verified"
            else:
                certain = here
            # Cycles are cut: only a run that was not met before is searched.
            source, new = parent.ledger.origin, parent.ledger.origin not in self._relatives
            if not here:
                source = self._add(run_named(parent.ledger, place))
            elif self._meet(source, place) and new:
                yield source, place
            self._tie(source, target, words, certain=certain)

    def _trunks(self, child: _Known, *, next_to: str | None = None) -> tuple[Trunk, ...]:
        """Return the entries of a run about those that made its first steps. `next_to`: none unless it is in the sweep
        of that run, since only runs of one sweep share steps."""
        # Unlike parents, which are in the first entry, they take reading all entries.
        if next_to is not None and self._known[next_to].path.parent != child.path.parent:
            return ()
        try:
            return RunLedger(child.path).trunks
        except ExplorerError:
            return ()

    def _meet(self, origin: str, generation: int) -> bool:
        """Add a run whose ledger is here; return whether there was room for it."""
        if origin not in self._relatives:
            if self._is_full(origin):
                return False
            known = self._known[origin]
            root = known.ledger.checkpoint().root.hex()
            self._relatives[origin] = run_here(known.path, origin, known.genesis.run, root, generation, self._reader)
        return True

    def _add(self, relative: Relative) -> str:
        if relative.key not in self._relatives and not self._is_full(relative.key):
            self._relatives[relative.key] = relative
        return relative.key

    def _is_full(self, key: str) -> bool:
        if len(self._relatives) < MOST:
            return False
        self._left_out.add(key)
        return True

    def _tie(self, source: str, target: str, words: str, *, certain: bool) -> None:
        self._ties.setdefault((source, target), Tie(source=source, target=target, words=words, certain=certain))

    def _is_here(self, named: LedgerState) -> bool:
        """Return whether the named ledger is here; one that cannot be read is not shown to be the named one."""
        known = self._known.get(named.origin)
        try:
            return known is not None and continues_ledger(known.ledger, named)
        except ExplorerError:
            return False

    def _read_known(self) -> dict[str, _Known]:
        """Read the governed runs of the project, by the names of their ledgers.

        Of two with one name, the first in the order of their paths counts, so that the answer does not depend on the
        file system.
        """
        paths = sorted(runs_of(self._run.run).glob(f"[!_.]*/*/{rundir.LEDGER}/{CHECKPOINT}"))
        known: dict[str, _Known] = {}
        unread = 0
        for path in paths[:LOOKED]:
            ledger = LedgerDirectory(path.parent)
            try:
                origin, first = ledger.checkpoint().origin, decode(next(iter(ledger.entries(0, 1))))
            except (ExplorerError, StopIteration):
                unread += 1
                continue
            if isinstance(first, Genesis):
                known.setdefault(origin, _Known(path=path.parent.parent, ledger=ledger, genesis=first))
        if unread:
            self._remarks.append(f"{unread} ledgers cannot be read: descendants may be missing")
        if len(paths) > LOOKED:
            self._remarks.append(f"only the first {LOOKED:,} of {len(paths):,} runs were searched for descendants")
        return known


def _words(parent: Parent | Trunk, child: Path) -> str:
    """Describe how a run continues another. What a deletion left out is in the new run's directory, not in a ledger."""
    if isinstance(parent, Trunk):
        return f"took over {'the first step' if parent.step == 1 else f'its first {parent.step:,} steps'}"
    if parent.kind == "model":
        return f"began with it; admits {parent.words.partition('of which it admits ')[2]}"
    try:
        origin = read_origin(child)
    except ExplorerError as error:
        return f"by a deletion of unknown content: {error}"
    return "by a deletion" if origin is None else f"{origin.level} deletion of {origin.target.words}"
