"""Packs: one file that an auditor opens offline, with the program that verifies it (`explorer.disclosure.verifier`).

A pack is a zip of stored files, in the order of their names and dated 1 January 1980, so that every byte of it follows
from names and contents:

    README.txt                what a pack is and how to verify it
    pack.json                 the manifest below, with digest and size of every other file
    pack.dsse.json            the trainer's signature over the manifest
    verify.py                 the verifier, one file
    report.html, report.json  for people and for programs, if any step was done; they show no more than the grants open
    run.json environment.json the run's plan and environment, if its first entry binds them and they name no records
    ledger/...                the checkpoint and its cosignatures, tiles, entries, blobs
    governance/...            trust.json (the run's own: never an anchor), taxonomy, policy, tags
    grants/<id>.json          the selected grants, with their wrapped keys
    proofs/<n>.tlog-proof     of the first entry, of every state and of the end
    erasures/<n>.tlog-proof   entries of the project's ledger about erasures from the run, with their proofs
    deletions/<run id>.json   certificates of deletions
    origin.json               of a run that a deletion made
    model/...                 the model's attestation and card, without the model

    {"format": "explorer/pack/v1", "made": "2026-06-01T00:00:00Z", "run": "...", "ledger": {origin, size, root},
     "files": [{"path", "sha256", "size"}, ...], "grants": ["2026-0007"],
     "host": {"keys": [{"file": "trainer.pem", "public_key": "...", "state": "readable"}]}}

The manifest is canonical JSON (RFC 8785) and signed as DSSE of the type application/vnd.explorer.pack.v1+json. Blobs of
classes that no grant opens are included as they are in the ledger, sealed. Weights, checkpoints, the files of
`private/`, the spool, other grants and `source.json` are never included.

The manifest lists the private keys on the host (`host_keys`), because anyone who can write there can sign with them,
whatever the trust file says. The search covers the directory of the trainer's key and its parent, and the directory of
the project's runs and its parent: the places where the README says to keep keys. An encrypted key is opened if the
passphrase of the trainer's key opens it, since its holder then has both; otherwise it is listed without an owner. Of
the keys in an SSH agent, only those in the trust file are listed. Keys in other places, on machines within reach, and
in memory are missed.
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
from explorer.runlog.anchor import anchor_of_ledger
from explorer.runlog.documents import ATTESTATION_FILE, POLICY_FILE, TABLE_FILE, TAXONOMY_FILE, TRUST_FILE, source_of
from explorer.runlog.influence import recorded_plan
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import ROUTING, left_out, read_origin
from explorer.schema import record, to_json

# --- private keys on the host ---

MAX_LISTED = 2_000  # names in one directory that are examined
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
    """A file with a private key, and its public key."""

    # A name in the directory of the trainer's key; in its parent after ../, in the project's after runs/ and runs/../.
    file: TextLine
    public_key: PublicKey | None  # None: unknown
    state: State


def host_keys(
    private: Path, runs: Path, *, signer: Ed25519PrivateKey, passphrase: str | None, trust: Trust
) -> tuple[HostKey, ...]:
    """List the private keys on this host.

    Raises `ProvenanceError` if the directory of the trainer's key cannot be listed.

    Args:
        private: the directory of the trainer's key.
        runs: the directory of the project's runs.
        signer: the key that signs the pack.
        passphrase: that of the signer's key file.
        trust: the authorities whose keys are listed if they are in an SSH agent.
    """
    try:
        next(private.iterdir(), None)
    except OSError as error:
        raise ProvenanceError(f"cannot look for keys in {private}: {error.strerror or error}") from error
    # The directories may coincide or contain each other: each is listed once, under its first name.
    places = [("", private), ("../", private / ".."), ("runs/", runs), ("runs/../", runs / "..")]
    seen: set[Path] = set()
    keys: list[HostKey] = []
    for prefix, place in places:
        if (resolved := place.resolve()) not in seen:
            seen.add(resolved)
            keys += _in_directory(prefix, resolved, passphrase)
    own = public_text(signer)
    return (*(_with_signer(key, own) for key in keys), *_in_agent(trust))


def _with_signer(key: HostKey, own: str) -> HostKey:
    """Return the entry of the signer's file with the signer's public key: the file itself may only name an agent."""
    unknown_signer = key.file == "trainer.pem" and key.public_key is None
    return HostKey(file=key.file, public_key=own, state="signed this pack") if unknown_signer else key


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
        signs = name == "trainer.pem"  # without a key inside, it names the place of the key, such as an agent
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
DATED = (1980, 1, 1, 0, 0, 0)  # the first day that a zip can express
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
    """The private keys on the host where a pack was made."""

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
    """A pack and its bytes."""

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
    """Return a pack of a run.

    Raises `LedgerError` for a ledger that does not verify, for blobs that are missing without an erasure on record, and
    for a run that is too large for a pack.

    Args:
        run: the run.
        grants: wrapped keys by the id of their grant.
        report: a page that shows no more than the grants open; None: there is nothing to report.
        figures: the same as JSON.
        key: the trainer's private key.
        passphrase: that of the trainer's key file.
        trust: the authorities that count.
        now: the time of making, in seconds since 1970.
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
    """Return the verifier of this version, which every pack contains as verify.py."""
    return files("explorer.disclosure").joinpath("verifier.py").read_bytes()


