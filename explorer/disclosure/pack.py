"""A pack: one file that an auditor opens offline, with the program that verifies it (`explorer.disclosure.verifier`).

It is a zip of stored files, in the order of their names and dated 1 January 1980, so that every byte of it follows from
names and contents:

    README.txt                what it is and how to verify it
    pack.json                 the manifest below; every other file by digest and size
    pack.dsse.json            the trainer's signature over it
    verify.py                 the verifier, one file
    report.html, report.json  for people, for programs; if any step was done. They show no more than the grants open
    run.json environment.json what the run was, where its first entry binds them and they name no single record
    ledger/...                the checkpoint and its cosignatures, tiles, entries, blobs
    governance/...            trust.json (what the run believed: never an anchor), taxonomy, policy, tags
    grants/<id>.json          the grants asked for, with their wrapped keys
    proofs/<n>.tlog-proof     of the first entry, of every state and of the end
    erasures/<n>.tlog-proof   entries of the project's ledger that say what was erased of the run, with their proofs
    deletions/<run id>.json   certificates of deletions
    origin.json               of a run that a deletion made
    model/...                 the attestation of its model and its card, not the model

    {"format": "explorer/pack/v1", "made": "2026-06-01T00:00:00Z", "run": "...", "ledger": {origin, size, root},
     "files": [{"path", "sha256", "size"}, ...], "grants": ["2026-0007"],
     "host": {"keys": [{"file": "trainer.pem", "public_key": "...", "state": "readable"}]}}

The manifest is canonical JSON (RFC 8785) and signed as DSSE of the type application/vnd.explorer.pack.v1+json. Blobs of
classes that no grant opens are included as they are in the ledger, sealed. Never included: weights, checkpoints,
anything of `private/`, the spool, other grants, `source.json`.

The manifest lists the private keys on the host (`host_keys`), because anyone who can write there can sign as these,
whatever the trust file says. Searched are the directory of the trainer's key and the one above, and the directory of
the project's runs and the one above: where the README tells people to keep keys. An encrypted key is opened where the
passphrase of the trainer's key opens it, since its holder then has both; otherwise it is listed without an owner. Of
the keys in an SSH agent only those of the trust file are listed. Keys in other places, on other machines that can be
reached from here, and in memory are not found.
"""

import base64
import hashlib
import io
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import Field

from explorer import rundir
from explorer.audit.withheld import read_withheld
from explorer.canonical import canonical, digest
from explorer.disclosure.grants_in_force import check_standing, check_wrapped
from explorer.disclosure.wrapped import WrappedKeys, believe, ledger_state, naming, read_wrapped
from explorer.entries.fields import Digest, LedgerState, Line, Whole
from explorer.entries.heads import read_head
from explorer.entries.kinds import Access, Deletion, Erasure
from explorer.errors import LedgerError, ProvenanceError, unknown
from explorer.ledger.proof import SUFFIX, make_proof
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory, blob_path
from explorer.ledger.tiles import bundles, encode_bundle, tiles
from explorer.ledger.verify import verify
from explorer.project import AUDIT, Recorded, read_project, runs_of
from explorer.provenance.agent import agent_public_keys
from explorer.provenance.envelope import sign_envelope
from explorer.provenance.grants import grant_digest
from explorer.provenance.keys import MAX_FILE, PublicKey, public_text, read_any
from explorer.provenance.spellings import Line as TextLine
from explorer.provenance.spellings import Time, format_time
from explorer.provenance.trust import Trust
from explorer.run_files import plan_file
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.documents import ATTESTATION_FILE, POLICY_FILE, TABLE_FILE, TAXONOMY_FILE, TRUST_FILE, source_of
from explorer.runlog.influence import recorded_plan
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import ROUTING, left_out, read_origin
from explorer.schema import record, to_json

# --- private keys on the host ---

MAX_LISTED = 2_000  # names in one directory that are looked at
_MARK, _ENCRYPTED = b"PRIVATE KEY-----", b"ENCRYPTED PRIVATE KEY-----"
_SUFFIXES = (".pem", ".key")

State = Literal[
    "readable",
    "opens with the passphrase of the trainer's key",
    "signed this pack",
    "in an SSH agent that answers here",
    "encrypted, not opened",
    "damaged, or of another kind",
    "cannot be read by this process",
    "more names than are looked at",
]


