"""The attestation of a tag table: one in-toto statement in a DSSE envelope, signed by those who vouch for its tags.

    subject    the table's file, by its SHA-256, and the Merkle root over its rows (tags.py), in this order
    predicate  the taxonomy's digest; the number of records; who vouches for how many of which class, and the slot of
               the first; the description of the dataset; issued and expires (tags.py)

The list of authorities in the predicate defines their numbers in the tags, so that every tag is bound to a class of
that taxonomy and to a name. The trust file is not pinned: each checker has its own.

A table is believed if

1.  a key that the trust file lists has signed the envelope, and the statement is of this form;
2.  it was made for the taxonomy at hand, and every class in it is one of that taxonomy's;
3.  every authority named for a tag has signed, has the role `data-governance`, may vouch for the classes of its tags
    and was not revoked, and as many such authorities have signed as the trust file's quorum requires;
4.  the file has the signed digest; only then is it parsed;
5.  the root and the counts computed from its rows are the signed ones.

Anything else is refused with a reason and, where it is about tags, the slot of one. If only 3. fails, for some
authorities and classes, `weigh_tags` returns these as doubts instead, so that their tags can be set aside. The digest
of its file covers every byte of the table; of the attestation, only the parts of an envelope that no signature covers
can be changed (envelope.py).

Each authority vouches for the tags that name it, in its own branches. The trust file's quorum counts too: for the
classes of every named authority, as many authorities entitled to them must have signed. Anyone may put a record into
the quarantine, which never trains.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from explorer.errors import ProvenanceError, RecipeError, unknown
from explorer.provenance.description import Description
from explorer.provenance.envelope import MAX_BYTES, Envelope, add_signatures, parse_envelope
from explorer.provenance.keys import public_bytes
from explorer.provenance.signing import check_signed, check_signer, check_span, require
from explorer.provenance.spellings import parse_time
from explorer.provenance.statement import PAYLOAD_TYPE, Statement, Subject, make_statement, parse_statement, type_of
from explorer.provenance.tags import Tags, TagTable, Voucher, count, difference, read_authorities, read_tags
from explorer.provenance.tags_file import TagFile
from explorer.provenance.taxonomy import QUARANTINE, Taxonomy
from explorer.provenance.trust import Authority, Quorum, Role, Trust
from explorer.rundir import read_bytes
from explorer.schema import from_json, to_json

# ----------------------------------------------------------------------------------------------- who may vouch for tags


class Reason(StrEnum):
    """Reasons why the tags of an authority and a class are not believed."""

    UNKNOWN_AUTHORITY = "unknown-authority"  # the trust file does not list it
    UNSIGNED = "unsigned"  # it is named but has not signed
    OUT_OF_BRANCH = "out-of-branch"  # it may not vouch for the class
    REVOKED = "revoked"  # the keys that it signed with are revoked
    NOT_ENTITLED = "not-entitled"  # wrong role, outside the span of its key or of the attestation, or too few signers


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """A reason why tags are not believed, with the words of the refusal."""

    reason: Reason
    words: str


Doubts = dict[tuple[str, str], Doubt]
"""Doubts by authority and class path."""

_ONE = Quorum(documents={Role.DATA_GOVERNANCE: 1}, checkpoints={})


def check_vouchers(envelope: Envelope, table: TagTable, *, trust: Trust, now: int, where: str) -> tuple[Authority, ...]:
    """Return the authorities that have signed for tags they may vouch for, by name.

    Raises `ProvenanceError`, with the slot of a tag, for an authority named in a tag that may not vouch for it or has
    not signed, and for too few signers.
    """
    signed = check_signed(envelope, trust=trust, where=where)
    believed: dict[str, Authority] = {}
    for voucher in table.vouchers:
        believed |= _believed(envelope, voucher, table, signed=signed, trust=trust, now=now, where=where)
    return tuple(believed[name] for name in sorted(believed))


def weigh_vouchers(
    envelope: Envelope, table: TagTable, *, trust: Trust, now: int, where: str
) -> tuple[tuple[Authority, ...], Doubts]:
    """Return the authorities that are believed for some class, by name, and all doubts, class by class.

    Raises `ProvenanceError` if no key of the trust file has signed: then nothing in it can be attributed.
    """
    signed = check_signed(envelope, trust=trust, where=where)
    believed: dict[str, Authority] = {}
    doubts: Doubts = {}
    for voucher in table.vouchers:
        # Class by class, so that an authority is still believed for the classes that it may vouch for.
        for path, counted in voucher.classes.items():
            for_class = replace(voucher, classes={path: counted})
            try:
                believed |= _believed(envelope, for_class, table, signed=signed, trust=trust, now=now, where=where)
            except ProvenanceError as error:
                reason = _reason(for_class, table, path, signed=signed, trust=trust)
                doubts[voucher.authority, path] = Doubt(reason=reason, words=str(error))
    return tuple(believed[name] for name in sorted(believed)), doubts


def sign_for(
    envelope: Envelope, table: TagTable, keys: Collection[Ed25519PrivateKey], *, trust: Trust, now: int, where: str
) -> Envelope:
    """Add signatures by keys that may vouch for the tags that name their authority, or for all tags if none names it.

    Arguments are those of `signing.require`. Raises `ProvenanceError`, with the slot of a tag, for any other key.
    """
    named = {voucher.authority: _named(voucher, trust, where) for voucher in table.vouchers}
    everything = tuple(path for path in table.histogram if path != QUARANTINE)
    for key in keys:
        owner = trust.owner(public_bytes(key))
        _, classes, here = named.get(owner[0].name if owner else "", (None, everything, where))
        check_signer(
            public_bytes(key),
            trust=trust,
            role=Role.DATA_GOVERNANCE,
            issued=table.issued,
            now=now,
            branches=classes,
            where=here,
        )
    return add_signatures(envelope, keys)


def _believed(
    envelope: Envelope,
    voucher: Voucher,
    table: TagTable,
    *,
    signed: frozenset[bytes],
    trust: Trust,
    now: int,
    where: str,
) -> dict[str, Authority]:
    """Return the authorities that vouch for these tags, by name.

    Raises `ProvenanceError` where they are not believed.
    """
    authority, classes, here = _named(voucher, trust, where)
    if signed.isdisjoint(key.raw for key in authority.keys):
        raise ProvenanceError(f"{here}: {authority.name} has not signed, or its signature does not match")
    vouchers: dict[str, Authority] = {}
    # Two checks: the authority that the tag names has to be entitled itself, whatever others have signed; and the
    # quorum of the whole trust file has to be met.
    only_named = replace(trust, authorities=(authority,), quorum=_ONE)
    for believed in (only_named, trust):
        vouching = require(
            envelope,
            trust=believed,
            role=Role.DATA_GOVERNANCE,
            issued=table.issued,
            expires=table.expires,
            now=now,
            branches=classes,
            where=here,
        )
        vouchers |= {one.name: one for one in vouching}
    return vouchers


def _reason(voucher: Voucher, table: TagTable, path: str, *, signed: frozenset[bytes], trust: Trust) -> Reason:
    """Return the reason for a refusal, the widest that applies."""
    authority = next((one for one in trust.authorities if one.name == voucher.authority), None)
    if authority is None:
        return Reason.UNKNOWN_AUTHORITY
    keys = [key for key in authority.keys if key.raw in signed]
    if not keys:
        return Reason.UNSIGNED
    if path != QUARANTINE and not authority.vouches_for(path):
        return Reason.OUT_OF_BRANCH
    issued = parse_time(table.issued)
    if all(key.revoked is not None and parse_time(key.revoked.at) <= issued for key in keys):
        return Reason.REVOKED
    return Reason.NOT_ENTITLED


def _named(voucher: Voucher, trust: Trust, where: str) -> tuple[Authority, tuple[str, ...], str]:
    """Return a voucher's authority, the classes that it has to be entitled to, and words that locate a tag."""
    # The tag in the message: the first of a class that the authority may not vouch for, or else its first tag.
    classes = tuple(path for path in voucher.classes if path != QUARANTINE)
    authority = next((one for one in trust.authorities if one.name == voucher.authority), None)
    foreign = [path for path in classes if authority is not None and not authority.vouches_for(path)]
    path = min(foreign or classes or (QUARANTINE,), key=lambda path: voucher.classes[path].first)
    here = f"{where}: the tag of slot {voucher.classes[path].first} ({path}, by {voucher.authority})"
    if authority is None:
        raise ProvenanceError(f"{here}: {unknown('authority', voucher.authority, (o.name for o in trust.authorities))}")
    return authority, classes, here


