"""Who vouches for a run: every document that governed it, by its digest, with the authorities that signed it."""

from collections.abc import Iterable
from dataclasses import dataclass

from explorer.audit.history import Vouchers
from explorer.provenance.envelope import key_id
from explorer.provenance.trust import Authority
from explorer.report.run_references import GENESIS, Reference

SHOWN = 16  # digits of a key's id


@dataclass(frozen=True, kw_only=True, slots=True)
class VoucherLine:
    """A document, or the tags that one authority vouches for."""

    what: str
    name: str
    signed_by: tuple[str, ...]  # name, role and key ids of each
    digest: str
    counts: dict[str, int]  # how many tags of which class; empty for other documents
    doubts: tuple[str, ...]  # why some of them are not believed
    reference: Reference


def voucher_lines(found: Vouchers) -> tuple[VoucherLine, ...]:
    """Taxonomy, policy, and the tags of every authority that is named for any."""
    basis, tags = found.basis, found.tags
    taxonomy = f"{basis.taxonomy.name} version {basis.taxonomy.version}"
    lines = [_document("taxonomy", taxonomy, basis.by, basis.taxonomy.digest)]
    if found.rules is not None:
        policy = found.rules.routing.policy
        lines.append(_document("policy", f"{policy.name} version {policy.version}", found.rules.by, policy.digest))
    signers = {authority.name: authority for authority in tags.authorities}
    for voucher in tags.table.vouchers:
        mine = [signers[voucher.authority]] if voucher.authority in signers else []
        doubts = [doubt.words for (name, _), doubt in tags.doubts.items() if name == voucher.authority]
        lines.append(
            VoucherLine(
                what="tags",
                name=f"{tags.table.description.title}: by {voucher.authority}",
                signed_by=tuple(map(_words, mine)),
                digest=tags.attestation,
                counts={path: count.records for path, count in sorted(voucher.classes.items())},
                doubts=tuple(doubts),
                reference=GENESIS,
            )
        )
    return tuple(lines)


def _document(what: str, name: str, by: Iterable[Authority], digest: str) -> VoucherLine:
    return VoucherLine(
        what=what,
        name=name,
        signed_by=tuple(map(_words, by)),
        digest=digest,
        counts={},
        doubts=(),
        reference=GENESIS,
    )


def _words(authority: Authority) -> str:
    keys = ", ".join(key_id(key.raw)[:SHOWN] for key in authority.keys)
    return f"{authority.name} ({authority.role}; key {keys})"