@record
class HostKey:
    """A file with a private key, and whose key it is."""

    # Below the directory of the trainer's key, ../ for the one above; runs/ and runs/../ for the project's.
    file: TextLine
    public_key: PublicKey | None  # None: it could not be told
    state: State


def host_keys(
    private: Path, runs: Path, *, signer: Ed25519PrivateKey, passphrase: str | None, trust: Trust
) -> tuple[HostKey, ...]:
    """Return the keys on this host. `private` is the directory of the trainer's key, `runs` that of the project;
    `signer` is the key that signs the pack, and `passphrase` that of its file; `trust` says which keys of an agent
    count.

    Raises `ProvenanceError` if the directory of the trainer's key cannot be listed.
    """
    try:
        next(private.iterdir(), None)
    except OSError as error:
        raise ProvenanceError(f"cannot look for keys in {private}: {error.strerror or error}") from error
    places = [("", private), ("../", private / ".."), ("runs/", runs), ("runs/../", runs / "..")]
    seen: set[Path] = set()
    found: list[HostKey] = []
    for prefix, place in places:
        if (resolved := place.resolve()) not in seen:
            seen.add(resolved)
            found += _in_directory(prefix, resolved, passphrase)
    own = public_text(signer)
    return (*(_signing(each, own) for each in found), *_in_agent(trust))


def _signing(key: HostKey, own: str) -> HostKey:
    """Return whether the signer's key file says so itself, even where it holds no key but says where it is."""
    untold = key.file == "trainer.pem" and key.public_key is None
    return HostKey(file=key.file, public_key=own, state="signed this pack") if untold else key


def _in_agent(trust: Trust) -> Iterator[HostKey]:
    try:
        public_keys = agent_public_keys()
    except ProvenanceError:
        yield HostKey(file="ssh-agent", public_key=None, state="cannot be read by this process")
        return
    for public in public_keys:
        if trust.owner(public) is not None:
            text = base64.b64encode(public).decode()
            yield HostKey(file="ssh-agent", public_key=text, state="in an SSH agent that answers here")


def _in_directory(prefix: str, directory: Path, passphrase: str | None) -> Iterator[HostKey]:
    try:
        paths = sorted(directory.iterdir())
    except OSError:
        yield HostKey(file=prefix or "./", public_key=None, state="cannot be read by this process")
        return
    for path in paths[:MAX_LISTED]:
        yield from _host_key(prefix, path, passphrase)
    if len(paths) > MAX_LISTED:
        yield HostKey(file=prefix or "./", public_key=None, state="more names than are looked at")


def _host_key(prefix: str, path: Path, passphrase: str | None) -> Iterable[HostKey]:
    name = prefix + (path.name if path.name.isprintable() else ascii(path.name))
    try:
        if not path.is_file():
            return ()
        with path.open("rb") as file:
            content = file.read(MAX_FILE)
    except OSError:
        state: State = "cannot be read by this process"
        return (HostKey(file=name, public_key=None, state=state),) if path.suffix in _SUFFIXES else ()
    if _MARK not in content:
        signs = name == "trainer.pem"  # a file that says where the key is, such as an agent
        return (HostKey(file=name, public_key=None, state="damaged, or of another kind"),) if signs else ()
    key, state = _opened(path, content, passphrase)
    if not isinstance(key, Ed25519PrivateKey | X25519PrivateKey):
        return (HostKey(file=name, public_key=None, state=state),)
    public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
    return (HostKey(file=name, public_key=public, state=state),)


def _opened(path: Path, content: bytes, passphrase: str | None) -> tuple[object, State]:
    if _ENCRYPTED in content:
        try:
            key = read_any(path, passphrase)
        except ProvenanceError:
            return None, "encrypted, not opened"
        return key, "opens with the passphrase of the trainer's key"
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):
        key = None
    known = isinstance(key, Ed25519PrivateKey | X25519PrivateKey)
    return key, "readable" if known else "damaged, or of another kind"


# --- the pack ---

FORMAT, PAYLOAD_TYPE = "explorer/pack/v1", "application/vnd.explorer.pack.v1+json"
MANIFEST, SIGNATURE, VERIFIER, README = "pack.json", "pack.dsse.json", "verify.py", "README.txt"
REPORT, FIGURES, ERASURES = "report.html", "report.json", "erasures"
CERTIFICATE, DELETIONS, MODEL_ATTESTATION, MODEL_CARD = (
    "certificate.json",
    "deletions",
    "attestation.json",
    "model.json",
)
MAX_PACK, MAX_FILES = 2**30, 60_000
DATED = (1980, 1, 1, 0, 0, 0)  # the first day that a zip knows
REGULAR = 0o100644 << 16
UNIX = 3
_NOTE = re.compile(r"witness/[A-Za-z0-9_-][A-Za-z0-9._+-]{0,250}\.note")


