"""The section on who vouched: the documents that governed a run with their signers, and the keys that it trusted."""

from collections.abc import Iterable
from dataclasses import dataclass

from explorer.audit.history import Vouchers
from explorer.page import amounts
from explorer.page.document import Block, Bullets, Column, Facts, Heading, Paragraph, Row, Span, Table
from explorer.provenance.description import Description
from explorer.provenance.envelope import key_id
from explorer.provenance.trust import Authority, Trust
from explorer.report.run.references import GENESIS, Document, Reference
from explorer.report.run.reported_run import ReportedRun
from explorer.report.run.taxonomy_section import TaxonomySection
from explorer.report.section import Section
from explorer.schema import record

SHOWN = 16  # digits of a key's id


@dataclass(frozen=True, kw_only=True, slots=True)
class VoucherLine:
    """A document, or the tags that one authority vouches for."""

    what: str
    name: str
    signed_by: tuple[str, ...]  # name, role and key ids of every signer
    digest: str
    counts: dict[str, int]  # tags by class; empty for other documents
    doubts: tuple[str, ...]  # reasons why some of the tags are not trusted
    reference: Reference


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyLine:
    """A key of an authority."""

    authority: str
    role: str
    key: str  # its id, in hexadecimal
    not_before: str
    not_after: str
    revoked: str | None  # when, and why; None: it is not
    rotated: bool  # True: the authority has an older key in the file, which this one replaced


@record
class Believed:
    """Whom the run believed, and what the reader's trust file says otherwise; null: the reader brought none."""

    keys: tuple[KeyLine, ...]
    quorum: tuple[str, ...]
    since: tuple[KeyLine, ...] | None


@record
class VouchersRecord:
    """The signers of the run's documents."""

    documents: tuple[Document, ...]
    vouchers: tuple[VoucherLine, ...]
    not_vouched: str | None  # why the documents are not trusted; None: they are
    trust: Believed


class VouchersSection(Section[ReportedRun, VouchersRecord]):
    """Documents with their signers, and keys."""

    record = VouchersRecord

    def gather(self, run: ReportedRun) -> VouchersRecord:
        own, reader = run.pinned.trust, run.opened.trust
        return VouchersRecord(
            documents=tuple(run.documents.values()),
            vouchers=voucher_lines(run.vouchers) if run.vouchers else (),
            not_vouched=run.not_vouched,
            trust=Believed(
                keys=key_lines(own) if own else (),
                quorum=quorum_words(own) if own else (),
                since=None if reader is None else keys_since(own, reader),
            ),
        )

    def blocks(self, record: VouchersRecord, run: ReportedRun) -> list[Block]:
        blocks: list[Block] = [Heading(2, "Who vouched", "who")]
        if record.not_vouched:
            blocks.append(Paragraph(f"The documents of this run are not trusted: {record.not_vouched}", "warning"))
        for line in record.vouchers:
            blocks += _voucher(line, run)
        # The description is signed with the tags, so it belongs here rather than with the taxonomy.
        if described := run.of(TaxonomySection).dataset:
            pairs = [(name, said) for name, said in _description(described) if said]
            blocks += [Heading(3, "The dataset, as its attestation describes it"), Facts(pairs)]
        if record.trust.keys:
            said = f"Its trust file requires signatures for {'; for '.join(record.trust.quorum)}. "
            blocks += [
                Heading(3, "Keys that the run trusted"),
                Paragraph((Span(said), run.cite(GENESIS))),
                _keys(record.trust.keys),
            ]
        if record.trust.since:
            blocks += [
                Paragraph("The reader's trust file differs from the run's in these keys:"),
                _keys(record.trust.since),
            ]
        return blocks


# --- gathering ---


def voucher_lines(signed: Vouchers) -> tuple[VoucherLine, ...]:
    """Return a line for the taxonomy, the policy, and the tags of every authority that the tag table names."""
    basis, tags = signed.basis, signed.tags
    taxonomy = f"{basis.taxonomy.name} version {basis.taxonomy.version}"
    lines = [_document("taxonomy", taxonomy, basis.by, basis.taxonomy.digest)]
    if signed.rules is not None:
        policy = signed.rules.routing.policy
        lines.append(_document("policy", f"{policy.name} version {policy.version}", signed.rules.by, policy.digest))
    # The tag table may name an authority that did not sign: its tags are listed without a signer, and with the doubt.
    signers = {authority.name: authority for authority in tags.authorities}
    for voucher in tags.table.vouchers:
        mine = [signers[voucher.authority]] if voucher.authority in signers else []
        doubts = [doubt.words for (name, _), doubt in tags.doubts.items() if name == voucher.authority]
        name = f"{tags.table.description.title}: by {voucher.authority}"
        counts = {path: count.records for path, count in sorted(voucher.classes.items())}
        lines.append(_document("tags", name, mine, tags.attestation, counts=counts, doubts=tuple(doubts)))
    return tuple(lines)


