"""Policy files as C2SP tlog-policy writes them (c2sp.org/tlog-policy): a trust anchor, one definition a line.

    log <verifier key> [<url>]                  a log that may sign; the key's name is the checkpoint's origin
    witness <name> <verifier key> [<url>]       a witness that may cosign, with a cosignature key (type 04)
    group <name> all|any|<k> <member> ...       that many of its members, witnesses or groups, have cosigned
    quorum <name>|none                          what has to have cosigned

A log or a witness whose key is of a type that is not known here cannot be checked: such a log is left out, and such a
witness never counts. The policy is refused where that leaves no log, or no way to meet the quorum.

Empty lines and lines that begin with # are skipped. Names are opaque bytes: no two spellings of one are equal.
"""

import re

from explorer.errors import LedgerError, NoteError, unknown
from explorer.ledger.anchor import Anchor, TrustedKey
from explorer.note import UnknownTypeError, Verifier

MAX_POLICY = 2**17
MAX_WORD = 2000
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_NUMBER = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)
_FORMS = {
    "log": "log <verifier key> [<url>]",
    "witness": "witness <name> <verifier key> [<url>]",
    "group": "group <name> all|any|<k> <member> ...",
    "quorum": "quorum <name>|none",
}


def parse_policy(content: bytes, *, where: str) -> Anchor:
    """Read a policy file. Raises `LedgerError` that names `where`, the line and the fault."""
    if len(content) > MAX_POLICY:
        raise LedgerError(f"{where}: too large: {len(content)} bytes, at most {MAX_POLICY} are read")
    if content and not content.endswith(b"\n"):
        raise LedgerError(f"{where}: the last line does not end in a newline; it may have been cut off")
    anchor = Anchor()
    for number, line in enumerate(content.split(b"\n"), 1):
        if control := _CONTROL.search(line):
            raise LedgerError(f"{where}, line {number}: control character {control[0][0]:#04x}; only tabs are allowed")
        words = line.decode(errors="surrogateescape").replace("\t", " ").split(" ")
        try:
            anchor = _define(anchor, [word for word in words if word])
        except (LedgerError, NoteError) as error:
            raise LedgerError(f"{where}, line {number}: {error}") from error
    for fault, missing in (("no log", not anchor.logs), ("no quorum", anchor.quorum is None)):
        if missing:
            raise LedgerError(f"{where}: names {fault}; such a policy would believe nothing")
    if not anchor.met({witness.name for witness in anchor.witnesses}):
        names = ", ".join(anchor.strangers)
        raise LedgerError(f"{where}: the quorum needs witnesses whose keys are of a type not known here: {names}")
    return anchor


def _define(anchor: Anchor, words: list[str]) -> Anchor:
    """The anchor with the definition on one line."""
    if any(len(word) > MAX_WORD for word in words):
        raise LedgerError(f"a word of more than {MAX_WORD} characters")
    match words:
        case []:
            return anchor
        case [first, *_] if first.startswith("#"):
            return anchor
        case ["log", vkey] | ["log", vkey, _]:
            key = _key(vkey)
            return anchor.with_log(key) if key else anchor
        case ["witness", name, vkey] | ["witness", name, vkey, _]:
            key = _key(vkey)
            return anchor.with_witness(name, key) if key else anchor.with_stranger(name)
        case ["group", name, threshold, *members]:
            return anchor.with_group(name, _threshold(threshold, len(members)), members)
        case ["quorum", name]:
            return anchor.with_quorum(name)
        case [("log" | "witness" | "group" | "quorum") as kind, *_]:
            raise LedgerError(f"{len(words) - 1} words after {kind!r}; expected {_FORMS[kind]}")
        case _:
            raise LedgerError(unknown("definition", words[0][:80], _FORMS))


def _key(vkey: str) -> TrustedKey | None:
    """The key, or None for one of an unknown type."""
    try:
        return TrustedKey(verifier=Verifier.parse(vkey))
    except UnknownTypeError:
        return None


def _threshold(word: str, members: int) -> int:
    if word in ("all", "any"):
        return members if word == "all" else 1
    if not _NUMBER.fullmatch(word):
        raise LedgerError(f"not a threshold: {word[:40]!r}; expected all, any, or a decimal number from 1 on")
    return int(word)