# ------------------------------------------------------------------------------------------------------ the attestation

PREDICATE_TYPE = type_of("tag-table/v1")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VerifiedTags:
    """A believed tag table: the class of every example, and the authorities that vouch for it."""

    tags: Tags  # arrays by slot
    codes: dict[str, int]  # the number of every class of the taxonomy
    table: TagTable
    authorities: tuple[Authority, ...]  # that signed, and are entitled to the tags that name them
    attestation: str  # SHA-256 of the statement, in hexadecimal
    file: str  # SHA-256 of the table's file
    doubts: Doubts = field(default_factory=dict)  # by authority and class: tags that are not believed

    @property
    def root(self) -> str:
        """The Merkle root over the rows, in hexadecimal."""
        return self.tags.root.hex()


def read_attestation(path: Path) -> bytes:
    """Return the content of an attestation's file. Raises `ProvenanceError` if it cannot be read or is too large."""
    return read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)


def attest(
    path: Path,
    *,
    taxonomy: Taxonomy,
    description: Description,
    issued: str,
    expires: str,
    keys: Collection[Ed25519PrivateKey],
    trust: Trust,
    now: int,
) -> Envelope:
    """Sign a table with keys that may vouch for it now.

    Args:
        path: the table's file.
        taxonomy: the taxonomy of its classes.
        description: the description of the dataset.
        issued, expires: the span of the attestation.
        keys: keys of authorities.
        trust: the trust file that says which keys may vouch for which classes.
        now: seconds since 1970.

    Raises `ProvenanceError` for a damaged table, for unknown classes, and for a key that may not sign for the tags that
    name its authority.
    """
    # Digests and counts are computed from the table's rows, never taken from the caller.
    with TagFile(path) as file:
        names = read_authorities(file)
        tags = read_tags(file, codes=taxonomy.codes, authorities=names)
        digest = file.sha256()
    table = TagTable(
        taxonomy=taxonomy.digest,
        records=len(tags),
        vouchers=count(tags, authorities=names, codes=taxonomy.codes),
        description=description,
        issued=issued,
        expires=expires,
    )
    table = from_json(TagTable, to_json(table), where=str(path), error=ProvenanceError)
    check_span(table, str(path))
    statement = make_statement(
        [Subject(name=path.name, sha256=digest), Subject(name=f"{path.name}#rows", sha256=tags.root.hex())],
        predicate_type=PREDICATE_TYPE,
        predicate=to_json(table),
    )
    unsigned = Envelope(payload=statement.payload, payload_type=PAYLOAD_TYPE, signatures=())
    return sign_for(unsigned, table, keys, trust=trust, now=now, where=str(path))