@record
class PackedFile:
    """A file of a pack."""

    path: Line
    sha256: Digest
    size: Whole


@record
class Host:
    """What lay on the host where a pack was made."""

    keys: tuple[HostKey, ...]


@record
class Manifest:
    """`pack.json`."""

    format: Literal["explorer/pack/v1"] = FORMAT
    made: Time
    run: Line
    ledger: LedgerState
    files: Annotated[tuple[PackedFile, ...], Field(max_length=MAX_FILES)]  # by path; all but this and its signature
    grants: tuple[Line, ...]  # their ids, in order
    host: Host


@dataclass(frozen=True, kw_only=True, slots=True)
class Pack:
    """A pack as it is in its file."""

    manifest: Manifest
    content: bytes


def make_pack(
    run: RunLedger,
    *,
    grants: Mapping[str, WrappedKeys],
    report: bytes | None,
    figures: bytes | None = None,
    key: Ed25519PrivateKey,
    passphrase: str | None = None,
    trust: Trust,
    now: int,
) -> Pack:
    """Return a pack of a run. `grants`: wrapped keys by the id of their grant; `report`: of what these open, and no
    more, as a page, `figures` as JSON; None: there is nothing to report.

    `key` is the trainer's, `passphrase` that of its file; `now` in seconds since 1970.
    Raises `LedgerError` for a ledger that the trust file does not believe, since nobody signs for that, for one with
    blobs that are gone without an erasure on record, and for a run too large for a pack.
    """
    _check(run, trust, now)
    private = Path(source_of(run.run).private)
    contents = {
        **dict(_ledger(run, trust, now)),
        **dict(_documents(run.run)),
        **dict(papers(run)),
        **dict(_erasures(run)),
        **{f"{rundir.GRANTS}/{id_}.json": wrapped.content for id_, wrapped in grants.items()},
        **{f"proofs/{index}{SUFFIX}": make_proof(run.ledger, index).content for index in _proved(run)},
        **{name: made for name, made in ((REPORT, report), (FIGURES, figures)) if made is not None},
        VERIFIER: verifier_program(),
        README: _readme(run.genesis.run, tuple(grants)).encode(),
    }
    manifest = Manifest(
        made=format_time(now),
        run=run.genesis.run,
        ledger=ledger_state(run),
        files=tuple(
            PackedFile(path=path, sha256=hashlib.sha256(content).hexdigest(), size=len(content))
            for path, content in sorted(contents.items())
        ),
        grants=tuple(sorted(grants)),
        host=Host(keys=host_keys(private, runs_of(run.run), signer=key, passphrase=passphrase, trust=trust)),
    )
    payload = canonical(to_json(manifest))
    contents[MANIFEST], contents[SIGNATURE] = payload, sign_envelope(payload, PAYLOAD_TYPE, [key]).content
    return Pack(manifest=manifest, content=container(contents))


def verifier_program() -> bytes:
    """Return the verifier of this version, which goes into every pack as verify.py."""
    return files("explorer.disclosure").joinpath("verifier.py").read_bytes()


def read_grants(
    run: RunLedger, ids: Collection[str], *, trust: Trust, now: int, project: Iterable[Recorded]
) -> dict[str, WrappedKeys]:
    """Read the wrapped keys of these grants, each of which holds now. `project`: the entries of the project's ledger.

    Raises `ProvenanceError` for a grant that is not here, with the nearest id; that is not believed, has expired, is
    for another run, or was revoked; and for keys that nobody is on record as having wrapped.
    """
    known = {path.stem: path for path in (run.run / rundir.GRANTS).glob("*.json")}
    recorded, found = list(project), {}
    for id_ in sorted({*ids}):
        if id_ not in known:
            raise ProvenanceError(f"{run.run / rundir.GRANTS}: {unknown('grant', id_[:80], known)}")
        wrapped, where = read_wrapped(known[id_]), str(known[id_])
        signed = believe(wrapped, run, trust=trust, now=now, where=where)
        if signed.value.id != id_:
            raise ProvenanceError(f"{where}: holds keys for the grant {signed.value.id!r}")
        check_standing(recorded, naming(signed))
        check_wrapped(recorded, naming(signed), origin=run.ledger.checkpoint().origin)
        found[id_] = wrapped
    return found