def read_grants(
    run: RunLedger, ids: Collection[str], *, trust: Trust, now: int, project: Iterable[Recorded]
) -> dict[str, WrappedKeys]:
    """Read the wrapped keys of grants that are in force.

    Raises `ProvenanceError` for a grant that is not here, with the nearest id; that is not believed, has expired, is
    for another run, or was revoked; and for keys whose wrapping is not on record.

    Args:
        run: the run.
        ids: the grants' ids.
        trust: the authorities that count.
        now: the time of the check, in seconds since 1970.
        project: the entries of the project's ledger.
    """
    known = {path.stem: path for path in (run.run / rundir.GRANTS).glob("*.json")}
    recorded, grants = list(project), {}
    for id_ in sorted({*ids}):
        if id_ not in known:
            raise ProvenanceError(f"{run.run / rundir.GRANTS}: {unknown('grant', id_[:80], known)}")
        wrapped, where = read_wrapped(known[id_]), str(known[id_])
        signed = believe(wrapped, run, trust=trust, now=now, where=where)
        if signed.value.id != id_:
            raise ProvenanceError(f"{where}: holds keys for the grant {signed.value.id!r}, expected {id_!r}")
        check_standing(recorded, naming(signed))
        check_wrapped(recorded, naming(signed), origin=run.ledger.checkpoint().origin)
        grants[id_] = wrapped
    return grants


def accesses(run: RunLedger, pack: Pack, grants: Mapping[str, WrappedKeys]) -> tuple[Access, ...]:
    """Return the entries by which the project's ledger records what a pack discloses: one for each grant in it."""
    query = digest({"format": FORMAT, "pack": hashlib.sha256(canonical(to_json(pack.manifest))).hexdigest()})
    ledger = ledger_state(run)
    return tuple(
        Access(ledger=ledger, grant=grant_digest(wrapped.grant), query=query, blobs={}) for wrapped in grants.values()
    )


def check_place(path: Path) -> None:
    """Raise `ProvenanceError` for an existing file that is not a pack: it would be lost."""
    if path.exists() and not (path.is_file() and MANIFEST in _names(path)):
        raise ProvenanceError(f"{path}: there is a file already, and it is not a pack; it is not replaced")


def write_pack(path: Path, pack: Pack) -> None:
    """Write a pack whole or not at all. It replaces an older pack and nothing else.

    Raises `ProvenanceError` for another file that is there already, `RunError` if the disk refuses.
    """
    check_place(path)
    rundir.write_bytes(path, pack.content)


def container(contents: Mapping[str, bytes]) -> bytes:
    """Return the zip of a pack, every byte of which follows from names and contents.

    Raises `LedgerError` for more files or bytes than a pack may hold.
    """
    size = sum(map(len, contents.values()))
    if len(contents) > MAX_FILES or size > MAX_PACK:
        most = f"{MAX_FILES} files of {MAX_PACK} bytes"
        raise LedgerError(f"found {len(contents)} files of {size} bytes; a pack holds at most {most}")
    if len({name.casefold() for name in contents}) != len(contents):
        raise LedgerError("two names in the pack differ only in case, which some file systems take for one")
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(contents.items()):
            entry = zipfile.ZipInfo(name, DATED)
            entry.create_system, entry.external_attr = UNIX, REGULAR
            archive.writestr(entry, content)
    return written.getvalue()


def _check(run: RunLedger, trust: Trust, now: int) -> None:
    anchor = anchor_of_ledger(run.ledger, trust)
    verification = verify(run.ledger.path, anchor=anchor, now=now)
    if not verification.ok:
        first = verification.findings[0]
        raise LedgerError(f"{run.ledger.path / first.path}: {first.message}; only a ledger that verifies can be packed")