def add_signature(
    path: Path,
    attestation: bytes,
    *,
    taxonomy: Taxonomy,
    keys: Collection[Ed25519PrivateKey],
    trust: Trust,
    now: int,
    where: str,
) -> Envelope:
    """Add signatures to a signed attestation, after checking the table against it.

    Arguments are those of `attest`; `where` names the attestation in messages. Raises `ProvenanceError` like `attest`.
    """
    envelope, statement, table = _open(attestation, taxonomy=taxonomy, trust=trust, where=where)
    _check_table(path, statement, table, taxonomy)
    return sign_for(envelope, table, keys, trust=trust, now=now, where=where)


def still_to_sign(envelope: Envelope, *, trust: Trust, where: str) -> tuple[str, ...]:
    """Return the authorities that tags name but that have not signed."""
    signed = check_signed(envelope, trust=trust, where=where)
    _, table = _read(envelope, where)
    done = {owner[0].name for owner in map(trust.owner, signed) if owner}
    return tuple(name for name in table.authorities if name not in done)


def verify_tags(
    path: Path, attestation: bytes, *, taxonomy: Taxonomy, trust: Trust, now: int, where: str
) -> VerifiedTags:
    """Check a table against its attestation, by the five conditions of this module's docstring.

    Args:
        path: the table's file.
        attestation: the content of the attestation's file.
        taxonomy: the taxonomy at hand.
        trust: the trust file.
        now: seconds since 1970.
        where: the attestation's name in messages.

    Raises `ProvenanceError` with the reason and, where it is about tags, the slot of one.
    """
    envelope, statement, table = _open(attestation, taxonomy=taxonomy, trust=trust, where=where)
    authorities = check_vouchers(envelope, table, trust=trust, now=now, where=where)
    return _verified(path, envelope, statement, table, taxonomy=taxonomy, authorities=authorities, doubts={})


def weigh_tags(
    path: Path, attestation: bytes, *, taxonomy: Taxonomy, trust: Trust, now: int, where: str
) -> VerifiedTags:
    """Check a table like `verify_tags`, but list tags without a believed voucher in `doubts` instead of refusing them.

    Forgeries are refused here too: no tag of a table other than the signed one can be relied on.
    """
    envelope, statement, table = _open(attestation, taxonomy=taxonomy, trust=trust, where=where)
    authorities, doubts = weigh_vouchers(envelope, table, trust=trust, now=now, where=where)
    return _verified(path, envelope, statement, table, taxonomy=taxonomy, authorities=authorities, doubts=doubts)


def _open(attestation: bytes, *, taxonomy: Taxonomy, trust: Trust, where: str) -> tuple[Envelope, Statement, TagTable]:
    """Return the parts of an attestation about this taxonomy's classes that a key of the trust file has signed."""
    envelope = parse_envelope(attestation, where=where)
    check_signed(envelope, trust=trust, where=where)
    statement, table = _read(envelope, where)
    _check_classes(table, taxonomy, where)
    return envelope, statement, table


