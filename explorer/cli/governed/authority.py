"""`explorer authority`: keys, and the trust file that lists the trusted ones."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.cli import options
from explorer.cli.signing import known_passphrase, new_passphrase
from explorer.errors import ProvenanceError
from explorer.ledger.cosign import begin_memory, memory_of
from explorer.page.terminal import Answer
from explorer.provenance import keys
from explorer.provenance.envelope import key_id
from explorer.provenance.keys import NEW_PASSPHRASE
from explorer.provenance.spellings import format_time, parse_time
from explorer.provenance.trust import (
    Authority,
    AuthorityKey,
    Quorum,
    Revocation,
    Role,
    Trust,
    cosigner,
    find,
    locked,
    new_trust,
    read_trust,
    trust_content,
    with_key,
    with_quorum,
    with_revocation,
    write_trust,
)
from explorer.rundir import write_bytes
from explorer.schema import to_json

DAYS = 365  # of validity, unless another end is given
NEXT = {  # what a new key of each role is for
    "data-governance": "explorer taxonomy sign, explorer tags sign, explorer ledger cosign",
    "model-risk": "explorer policy sign, explorer ledger cosign",
    "trainer": "the key signs the ledger of a run",
    "auditor": "explorer ledger verify, explorer ledger cosign",
    "evaluator": "explorer observe",
}
COSIGNERS = (Role.DATA_GOVERNANCE, Role.MODEL_RISK, Role.AUDITOR)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the authority, such as example.com/data-governance.")
]


def new(
    name: Name,
    role: Annotated[Role, typer.Option("--role", help="Role of the authority: it decides what the key may sign.")],
    key_file: Annotated[
        Path,
        typer.Option(
            "--key",
            metavar="KEY",
            help="File to write the new key to, or an existing key in an SSH agent: ssh-agent:NAME.",
        ),
    ],
    trust: options.TrustFile,
    branch: Annotated[
        list[str] | None,
        typer.Option(
            "--branch", metavar="PATH", help="A branch of the taxonomy that the authority may vouch for; repeatable."
        ),
    ] = None,
    not_before: Annotated[
        str | None,
        typer.Option(
            "--not-before", metavar="TIME", help="Start of validity, such as 2026-01-01T00:00:00Z. Default: now."
        ),
    ] = None,
    not_after: Annotated[
        str | None,
        typer.Option("--not-after", metavar="TIME", help=f"End of validity. Default: {DAYS} days after the start."),
    ] = None,
    unencrypted: options.Unencrypted = False,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """Make a key and add it to the trust file, as a new authority or as a further key of a known one.

    A trust file that does not exist is created. The first authority of a role sets the quorum of the role to one: one
    authority signs a document, and one signs or cosigns a checkpoint (auditors and evaluators are not required).
    `explorer authority quorum` requires more. Both files are written or none; a crash in between leaves a key file that
    no trust file names.

    A key in an SSH agent is added to the trust file and stays in the agent; KEY may also be a file, mode 0600, of the
    one line ssh-agent:NAME.
    """
    # A key file of one line may name a key in an agent, so a file that exists is read before a new key is made.
    begins = format_time(options.clock()) if not_before is None else not_before
    ends = format_time(parse_time(begins) + DAYS * 86_400) if not_after is None else not_after
    in_agent = (keys.is_in_agent(key_file) or key_file.is_file()) and keys.agent_name(key_file) is not None
    private = keys.read_key(key_file, None) if in_agent else keys.new_key()
    public = AuthorityKey(public_key=keys.public_text(private), not_before=begins, not_after=ends)
    if os.path.realpath(key_file) == os.path.realpath(trust):
        raise ProvenanceError(f"{key_file}: found one path for the key and the trust file; expected two")
    with locked(trust):
        changed = with_key(_read_or_new(trust), name, public, role=role, branches=tuple(branch or ()))
        content = trust_content(changed, where=str(trust))
        if not in_agent:
            keys.write_key(key_file, private, None if unencrypted else new_passphrase(key_file, passphrase_file))
        try:
            write_bytes(trust, content)
        except BaseException:
            # The disk can also refuse after the trust file was replaced: then the key is in it, and stays.
            if not in_agent and not _holds(trust, content):
                key_file.unlink()
            raise
        # A new key has cosigned nothing, so its memory may begin now; of a key in an agent that is not known.
        if role in COSIGNERS and not keys.is_in_agent(key_file):
            begin_memory(memory_of(key_file))
    kept = " (in an SSH agent)" if in_agent else " (not encrypted)" if unencrypted else ""
    return Answer(
        page=lambda: [
            f"{name} ({role}) in {trust}",
            f"  key file    {key_file}{kept}",
            *_added_lines(find(changed, name), public),
            f"  quorum      {_quorum_words(changed.quorum, role)}",
            f"next: {NEXT[role]}",
        ],
        record=lambda: {
            "key_file": str(key_file),
            "encrypted": not unencrypted and not in_agent,
            **_entry(changed, name, public),
        },
    )


def passphrase(
    key: Annotated[Path, typer.Argument(metavar="KEY", help="File of a signing key or of a reader's key.")],
    passphrase_file: options.PassphraseFile = None,
    new_passphrase_file: Annotated[
        Path | None,
        typer.Option(
            "--new-passphrase-file",
            metavar="FILE",
            help=f"File with the new passphrase. Default: ${NEW_PASSPHRASE}, else a prompt.",
        ),
    ] = None,
) -> Answer:
    """Encrypt a key file again, with a new passphrase and the current number of rounds.

    Key files of earlier versions are weak against guessing. Copies and backups of the old file keep its passphrase.
    """
    before, known = keys.rounds(key), known_passphrase(key, passphrase_file)
    # A wrong passphrase fails before the prompt for a new one.
    keys.read_any(key, known)
    keys.encrypt_again(key, known, new_passphrase(key, new_passphrase_file, variable=NEW_PASSPHRASE))
    rounds = keys.rounds(key)
    was = "it was not encrypted" if before is None and known is None else f"it had {before or 'another function'}"
    return Answer(
        page=lambda: [f"{key}: encrypted with {rounds} rounds of PBKDF2; {was}"],
        record=lambda: {"key_file": str(key), "rounds_before": before, "rounds": rounds},
    )


def list_(
    trust: Annotated[Path, typer.Argument(metavar="TRUST", help="A trust file.")],
) -> Answer:
    """List the authorities of a trust file: roles, branches, keys, validity, quorums."""
    trusted, now = read_trust(trust), options.clock()
    return Answer(page=lambda: _listing_lines(trusted, now), record=lambda: _listing(trusted, now))


def _listing_lines(trusted: Trust, now: int) -> Iterator[str]:
    yield f"{trusted.name}  {trusted.digest}"
    for authority in trusted.authorities:
        yield f"\n{authority.name}  {authority.role}  {', '.join(authority.branches)}".rstrip()
        for key in authority.keys:
            yield f"    {_id(key)}  from {key.not_before} until {key.not_after}  {_state(key, now)}"
            if key.revoked is not None:
                yield f"    {'':16}  revoked as of {key.revoked.at}: {key.revoked.reason}"
    yield ""
    for role in sorted(
        {*trusted.quorum.documents, *trusted.quorum.checkpoints, *(o.role for o in trusted.authorities)}
    ):
        yield f"quorum of {role}: {_quorum_words(trusted.quorum, role)}"
    if not trusted.authorities:
        yield "no authority: this trust file refuses everything"


def revoke(
    name: Name,
    trust: options.TrustFile,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, shown where the key is rejected.")],
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="ID", help="Id of the key, a prefix of the id, or the public key. Default: the only key."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Reject documents issued at or after this time. Default: now."),
    ] = None,
) -> Answer:
    """Revoke a key. What it signed before stays valid.

    The date of a document is claimed by its signer. To reject every signature of a stolen key, revoke it as of the
    start of its validity (`from` in `explorer authority list`).
    """
    moment = format_time(options.clock() if at is None else parse_time(at))
    with locked(trust):
        before = read_trust(trust)
        revocation = Revocation(at=moment, reason=reason)
        after = with_revocation(before, name, key=key, revocation=revocation)
        write_trust(trust, after)
    words = f"revoked as of {moment}: {name} in {trust}; distribute the new trust file"
    return Answer(page=lambda: [words], record=lambda: _listing(after, options.clock()))


def quorum(
    role: Annotated[Role, typer.Argument(metavar="ROLE", help="Role of the authorities to count.")],
    trust: options.TrustFile,
    documents: Annotated[
        int | None, typer.Option("--documents", metavar="N", help="Number of signatures that a document needs.")
    ] = None,
    checkpoints: Annotated[
        int | None,
        typer.Option(
            "--checkpoints", metavar="N", help="Number of signatures or cosignatures that a checkpoint needs."
        ),
    ] = None,
) -> Answer:
    """Set how many authorities of a role must sign. Without a quorum, signatures of a role never suffice."""
    with locked(trust):
        before = read_trust(trust)
        after = with_quorum(before, role, documents=documents, checkpoints=checkpoints)
        write_trust(trust, after)
    words = f"quorum of {role} in {trust}: {_quorum_words(after.quorum, role)}"
    return Answer(page=lambda: [words], record=lambda: _listing(after, options.clock()))


def _read_or_new(path: Path) -> Trust:
    return read_trust(path) if path.exists() else new_trust(path.stem)


def _holds(path: Path, content: bytes) -> bool:
    return path.exists() and path.read_bytes() == content


def _added_lines(authority: Authority, key: AuthorityKey) -> list[str]:
    cosigns = cosigner(authority, key)
    return [
        f"  public key  {key.public_key}",
        f"  in ledgers  {cosigns.vkey if cosigns else 'signs under the name of each ledger'}",
        f"  may sign    from {key.not_before} until {key.not_after}",
        f"  branches    {', '.join(authority.branches) or 'none: it vouches for no class'}",
    ]


def _entry(trust: Trust, name: str, key: AuthorityKey) -> dict[str, Any]:
    """Return the record of an authority with one of its keys."""
    authority = find(trust, name)
    made = next(own for own in _keys(authority, options.clock()) if own["public_key"] == key.public_key)
    return {"name": name, "role": authority.role, "branches": authority.branches, "key": made, "trust": trust.digest}


def _listing(trust: Trust, now: int) -> dict[str, Any]:
    return {
        "name": trust.name,
        "digest": trust.digest,
        "quorum": to_json(trust.quorum),
        "authorities": [
            {"name": one.name, "role": one.role, "branches": one.branches, "keys": list(_keys(one, now))}
            for one in trust.authorities
        ],
    }


def _keys(authority: Authority, now: int) -> Iterable[dict[str, Any]]:
    """Yield the record of every key of an authority: the published fields, its state now, its name as a cosigner."""
    for key in authority.keys:
        cosigns = cosigner(authority, key)
        vkey = None if cosigns is None else cosigns.vkey
        yield {"id": key_id(key.raw), **to_json(key), "now": _state(key, now), "cosigner": vkey}


def _id(key: AuthorityKey) -> str:
    return key_id(key.raw)[:16]


def _state(key: AuthorityKey, now: int) -> str:
    # A revocation may lie ahead, and validity ends at the earlier of the two.
    if key.revoked is not None and now >= key.valid_until:
        return "revoked"
    if now < key.valid_from:
        return "not yet valid"
    return "valid" if now < key.valid_until else "expired"


def _quorum_words(quorum: Quorum, role: Role) -> str:
    documents, checkpoints = quorum.documents.get(role), quorum.checkpoints.get(role)
    needs = (
        "documents refused" if documents is None else f"{documents} for a document",
        "not asked for checkpoints" if checkpoints is None else f"{checkpoints} for a checkpoint",
    )
    return ", ".join(needs)