def accesses(run: RunLedger, pack: Pack, grants: Mapping[str, WrappedKeys]) -> tuple[Access, ...]:
    """Return what a pack discloses, as the project's ledger keeps it: one entry for each grant in it."""
    query = digest({"format": FORMAT, "pack": hashlib.sha256(canonical(to_json(pack.manifest))).hexdigest()})
    ledger = ledger_state(run)
    return tuple(
        Access(ledger=ledger, grant=grant_digest(wrapped.grant), query=query, blobs={}) for wrapped in grants.values()
    )


def check_place(path: Path) -> None:
    """Raise `ProvenanceError` where there is a file already that is not a pack: it is not replaced."""
    if path.exists() and not (path.is_file() and MANIFEST in _names(path)):
        raise ProvenanceError(f"{path}: there is a file already, and it is not a pack; it is not replaced")


def write_pack(path: Path, pack: Pack) -> None:
    """Write a pack whole or not at all. It replaces an older pack and nothing else.

    Raises `ProvenanceError` for another file that is there already, `RunError` if the disk refuses.
    """
    check_place(path)
    rundir.write_bytes(path, pack.content)


def container(contents: Mapping[str, bytes]) -> bytes:
    """Return a zip of which every byte follows from names and contents. Raises `LedgerError` for more than a pack
    holds."""
    size = sum(map(len, contents.values()))
    if len(contents) > MAX_FILES or size > MAX_PACK:
        raise LedgerError(f"{len(contents)} files of {size} bytes; a pack holds {MAX_FILES} files of {MAX_PACK} bytes")
    if len({name.casefold() for name in contents}) != len(contents):
        raise LedgerError("two names in a pack that some systems take for one: their ids differ in case alone")
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(contents.items()):
            entry = zipfile.ZipInfo(name, DATED)
            entry.create_system, entry.external_attr = UNIX, REGULAR
            archive.writestr(entry, content)
    return written.getvalue()


def _check(run: RunLedger, trust: Trust, now: int) -> None:
    anchor = anchor_of_trust(trust, origin=run.ledger.checkpoint().origin)
    found = verify(run.ledger.path, anchor=anchor, now=now)
    if not found.ok:
        first = found.findings[0]
        raise LedgerError(
            f"{run.ledger.path / first.path}: {first.message}; a ledger that does not verify is no pack's"
        )


def _ledger(run: RunLedger, trust: Trust, now: int) -> Iterator[tuple[str, bytes]]:
    """Yield what belongs to the tree of its checkpoint, and the blobs that entries name. Raises `LedgerError` for a
    blob that is gone and was not erased on record: a pack without it would not verify."""
    ledger, place, size = run.ledger, rundir.LEDGER, run.ledger.checkpoint().size
    yield f"{place}/{CHECKPOINT}", ledger.note().content
    for path, note in ledger.witness_notes().items():
        if _NOTE.fullmatch(path):  # strangers may choose any other; what counts of theirs is in the checkpoint too
            yield f"{place}/{path}", note.content
    for bundle in bundles(size):
        yield f"{place}/{bundle.path}", encode_bundle(ledger.bundle(bundle))
    for tile in tiles(size):
        yield f"{place}/{tile.path}", ledger.tile(tile)
    named = _named(ledger)
    gone = sorted((path, name) for path, name in named if not (ledger.path / path).exists())
    withheld = read_withheld(ledger, trust=trust, now=now) if gone else None
    for path, name in gone:
        if withheld is not None and not withheld.entries(name):
            raise LedgerError(f"{ledger.path / path}: {name}: {withheld.words(name)}")
    for path in sorted({path for path, _ in named} - {path for path, _ in gone}):
        yield f"{place}/{path}", ledger.blob(path.rpartition("/")[2])


def _named(ledger: LedgerDirectory) -> set[tuple[str, str]]:
    """Return the blobs that entries name: the path of each, and what it is there."""
    blobs = [each for leaf in ledger.entries() for each in read_head(leaf).blobs.items()]
    return {(blob_path(blob.sha256), name) for name, blob in blobs}