def _verified(
    path: Path,
    envelope: Envelope,
    statement: Statement,
    table: TagTable,
    *,
    taxonomy: Taxonomy,
    authorities: tuple[Authority, ...],
    doubts: Doubts,
) -> VerifiedTags:
    return VerifiedTags(
        tags=_check_table(path, statement, table, taxonomy),
        codes=taxonomy.codes,
        table=table,
        authorities=authorities,
        attestation=hashlib.sha256(envelope.payload).hexdigest(),
        file=statement.subjects[0].sha256,
        doubts=doubts,
    )


def _read(envelope: Envelope, where: str) -> tuple[Statement, TagTable]:
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ProvenanceError(f"{where}: holds {envelope.payload_type!r}, expected {PAYLOAD_TYPE!r}")
    statement = parse_statement(envelope.payload, predicate_type=PREDICATE_TYPE, where=where)
    if len(statement.subjects) != 2:
        raise ProvenanceError(f"{where}: {len(statement.subjects)} subjects; expected a file and the root of its rows")
    table = from_json(TagTable, statement.predicate, where=f"{where}: predicate", error=ProvenanceError)
    if list(table.authorities) != sorted(set(table.authorities)):
        raise ProvenanceError(f"{where}: predicate: vouchers: expected each authority once, in the order of the names")
    return statement, table


def _check_classes(table: TagTable, taxonomy: Taxonomy, where: str) -> None:
    """Check that the taxonomy is the signed one, and that it has every class of the table."""
    # Classes first: "unknown class in slot 7" says more than two digests.
    codes = taxonomy.codes
    for voucher in table.vouchers:
        for path, counted in voucher.classes.items():
            if path not in codes:
                raise ProvenanceError(f"{where}: the tag of slot {counted.first}: {unknown('class', path, codes)}")
    if table.taxonomy != taxonomy.digest:
        raise ProvenanceError(
            f"{where}: made for the taxonomy with digest {table.taxonomy}; the one at hand, {taxonomy.name} version "
            f"{taxonomy.version}, has {taxonomy.digest}"
        )


def _check_table(path: Path, statement: Statement, table: TagTable, taxonomy: Taxonomy) -> Tags:
    """Return the signed table. Raises `ProvenanceError` for any other."""
    # The file's digest before it is parsed: Parquet readers are large, and only signed bytes should reach them.
    signed_file, signed_root = (subject.sha256 for subject in statement.subjects)
    with TagFile(path) as file:
        if (digest := file.sha256()) != signed_file:
            raise ProvenanceError(
                f"{path}: not the file that was signed: its SHA-256 is {digest}, signed is {signed_file}"
            )
        tags = read_tags(file, codes=taxonomy.codes, authorities=table.authorities)
    if tags.root.hex() != signed_root:
        raise ProvenanceError(f"{path}: the root of its rows is {tags.root.hex()}, signed is {signed_root}")
    fault = difference(count(tags, authorities=table.authorities, codes=taxonomy.codes), table)
    if fault:
        raise ProvenanceError(f"{path}: {fault}")
    return tags


# ------------------------------------------------------------------------------------------------ what a run leaves out


@dataclass(frozen=True, kw_only=True, slots=True)
class Absent:
    """Examples that a run leaves out: those of classes, those with tags of authorities, and single records.

    Their places in the batches stay empty, so that the order, draws and denominators of all others do not change. The
    content of such an example is never read, and its salt may be destroyed.
    """

    classes: tuple[str, ...] = ()
    authorities: tuple[str, ...] = ()  # all examples whose tags they vouch for
    records: tuple[int, ...] = ()  # rows of the tag table

    def examples(self, tags: VerifiedTags, *, count: int) -> NDArray[np.bool_]:
        """Return for each of `count` training examples whether it is left out. Examples without a tag have no class.

        Raises `RecipeError` for a class, an authority or a row that the table does not have.
        """
        table, names = tags.tags, tags.table.authorities
        gone = np.zeros(count, np.bool_)
        for path in self.classes:
            if path not in tags.codes:
                raise RecipeError(f"routing: without: {unknown('class', path, tags.codes)}")
            gone[: len(table)] |= table.classes == tags.codes[path]
        for name in self.authorities:
            if name not in names:
                raise RecipeError(f"routing: without_authorities: {unknown('authority', name, names)}")
            gone[: len(table)] |= table.authorities == names.index(name)
        for row in self.records:
            if not 0 <= row < len(table):
                raise RecipeError(
                    f"routing: without_records: found {row}; expected rows of the tag table, 0 to {len(table) - 1}"
                )
            gone[row] = True
        return gone
