"""Authorities for a demonstration: all documents that `governance: DIR` needs, made by one process on one machine.

The documents are real and are checked like all others. They prove only that nothing was changed afterwards: one party
plays three roles that should be three parties, with keys in one directory, unencrypted. For real use every party makes
its own key, with a passphrase, with `explorer authority new`.
"""

import datetime
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import rundir
from explorer.canonical import digest
from explorer.data.dataset import DataSource
from explorer.ledger.cosign import begin_memory, memory_of
from explorer.provenance.description import Days, Description
from explorer.provenance.envelope import write_envelope
from explorer.provenance.keys import new_key, public_text, write_key
from explorer.provenance.policy import RoutingPolicy, read_policy
from explorer.provenance.routing_weights import policy_for
from explorer.provenance.signing import sign_document
from explorer.provenance.spellings import format_time, parse_time
from explorer.provenance.tag_attestation import attest
from explorer.provenance.tag_records import write_tagged
from explorer.provenance.taxonomy import TAXONOMY, Taxonomy, read_taxonomy
from explorer.provenance.trust import AuthorityKey, Role, Trust, new_trust, with_key, write_trust
from explorer.recipes.choice import written
from explorer.runlog.documents import (
    ATTESTATION_FILE,
    POLICIES,
    SALTS_FILE,
    TABLE_FILE,
    TAXONOMY_FILE,
    TRAINER_FILE,
    TRUST_FILE,
)
from explorer.training.tagging import records_of
from explorer.yaml_document import read_document

GOVERNANCE = "example.com/data-governance"
RISK = "example.com/model-risk"
NAME_OF_TRAINER = "example.com/trainer"
DAYS = 365
KEYS = {GOVERNANCE: "data-governance.pem", RISK: "model-risk.pem", NAME_OF_TRAINER: TRAINER_FILE}
ROLES = {GOVERNANCE: Role.DATA_GOVERNANCE, RISK: Role.MODEL_RISK, NAME_OF_TRAINER: Role.TRAINER}
COSIGNERS = (GOVERNANCE, RISK)
NO_DRAFTS: Mapping[str, str] = {}
WARNING = "for demonstration: three keys of one party, unencrypted, in one directory"


class Example(NamedTuple):
    """Documents that ship as an example."""

    taxonomy: Taxonomy
    policy: RoutingPolicy


def example(directory: Path) -> Example:
    """Return the taxonomy of licences and the policy `half-depth`, from the directory of the example policies."""
    taxonomy = read_taxonomy(read_document(directory / "licences.taxonomy.yaml"))
    return Example(taxonomy=taxonomy, policy=read_policy(read_document(directory / "half-depth.policy.yaml")))


def demonstrate(
    directory: Path,
    source: DataSource,
    *,
    data: Path | None,
    taxonomy: Taxonomy,
    policies: Sequence[RoutingPolicy],
    now: int,
) -> Path:
    """Return the directory of documents for a dataset, below this one; make it if it is not there.

    Args:
        directory: the parent of such directories.
        source: the dataset; its records become tags.
        data: the directory of data sets.
        taxonomy: the classes of the tags.
        policies: all of them are signed.
        now: seconds since 1970; the documents are issued then.
    """
    whole = directory / f"{source.name}-{_subject(source, data, taxonomy, policies)[:8]}"
    if not whole.exists():
        write_documents(whole, source, data=data, taxonomy=taxonomy, policies=policies, now=now)
    return whole


def _subject(source: DataSource, data: Path | None, taxonomy: Taxonomy, policies: Sequence[RoutingPolicy]) -> str:
    # The name is a digest of the subject, so that other data, another taxonomy and other policies have another
    # directory, with other keys, and the same ones keep theirs.
    about = {
        "data": [written(source), source.digest(data)],
        "taxonomy": taxonomy.digest,
        "policies": sorted(policy.digest for policy in policies),
    }
    return digest(about)