def _ledger(run: RunLedger, trust: Trust, now: int) -> Iterator[tuple[str, bytes]]:
    """Yield the ledger's files: checkpoint and notes, tree and entries, blobs.

    Raises `LedgerError` for a blob that is missing without an erasure on record: a pack without it would not verify.
    """
    ledger, place, size = run.ledger, rundir.LEDGER, run.ledger.checkpoint().size
    yield f"{place}/{CHECKPOINT}", ledger.note().content
    for path, note in ledger.witness_notes().items():
        # Anyone may put a file there under any name. The verifier accepts only these; cosignatures that count are in
        # the checkpoint too.
        if _NOTE.fullmatch(path):
            yield f"{place}/{path}", note.content
    # Tiles are those of the checkpoint's tree: the ledger may have grown since, or keep partial tiles of earlier sizes.
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
    """Return the path of each blob that an entry names, with its name there."""
    blobs = [named for leaf in ledger.entries() for named in read_head(leaf).blobs.items()]
    return {(blob_path(blob.sha256), name) for name, blob in blobs}


def _erasures(run: RunLedger) -> Iterator[tuple[str, bytes]]:
    """Yield proofs of the entries in the project's ledger about erasures from the run, if any blob is missing.

    Other entries are left out: an auditor of one run has no need to see who may read which other.
    """
    if all((run.ledger.path / path).exists() for path, _ in _named(run.ledger)):
        return
    runs = runs_of(run.run)
    state = ledger_state(run)
    for item in read_project(runs):
        if isinstance(item.entry, Erasure | Deletion) and item.entry.ledger == state and item.entry.classes:
            yield f"{ERASURES}/{item.index}{SUFFIX}", make_proof(LedgerDirectory(runs / AUDIT), item.index).content


def _documents(run: Path) -> Iterator[tuple[str, bytes]]:
    for name in (TRUST_FILE, TAXONOMY_FILE, POLICY_FILE, ATTESTATION_FILE, TABLE_FILE):
        path = run / rundir.GOVERNANCE / name
        if path.exists():
            content = rundir.read_bytes(path, max_bytes=MAX_PACK, error=ProvenanceError)
            yield f"{rundir.GOVERNANCE}/{name}", content


def papers(run: RunLedger) -> Iterator[tuple[str, bytes]]:
    """Yield the other files that are signed or bound by the run's first entry: its plan, environment and origin, its
    model's attestation, certificates of deletions."""
    # The verifier refuses a card without its attestation, and the other way round.
    attested = [f"{rundir.MODEL}/{name}" for name in (MODEL_ATTESTATION, MODEL_CARD)]
    wanted = [rundir.ORIGIN, *(attested if all((run.run / name).exists() for name in attested) else ())]
    for relative in [*wanted, *_bound(run)]:
        if (run.run / relative).exists():
            yield relative, _paper(run.run / relative)
    # The certificate of the deletion that made this run, and those of deletions from it.
    for made in [run.run.resolve(), *_made_from(run)]:
        if (made / CERTIFICATE).exists():
            yield f"{DELETIONS}/{made.name}.json", _paper(made / CERTIFICATE)


def _bound(run: RunLedger) -> Iterator[str]:
    """Yield the unsigned files that the first entry binds.

    A plan that leaves out single records names their rows, so it is not disclosed.
    """
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
    """Return the numbers of the entries that get a proof: the first entry, the states, the end."""
    ends = () if run.outline.end is None else (run.outline.end,)
    return sorted({0, *(index for _, index in run.outline.states), *ends})


def _names(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return []


def _readme(run: str, grants: tuple[str, ...]) -> str:
    granted = ", ".join(grants) or "none: its integrity can be verified, but no sealed number can be read"
    return f"""\
A pack of the training run {run}.
Grants in it: {granted}.

To verify it you need Python 3.11 or newer, the package cryptography, this pack, and a trust file: the authorities that
you trust, with their keys. Write it yourself or take it from a source that you trust. The copy in this pack is the
trainer's choice, and proves nothing.

    python -I verify.py PACK --trust TRUST.json
    python -I verify.py PACK --trust TRUST.json --key READER.pem      to read what was granted to your X25519 key too

Take verify.py from the published package of the software, where it is explorer/disclosure/verifier.py, and compare its
SHA-256 with the one in the repository, in explorer/disclosure/verifier.sha256: a forged pack would bring a forged
program. explorer/disclosure/README.md is a ten-minute guide. Do not open report.html before you trust the signer of the
pack: a page can run programs in your browser.

-I keeps Python from importing files of the program's own directory.

The program prints what it checked, what it could not check and why, and which private keys were on the host where the
pack was made. Its exit status is 0 only if everything holds. report.html, if there is one, is for people, and
report.json for programs; both are the signer's word. With the software you can make the report again from the unpacked
directory: explorer report DIR --trust TRUST.json
"""
