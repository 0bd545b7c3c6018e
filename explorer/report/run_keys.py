"""Whom a run believed: the authorities of its trust file with every key, its span, and when it was taken back."""

from dataclasses import dataclass

from explorer.provenance.envelope import key_id
from explorer.provenance.trust import Trust


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyLine:
    """A key of an authority."""

    authority: str
    role: str
    key: str  # its id, in hexadecimal
    not_before: str
    not_after: str
    revoked: str | None  # when, and why; None: it is not
    rotated: bool  # the authority has an older key in the file: this one took over


def key_lines(trust: Trust) -> tuple[KeyLine, ...]:
    """All keys, by authority and age."""
    lines = []
    for authority in sorted(trust.authorities, key=lambda each: each.name):
        for place, key in enumerate(sorted(authority.keys, key=lambda each: each.valid_from)):
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
    """What the reader's trust file says otherwise than the run's own: keys that are new there, revoked there, or have
    another span."""
    before = set(key_lines(own)) if own else set[KeyLine]()
    return tuple(line for line in key_lines(reader) if line not in before)


def quorum_words(trust: Trust) -> tuple[str, ...]:
    """How many authorities of which role it takes, for documents and for checkpoints."""
    return tuple(
        f"{what}: {', '.join(f'{number} of {role}' for role, number in sorted(needed.items())) or 'nobody is enough'}"
        for what, needed in (("documents", trust.quorum.documents), ("checkpoints", trust.quorum.checkpoints))
    )