def write_documents(
    whole: Path,
    source: DataSource,
    *,
    data: Path | None,
    taxonomy: Taxonomy,
    policies: Sequence[RoutingPolicy],
    now: int,
    drafts: Mapping[str, str] = NO_DRAFTS,
) -> None:
    """Write keys, trust file, taxonomy, policies and tags for a dataset into a new directory, whole or not at all.

    `drafts` are further files, by name. Arguments are those of `demonstrate`.
    """
    # Renamed when it is whole: a crash leaves a hidden directory that this process id may meet again.
    part = whole.with_name(f".{whole.name}.{os.getpid()}.tmp")
    shutil.rmtree(part, ignore_errors=True)
    (part / POLICIES).mkdir(parents=True, mode=0o700)
    try:
        _write(part, source, data=data, taxonomy=taxonomy, policies=policies, now=now)
        for name, text in drafts.items():
            rundir.write_bytes(part / name, text.encode())
        part.rename(whole)
        rundir.flush_directory(whole.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def authorities(directory: Path, *, taxonomy: Taxonomy, policies: Sequence[RoutingPolicy], now: int) -> Path:
    """Write the documents into a new directory, without tags, and return it: for examples that the caller tags
    (`explorer.tag`)."""
    (directory / POLICIES).mkdir(parents=True, mode=0o700)
    _authorities(directory, taxonomy=taxonomy, policies=policies, now=now)
    return directory


def _write(
    directory: Path,
    source: DataSource,
    *,
    data: Path | None,
    taxonomy: Taxonomy,
    policies: Sequence[RoutingPolicy],
    now: int,
) -> None:
    keys, trust = _authorities(directory, taxonomy=taxonomy, policies=policies, now=now)
    write_tagged(directory / TABLE_FILE, directory / SALTS_FILE, records_of(source, data=data, authority=GOVERNANCE))
    attested = attest(
        directory / TABLE_FILE,
        taxonomy=taxonomy,
        description=_description(source, data, now),
        issued=format_time(now),
        expires=format_time(now + DAYS * 86_400),
        keys=[keys[GOVERNANCE]],
        trust=trust,
        now=now,
    )
    write_envelope(directory / ATTESTATION_FILE, attested)


def _authorities(
    directory: Path, *, taxonomy: Taxonomy, policies: Sequence[RoutingPolicy], now: int
) -> tuple[dict[str, Ed25519PrivateKey], Trust]:
    """Write keys, trust file, taxonomy and policies, which is everything but tags."""
    keys = {name: new_key() for name in ROLES}
    trust = _trust(keys, taxonomy, policies, now)
    for name, key in keys.items():
        write_key(directory / KEYS[name], key, None)
        if name in COSIGNERS:
            begin_memory(memory_of(directory / KEYS[name]))
    write_trust(directory / TRUST_FILE, trust)
    signed = sign_document(taxonomy, TAXONOMY, [keys[GOVERNANCE]], trust=trust, now=now, where=taxonomy.name)
    write_envelope(directory / TAXONOMY_FILE, signed)
    for policy in policies:
        kind = policy_for(taxonomy)
        signed = sign_document(policy, kind, [keys[RISK]], trust=trust, now=now, where=policy.name)
        write_envelope(directory / POLICIES / f"{policy.name}.json", signed)
    rundir.write_bytes(directory / "README", f"{WARNING}\n".encode())
    return keys, trust


def _trust(
    keys: dict[str, Ed25519PrivateKey], taxonomy: Taxonomy, policies: Sequence[RoutingPolicy], now: int
) -> Trust:
    """Return a trust file that requires one signature of each role. Its keys are valid from the oldest document on."""
    begins = min([taxonomy.issued, *(policy.issued for policy in policies), format_time(now)], key=parse_time)
    branches = tuple(sorted(class_.path for class_ in taxonomy.classes if "/" not in class_.path))
    trust = new_trust("demonstration")
    for name, role in ROLES.items():
        public = AuthorityKey(
            public_key=public_text(keys[name]), not_before=begins, not_after=format_time(now + DAYS * 86_400)
        )
        trust = with_key(trust, name, public, role=role, branches=branches if name == GOVERNANCE else ())
    return trust


def _description(source: DataSource, data: Path | None, now: int) -> Description:
    """Return the description of a dataset, from the facts that its source declares."""
    today = datetime.datetime.fromtimestamp(now, datetime.UTC).date().isoformat()
    return Description(
        standards_version="1.0.0",
        title=source.name,
        identifier=f"urn:sha256:{source.digest(data)}",
        location="the machine that this was made on",
        issuer=GOVERNANCE,
        description=source.summary,
        source=source.source,
        origin_geography="not known",
        issue_date=today,
        generated=Days(first=today, last=today),
        method="read from the files, classes as files, folders or columns declare them",
        format="bytes in memory",
        confidentiality="public",
        licence=source.licence,
        intended_use="demonstration",
        proprietary=False,
    )
