"""`explorer grant`: say who may read which numbers, hand over the keys to them, and take them back."""

from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.cli.options import (
    Json,
    KeyFile,
    PassphraseFile,
    ReaderPassphraseFile,
    RunDirectory,
    SignedOut,
    TrustFile,
    clock,
)
from explorer.cli.signing import load_key, new_passphrase
from explorer.disclosure.coverage import covered_classes
from explorer.disclosure.listing import Listed, wrapped_grants
from explorer.disclosure.requests import MAX_REQUEST, parse_request
from explorer.disclosure.requests import answer as answer_request
from explorer.disclosure.standing import Named, check_standing, named
from explorer.disclosure.wrapped import words
from explorer.disclosure.wrapping import naming, wrap_keys
from explorer.disclosure.wrapping import revoke as take_back
from explorer.errors import ProvenanceError
from explorer.page.terminal import print_json, print_table, visible
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
    json: Json = False,
) -> None:
    """Make a reader's key and print its public key, which goes into a grant as `public_key`.

    The same key signs what its holder asks for.
    """
    made = new_reader_key()
    passphrase = None if unencrypted else new_passphrase(out, passphrase_file, variable=READER_PASSPHRASE)
    write_key(out, made, passphrase)
    public = reader_public_text(reader_key(made).opens)
    if json:
        print_json({"key_file": str(out), "encrypted": not unencrypted, "public_key": public})
    else:
        print(f"{out}{' (not encrypted)' if unencrypted else ''}\npublic key  {public}")


def sign(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A grant: a draft (YAML) or a signed file.")],
    key: KeyFile,
    trust: TrustFile,
    out: SignedOut,
    passphrase_file: PassphraseFile = None,
    json: Json = False,
) -> None:
    """Sign a grant, its owner first, or add a signature to a signed one. Takes a key of data governance."""
    signing = load_key(key, passphrase_file)
    envelope = sign_grant(file, [signing], trust=read_trust(trust), now=clock())
    write_envelope(out, envelope)
    if json:
        signer, signatures = key_id(public_bytes(signing)), len(envelope.signatures)
        print_json({"file": str(out), "digest": grant_digest(envelope), "key": signer, "signatures": signatures})
    else:
        print(f"{out}: {claimed_grant(envelope, where=str(out)).words}")


def check(
    grant: File,
    trust: TrustFile,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="RUN", help="Also: does it open this run, and was it revoked?")
    ] = None,
    json: Json = False,
) -> None:
    """Whether a grant holds now: who signed it, for which classes, until when. The exit status is 0 only if it does."""
    signed = _open(grant, trust)
    classes = None
    if run is not None:
        classes = sorted(covered_classes(RunLedger(run).genesis, signed.value))
        check_standing(read_project(runs_of(run)), naming(signed))
    names = [authority.name for authority in signed.authorities]
    if json:
        print_json({**_grant_json(signed.value), "signed_by": names, "opens": classes})
        return
    print(f"{signed.value.words}\nto {signed.value.grantee.name}; signed by {', '.join(names)}")
    if classes is not None:
        print(visible(f"opens {', '.join(classes)} of {run}"))


def answer(
    run: RunDirectory,
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="A request, from `explorer read --request`.")],
    trust: TrustFile,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the answer.")],
    json: Json = False,
) -> None:
    """Answer a reader's request: check it and its grant, put it on record, and wrap the keys for just what it asks.

    Takes the run's secrets and the trainer's key, whose passphrase is in $EXPLORER_PASSPHRASE; the reader's key stays
    where it is. A request is answered once, and the answer opens for this reader alone.
    """
    where, believed, found = str(request), read_trust(trust), RunLedger(run)
    signed = parse_request(read_bytes(request, max_bytes=MAX_REQUEST, error=ProvenanceError), where=where)
    name, signing = trainer_key(run, trust=believed, now=clock())
    with Project.open(runs_of(run), key=signing, name=name) as project:
        made = answer_request(found, signed, trust=believed, now=clock(), project=project, where=where)
    replace_private(out, made.content)
    grant, query = made.grant.value, made.query
    if json:
        keys = [{"class": path, "kind": kind, "stretches": count} for (path, kind), count in made.keys.items()]
        asked = {"kind": query.kind, "classes": query.classes, "steps": [query.steps.start, query.steps.stop]}
        print_json({"file": str(out), "grant": grant.id, "query": asked, "keys": keys, "entry": made.entry})
        return
    print(visible(f"{out}: for {grant.grantee.name}, by grant {grant.id} of {grant.owner}"))
    for of, count in made.keys.items():
        print(visible(f"  {words(*of)}: {count}"))
    print(f"entry {made.entry} of the project's ledger, query {query.digest}")