def _erasures(run: RunLedger) -> Iterator[tuple[str, bytes]]:
    """Yield where blobs are gone, the entries of the project's ledger that say what was erased of the run, each with
    its proof. Other entries stay where they are: who may read which run is nobody's business here."""
    if all((run.ledger.path / path).exists() for path, _ in _named(run.ledger)):
        return
    runs = runs_of(run.run)
    mine = ledger_state(run)
    for each in read_project(runs):
        if isinstance(each.entry, Erasure | Deletion) and each.entry.ledger == mine and each.entry.classes:
            yield f"{ERASURES}/{each.index}{SUFFIX}", make_proof(LedgerDirectory(runs / AUDIT), each.index).content


def _documents(run: Path) -> Iterator[tuple[str, bytes]]:
    for name in (TRUST_FILE, TAXONOMY_FILE, POLICY_FILE, ATTESTATION_FILE, TABLE_FILE):
        path = run / rundir.GOVERNANCE / name
        if path.exists():
            content = rundir.read_bytes(path, max_bytes=MAX_PACK, error=ProvenanceError)
            yield f"{rundir.GOVERNANCE}/{name}", content


def papers(run: RunLedger) -> Iterator[tuple[str, bytes]]:
    """Yield what else is signed about the run or bound by its first entry: what it was, where it comes from, its
    model's attestation, certificates of deletions."""
    attested = [f"{rundir.MODEL}/{name}" for name in (MODEL_ATTESTATION, MODEL_CARD)]
    wanted = [rundir.ORIGIN, *(attested if all((run.run / each).exists() for each in attested) else ())]
    for relative in [*wanted, *_bound(run)]:
        if (run.run / relative).exists():
            yield relative, _paper(run.run / relative)
    for made in [run.run.resolve(), *_made_from(run)]:
        if (made / CERTIFICATE).exists():
            yield f"{DELETIONS}/{made.name}.json", _paper(made / CERTIFICATE)


def _bound(run: RunLedger) -> Iterator[str]:
    """Yield what the first entry binds and is not signed. A plan that leaves single records out names their rows: it
    stays here, as they do."""
    plan = recorded_plan(run)
    if plan is not None and not (ROUTING in plan.methods and left_out(plan).records):
        yield plan_file(plan)
    environment = run.run / rundir.ENVIRONMENT
    if environment.exists() and hashlib.sha256(_paper(environment)).hexdigest() == run.genesis.environment:
        yield rundir.ENVIRONMENT


def _made_from(run: RunLedger) -> Iterator[Path]:
    """Yield the runs that deletions made from this one."""
    for made in rundir.run_directories(run.run.resolve().parent.parent / DELETIONS, loops=True):
        origin = read_origin(made)
        if origin is not None and origin.run == run.genesis.run:
            yield made


def _paper(path: Path) -> bytes:
    return rundir.read_bytes(path, max_bytes=rundir.MAX_JSON_BYTES, error=ProvenanceError)


def _proved(run: RunLedger) -> list[int]:
    """Return the first entry, the states, the end."""
    ends = () if run.outline.end is None else (run.outline.end,)
    return sorted({0, *(index for _, index in run.outline.states), *ends})


def _names(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return []


def _readme(run: str, grants: tuple[str, ...]) -> str:
    granted = ", ".join(grants) or "none: integrity alone can be verified, no sealed number can be read"
    return f"""\
A pack of the training run {run}.
Grants in it: {granted}.

To verify it you need Python 3.11 or newer, the package cryptography, this pack, and a trust file: whom to believe. Take
the trust file from somebody whom you believe. The one in this pack is what the run believed, and proves nothing.

    python -I verify.py PACK --trust TRUST.json
    python -I verify.py PACK --trust TRUST.json --key READER.pem      to read what was granted to your X25519 key too

Take verify.py from the published package of the software, where it is explorer/disclosure/verifier.py, and compare its
SHA-256 with the one in the repository, in explorer/disclosure/verifier.sha256: a forged pack would bring a forged
program. explorer/disclosure/README.md is a guide of ten minutes. Do not open report.html before you believe who signed
the pack: a page can run programs.

-I keeps Python from taking what lies beside the program for its library.

It prints what it checked, what it could not check and why, and which private keys lay on the host where the pack was
made. Its exit status is 0 only if everything holds. report.html, if it is there, is for people, and report.json for
programs; they are what was signed, and no more. Whoever has the software makes the report anew, out of the unpacked
directory: explorer report DIR --trust TRUST.json
"""
