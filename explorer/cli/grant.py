"""`explorer grant`: say who may read which numbers, hand over the keys to them, and take them back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.cli.options import (
    KeyFile,
    PassphraseFile,
    ReaderPassphraseFile,
    RunDirectory,
    SignedOut,
    TrustFile,
    clock,
)
from explorer.cli.signing import load_key, new_passphrase
from explorer.cli.tables import table
from explorer.disclosure.access_log import Listed, wrapped_grants
from explorer.disclosure.grants_in_force import Named, check_standing, covered_classes, named
from explorer.disclosure.requests import MAX_REQUEST, parse_request
from explorer.disclosure.requests import answer as answer_request
from explorer.disclosure.wrapped import naming, words, wrap_keys
from explorer.disclosure.wrapped import revoke as take_back
from explorer.errors import ProvenanceError
from explorer.page.terminal import Answer
from explorer.project import Project, read_project, runs_of
from explorer.provenance.envelope import MAX_BYTES, key_id, parse_envelope, write_envelope
from explorer.provenance.grants import Grant, claimed_grant, grant_digest, open_grant, sign_grant
from explorer.provenance.keys import (
    READER_PASSPHRASE,
    new_reader_key,
    public_bytes,
    reader_key,
    reader_public_text,
    replace_private,
    write_key,
)
from explorer.provenance.signing import Signed
from explorer.provenance.trust import read_trust
from explorer.rundir import read_bytes
from explorer.runlog.documents import trainer_key
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import to_json

File = Annotated[Path, typer.Argument(metavar="GRANT", help="A signed grant.")]


def key(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the new key.")],
    unencrypted: Annotated[bool, typer.Option("--unencrypted", help="Write the key without a passphrase.")] = False,
    passphrase_file: ReaderPassphraseFile = None,
) -> Answer:
    """Make a reader's key and print its public key, which goes into a grant as `public_key`.

    The same key signs what its holder asks for.
    """
    made = new_reader_key()
    passphrase = None if unencrypted else new_passphrase(out, passphrase_file, variable=READER_PASSPHRASE)
    write_key(out, made, passphrase)
    public = reader_public_text(reader_key(made).opens)
    return Answer(
        page=lambda: [f"{out}{' (not encrypted)' if unencrypted else ''}", f"public key  {public}"],
        record=lambda: {"key_file": str(out), "encrypted": not unencrypted, "public_key": public},
    )


def sign(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A grant: a draft (YAML) or a signed file.")],
    key: KeyFile,
    trust: TrustFile,
    out: SignedOut,
    passphrase_file: PassphraseFile = None,
) -> Answer:
    """Sign a grant, its owner first, or add a signature to a signed one. Takes a key of data governance."""
    signing = load_key(key, passphrase_file)
    envelope = sign_grant(file, [signing], trust=read_trust(trust), now=clock())
    write_envelope(out, envelope)
    signer, signatures = key_id(public_bytes(signing)), len(envelope.signatures)
    return Answer(
        page=lambda: [f"{out}: {claimed_grant(envelope, where=str(out)).words}"],
        record=lambda: {
            "file": str(out),
            "digest": grant_digest(envelope),
            "key": signer,
            "signatures": signatures,
        },
    )


def check(
    grant: File,
    trust: TrustFile,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="RUN", help="Also check that it opens this run and was not revoked.")
    ] = None,
) -> Answer:
    """Check that a grant holds now: signatures, classes, expiry. The exit status is 0 only if it does."""
    signed = _open(grant, trust)
    classes = None
    if run is not None:
        classes = sorted(covered_classes(RunLedger(run).genesis, signed.value))
        check_standing(read_project(runs_of(run)), naming(signed))
    names = [authority.name for authority in signed.authorities]
    lines = [signed.value.words, f"to {signed.value.grantee.name}; signed by {', '.join(names)}"]
    opens = [] if classes is None else [f"opens {', '.join(classes)} of {run}"]
    return Answer(
        page=lambda: [*lines, *opens],
        record=lambda: {**to_json(signed.value), "signed_by": names, "opens": classes},
    )


def answer(
    run: RunDirectory,
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="A request, from `explorer read --request`.")],
    trust: TrustFile,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the answer.")],
) -> Answer:
    """Answer a reader's request: check it and its grant, record it, and wrap the keys that it asks for.

    Takes the run's secrets and the trainer's key, whose passphrase is in $EXPLORER_PASSPHRASE; the reader's key stays
    where it is. A request is answered once, and the answer opens for this reader only.
    """
    where, believed, ledger = str(request), read_trust(trust), RunLedger(run)
    signed = parse_request(read_bytes(request, max_bytes=MAX_REQUEST, error=ProvenanceError), where=where)
    name, signing = trainer_key(run, trust=believed, now=clock())
    with Project.open(runs_of(run), key=signing, name=name) as project:
        made = answer_request(ledger, signed, trust=believed, now=clock(), project=project, where=where)
    replace_private(out, made.content)
    grant, query = made.grant.value, made.query
    asked = {"kind": query.kind, "classes": query.classes, "steps": [query.steps.start, query.steps.stop]}
    return Answer(
        page=lambda: [
            f"{out}: for {grant.grantee.name}, by grant {grant.id} of {grant.owner}",
            *_key_lines(made.keys),
            f"entry {made.entry} of the project's ledger, query {query.digest}",
        ],
        record=lambda: {
            "file": str(out),
            "grant": grant.id,
            "query": asked,
            "keys": _key_records(made.keys),
            "entry": made.entry,
        },
    )


def wrap(run: RunDirectory, grant: File, trust: TrustFile) -> Answer:
    """Hand over all keys of a run that a grant covers, before any request: `RUN/grants/<id>.json`.

    A pack takes such keys along. That they were handed over is one entry; what is read with them, then or after the
    grant's end, is none. Where every question is to be an entry, leave this out: `explorer grant answer`.

    They open what the run has recorded so far; run it again for what it has recorded since. Takes the run's secrets and
    the trainer's key, whose passphrase is in $EXPLORER_PASSPHRASE.
    """
    signed, ledger = _open(grant, trust), RunLedger(run)
    name, signing = trainer_key(run, trust=read_trust(trust), now=clock())
    with Project.open(runs_of(run), key=signing, name=name) as project:
        made = wrap_keys(ledger, signed, project=project)
    return Answer(
        page=lambda: [
            f"{made.path}: for {signed.value.grantee.name}, until {signed.value.expires}",
            *_key_lines(made.keys),
            *(f"  {path}: its secret was destroyed; nothing was wrapped" for path in made.erased),
            f"entry {made.entry} of the project's ledger",
        ],
        record=lambda: {
            "file": str(made.path),
            "keys": _key_records(made.keys),
            "erased": made.erased,
            "entry": made.entry,
        },
    )


def revoke(
    run: RunDirectory,
    grant: Annotated[str, typer.Argument(metavar="GRANT", help="Id of the grant, or the signed file.")],
    trust: TrustFile,
) -> Answer:
    """Revoke a grant in all runs of the project, and remove its wrapped keys.

    Other grantees have wrapped keys of their own, so theirs need not be made again. What the grantee has already copied
    cannot be taken back.
    """
    name, signing = trainer_key(run, trust=read_trust(trust), now=clock())
    with Project.open(runs_of(run), key=signing, name=name) as project:
        if Path(grant).is_file():
            envelope = parse_envelope(read_bytes(Path(grant), max_bytes=MAX_BYTES, error=ProvenanceError), where=grant)
            says = claimed_grant(envelope, where=grant)
            meant = Named(owner=says.owner, id=says.id, digest=grant_digest(envelope))
        else:
            meant = named(project.entries(), grant)
        entry, removed = take_back(meant, runs=runs_of(run), project=project)
    when = "was revoked before" if entry is None else f"revoked: entry {entry} of the project's ledger"
    return Answer(
        page=lambda: [f"grant {meant.id} of {meant.owner}: {when}", *(f"  removed {path}" for path in removed)],
        record=lambda: {
            "owner": meant.owner,
            "id": meant.id,
            "entry": entry,
            "removed": [str(path) for path in removed],
        },
    )


def list_(run: RunDirectory, trust: TrustFile) -> Answer:
    """List the grants whose keys were wrapped for a run: grantee, classes, expiry, state."""
    recorded = tuple(read_project(runs_of(run)))
    grants = wrapped_grants(RunLedger(run), recorded, trust=read_trust(trust), now=clock())
    columns = ("grant", "to", "classes", "entries", "until", "now")
    return Answer(
        page=lambda: [table(columns, map(_cells, grants))],
        record=lambda: [
            {**(to_json(grant.grant) if grant.grant else {"id": None}), **_state(grant)} for grant in grants
        ],
    )


def _open(grant: Path, trust: Path) -> Signed[Grant]:
    content = read_bytes(grant, max_bytes=MAX_BYTES, error=ProvenanceError)
    return open_grant(content, trust=read_trust(trust), now=clock(), where=str(grant))


def _key_lines(keys: Mapping[tuple[str, str], int]) -> list[str]:
    return [f"  {words(path, kind)}: {count}" for (path, kind), count in keys.items()]


def _key_records(keys: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    return [{"class": path, "kind": kind, "stretches": count} for (path, kind), count in keys.items()]


def _state(listed: Listed) -> dict[str, Any]:
    return {"file": str(listed.path), "holds": listed.fault is None, "fault": listed.fault}


def _cells(listed: Listed) -> tuple[str, ...]:
    grant, state = listed.grant, listed.fault or "holds"
    if grant is None:
        return listed.path.stem, "?", "?", "?", "?", state
    return grant.id, grant.grantee.name, ", ".join(grant.classes), ", ".join(grant.entries), grant.expires, state