def _document(
    what: str,
    name: str,
    by: Iterable[Authority],
    digest: str,
    *,
    counts: dict[str, int] | None = None,
    doubts: tuple[str, ...] = (),
) -> VoucherLine:
    signers = []
    for authority in by:
        keys = ", ".join(key_id(key.raw)[:SHOWN] for key in authority.keys)
        signers.append(f"{authority.name} ({authority.role}; key {keys})")
    return VoucherLine(
        what=what,
        name=name,
        signed_by=tuple(signers),
        digest=digest,
        counts=counts or {},
        doubts=doubts,
        reference=GENESIS,
    )


def key_lines(trust: Trust) -> tuple[KeyLine, ...]:
    """Return all keys of a trust file with their spans, by authority and age."""
    lines = []
    for authority in sorted(trust.authorities, key=lambda authority: authority.name):
        for place, key in enumerate(sorted(authority.keys, key=lambda key: key.valid_from)):
            lines.append(
                KeyLine(
                    authority=authority.name,
                    role=str(authority.role),
                    key=key_id(key.raw),
                    not_before=key.not_before,
                    not_after=key.not_after,
                    revoked=key.revoked and f"{key.revoked.at}: {key.revoked.reason}",
                    rotated=place > 0,
                )
            )
    return tuple(lines)


def keys_since(own: Trust | None, reader: Trust) -> tuple[KeyLine, ...]:
    """Return the keys of the reader's trust file that are missing from the run's own, or that differ in any way."""
    before = set(key_lines(own)) if own else set[KeyLine]()
    return tuple(line for line in key_lines(reader) if line not in before)


def quorum_words(trust: Trust) -> tuple[str, ...]:
    """Return the required number of authorities by role, for documents and for checkpoints."""
    quorums = (("documents", trust.quorum.documents), ("checkpoints", trust.quorum.checkpoints))
    return tuple(
        f"{what}: {', '.join(f'{number} of {role}' for role, number in sorted(roles.items())) or 'no number is enough'}"
        for what, roles in quorums
    )


# --- showing ---


def _voucher(line: VoucherLine, run: ReportedRun) -> list[Block]:
    counts = "; ".join(f"{path}: {amounts.count(number, 'record')}" for path, number in line.counts.items())
    signed = "; ".join(line.signed_by) or "no trusted authority"
    pairs = [("Signed by", signed), *([("Tags", counts)] if counts else [])]
    blocks: list[Block] = [
        Heading(3, (Span(f"{line.what.capitalize()}: {line.name} "), run.cite(line.reference))),
        Facts([*pairs, ("Digest", (Span(f"sha256:{line.digest}", "code"),))]),
    ]
    if line.doubts:
        blocks.append(Bullets([f"Not trusted, and never trained on: {words}" for words in line.doubts], "warning"))
    return blocks


def _description(description: Description) -> list[tuple[str, str]]:
    """Return the 22 fields by name; a field that the description leaves out is empty."""
    answers = []
    for name in type(description).__dataclass_fields__:
        value = getattr(description, name)
        first = getattr(value, "first", None)  # of a span of days
        said = f"{first} to {value.last}" if first else "" if value is None else str(value)
        answers.append((name.replace("_", " "), {"True": "yes", "False": "no"}.get(said, said)))
    return answers


def _keys(lines: tuple[KeyLine, ...]) -> Table:
    columns = (Column("Authority"), Column("Role"), Column("Key"), Column("Valid"), Column("Revoked"))
    rows = []
    for line in lines:
        rotated = [Span("replaced an older key", "small")] if line.rotated else []
        span = f"{line.not_before} to {line.not_after}"
        key = (Span(line.key[:16], "code"), *rotated)
        rows.append(Row((line.authority, line.role, key, span, line.revoked or "no")))
    return Table(columns, rows)