def wrap(run: RunDirectory, grant: File, trust: TrustFile, json: Json = False) -> None:
    """Hand over ahead all the keys of a run that a grant covers, for its grantee alone: `RUN/grants/<id>.json`.

    A pack takes such keys along. That they were handed over is one entry; what is read with them, then or after the
    grant's end, is none. Where every question is to be an entry, leave this out: `explorer grant answer`.

    They open what the run has recorded so far; run it again for what it has recorded since. Takes the run's secrets and
    the trainer's key, whose passphrase is in $EXPLORER_PASSPHRASE.
    """
    signed, found = _open(grant, trust), RunLedger(run)
    name, signing = trainer_key(run, trust=read_trust(trust), now=clock())
    with Project.open(runs_of(run), key=signing, name=name) as project:
        made = wrap_keys(found, signed, project=project)
    if json:
        keys = [{"class": path, "kind": kind, "stretches": count} for (path, kind), count in made.keys.items()]
        print_json({"file": str(made.path), "keys": keys, "erased": made.erased, "entry": made.entry})
        return
    print(visible(f"{made.path}: for {signed.value.grantee.name}, until {signed.value.expires}"))
    for of, count in made.keys.items():
        print(visible(f"  {words(*of)}: {count}"))
    for path in made.erased:
        print(visible(f"  {path}: its secret was destroyed; nothing was wrapped"))
    print(f"entry {made.entry} of the project's ledger")


def revoke(
    run: RunDirectory,
    grant: Annotated[str, typer.Argument(metavar="GRANT", help="Its id, or the file of the signed grant.")],
    trust: TrustFile,
    json: Json = False,
) -> None:
    """Take a grant back, in all runs of the project: it opens nothing any more, and its wrapped keys are removed.

    Other grantees have wrapped keys of their own, so theirs need not be made again. What the grantee has copied before,
    nobody can take back.
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
    if json:
        print_json({"owner": meant.owner, "id": meant.id, "entry": entry, "removed": [str(path) for path in removed]})
        return
    when = "was revoked before" if entry is None else f"revoked: entry {entry} of the project's ledger"
    print(f"grant {meant.id} of {meant.owner}: {when}")
    for path in removed:
        print(visible(f"  removed {path}"))


def list_(run: RunDirectory, trust: TrustFile, json: Json = False) -> None:
    """The grants whose keys were wrapped for a run: to whom, for what, until when, and whether they still count."""
    recorded = tuple(read_project(runs_of(run)))
    found = wrapped_grants(RunLedger(run), recorded, trust=read_trust(trust), now=clock())
    if json:
        said = ({**(_grant_json(each.grant) if each.grant else {"id": None}), **_state(each)} for each in found)
        print_json(list(said))
        return
    print_table(("grant", "to", "classes", "entries", "until", "now"), [[*map(visible, _cells(e))] for e in found])


def _open(grant: Path, trust: Path) -> Signed[Grant]:
    content = read_bytes(grant, max_bytes=MAX_BYTES, error=ProvenanceError)
    return open_grant(content, trust=read_trust(trust), now=clock(), where=str(grant))


def _grant_json(grant: Grant) -> dict[str, Any]:
    return to_json(grant)


def _state(listed: Listed) -> dict[str, Any]:
    return {"file": str(listed.path), "holds": listed.fault is None, "fault": listed.fault}


def _cells(listed: Listed) -> tuple[str, ...]:
    grant, state = listed.grant, listed.fault or "holds"
    if grant is None:
        return listed.path.stem, "?", "?", "?", "?", state
    return grant.id, grant.grantee.name, ", ".join(grant.classes), ", ".join(grant.entries), grant.expires, state
