"""The credentials of a run, checked together: which examples may train, as which class, and which are in quarantine.

The trust file is the root of trust for the taxonomy, the policy and the attestation of the tags. Then each training
example is compared with its tag: the content has to be the one that the tag commits to.

A forged document is always refused. The policy's `quarantine` decides about examples that no valid document vouches
for: `refuse` stops with the first of them, by slot and reason; `weight-zero` keeps the slot of each and never reads it.
Without a policy nothing allows such examples, so they are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from explorer.canonical import digest
from explorer.data.dataset import Check, Rows, Split
from explorer.errors import ProvenanceError, RecipeError
from explorer.provenance.commitments import Salts, commit, read_salts
from explorer.provenance.policy import Quarantine
from explorer.provenance.routing_weights import Routing, admits, bind, policy_for
from explorer.provenance.signing import open_document
from explorer.provenance.tag_attestation import Absent, VerifiedTags, verify_tags, weigh_tags
from explorer.provenance.tags import leaf
from explorer.provenance.tags_file import TagFile
from explorer.provenance.taxonomy import QUARANTINE, TAXONOMY, Taxonomy
from explorer.provenance.trust import Trust, parse_trust
from explorer.runlog.documents import (
    ATTESTATION_FILE,
    MAX_QUARANTINE,
    QUARANTINE_FILE,
    TAXONOMY_FILE,
    TRUST_FILE,
    Documents,
    rows_set_aside,
)
from explorer.schema import parse_json

# Why an example is in quarantine, next to the reasons of `provenance.tag_attestation.Reason`.
NO_TAG = "no-tag"
TAGGED = "tagged-quarantine"
ERASED = "erased"  # the salt of its tag was destroyed
WITHHELD = "withheld"  # the salt of its tag did not travel with the run, although the policy admits its class
OTHER_CONTENT = "other-content"  # it differs from the content that its tag commits to

_WORDS = {
    NO_TAG: "it has no tag",
    TAGGED: "it is tagged as quarantine, because no authority vouches for its class",
    ERASED: "its salt was destroyed: the example was erased and must not train",
    WITHHELD: "its salt did not travel with the run, and the policy admits its class: the run was delegated otherwise",
    OTHER_CONTENT: "its content is not the one that was tagged, or the salt is another example's",
}
TAG_AGAIN = "tag the data again with `explorer tags dataset` and sign the table with `explorer tags sign`"
REMEDIES = {NO_TAG: f"; {TAG_AGAIN}", OTHER_CONTENT: f"; put the content back that was tagged, or {TAG_AGAIN}"}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Credentials:
    """Verified documents of a run, and the class of every training example."""

    trust: Trust
    judged: int  # seconds since 1970: the moment for which everything was judged
    tags: VerifiedTags
    routing: Routing | None  # None: the recipe routes nothing
    codes: np.ndarray  # N, int64: the taxonomy's number of each example's class; 0: quarantine
    quarantine: Mapping[str, tuple[int, ...]]  # reason -> numbers of examples; empty: there are none
    gone: np.ndarray  # N, bool: the examples that are left out; their codes and slots stay
    proof: Check | None = None  # of the content of examples that are checked when they are read

    @property
    def names(self) -> dict[int, str]:
        """Return the path of every class, by its number."""
        return {code: path for path, code in self.tags.codes.items()}

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the classes that have examples, in the order of their numbers, without the quarantine."""
        names = self.names
        return tuple(names[code] for code in np.unique(self.codes).tolist() if names[code] != QUARANTINE)

    @property
    def absent(self) -> frozenset[str]:
        """Return the classes of which no example is here."""
        here = set(np.unique(self.codes[~self.gone]).tolist())
        return frozenset(path for path, code in self.tags.codes.items() if code not in here)

    @property
    def leaves(self) -> np.ndarray:
        """Return the leaf hash of every example's tag, N x 32."""
        return leaves_of(self.tags, examples=len(self.codes))

    @property
    def identity(self) -> dict[str, str | None]:
        """Return the digests that are part of a run's identity."""
        return {
            "trust": self.trust.digest,
            "taxonomy": self.tags.table.taxonomy,
            "tags": self.tags.root,
            "attestation": self.tags.attestation,
            "policy": None if self.routing is None else self.routing.policy.digest,
            "quarantine": digest(quarantine_json(self.quarantine)) if self.quarantine else None,
        }


def leaves_of(tags: VerifiedTags, *, examples: int) -> np.ndarray:
    """Return the leaf hashes of the examples' tags, N x 32; of an example without tag, that of the zero tag in its
    slot."""
    tagged = tags.tags.leaves
    missing = [leaf(slot, bytes(40)) for slot in range(len(tagged), examples)]
    return np.concatenate([tagged, np.frombuffer(b"".join(missing), np.uint8).reshape(-1, 32)])


def quarantine_json(quarantine: Mapping[str, tuple[int, ...]]) -> dict[str, list[int]]:
    """Return the quarantine as JSON: reasons, and the numbers of the examples."""
    return {reason: list(numbers) for reason, numbers in sorted(quarantine.items())}


NOTHING = Absent()


def check(documents: Documents, examples: Split, *, absent: Absent = NOTHING) -> Credentials:
    """Check the documents and every example. The content of absent examples is not read, and that of examples in shards
    is compared with their tags by `Credentials.proof`, when it is read.

    Raises `ProvenanceError` that names the document, or slot and reason, and `RecipeError` for classes or examples that
    cannot be absent.
    """
    # --- documents: each is verified before it is used to judge the next one ---
    now, where = documents.judged, documents.where
    trust = parse_trust(documents.trust, where=str(where / TRUST_FILE))
    signed = open_document(documents.taxonomy, TAXONOMY, trust=trust, now=now, where=str(where / TAXONOMY_FILE))
    routing = _routing(documents, signed.value, trust)
    lenient = routing is not None and routing.policy.quarantine is Quarantine.WEIGHT_ZERO
    tags = (weigh_tags if lenient else verify_tags)(
        documents.table,
        documents.attestation,
        taxonomy=signed.value,
        trust=trust,
        now=now,
        where=str(where / ATTESTATION_FILE),
    )
    # --- examples: their tags, and the reasons against each ---
    salts = _salts(documents, tags)
    if len(tags.tags) > len(examples):
        raise ProvenanceError(
            f"{documents.table}: {len(tags.tags)} tags for {len(examples)} training examples: "
            "made for another dataset, or another version of it"
        )
    gone = absent.examples(tags, count=len(examples))
    codes = np.zeros(len(examples), np.int64)  # an example without a tag is in quarantine
    codes[: len(tags.tags)] = tags.tags.classes
    # Of several reasons the last one counts: a tag that is not believed says nothing about the content either.
    reasons = _unlike(tags, salts, examples, gone, routing) | _set_aside(documents, gone) | _doubtful(tags)
    reasons |= {number: NO_TAG for number in range(len(tags.tags), len(examples))}
    if reasons and not lenient:
        first = min(reasons)
        raise ProvenanceError(_refusal(documents, first, reasons[first], len(reasons), codes, tags))
    # --- the quarantine; something has to be left to train ---
    codes[list(reasons)] = tags.codes[QUARANTINE]
    quarantine = {
        reason: tuple(sorted(number for number, why in reasons.items() if why == reason))
        for reason in sorted(set(reasons.values()))
    }
    if len(reasons) == len(examples):
        counted = ", ".join(f"{len(numbers)} {reason}" for reason, numbers in quarantine.items())
        raise ProvenanceError(f"{where}: every training example is in quarantine ({counted}): nothing is left to train")
    if gone[codes != tags.codes[QUARANTINE]].all():
        raise RecipeError(f"{where}: every training example is left out: nothing is left to train")
    return Credentials(
        trust=trust,
        judged=now,
        tags=tags,
        routing=routing,
        codes=codes,
        quarantine=quarantine,
        gone=gone,
        proof=_proof(documents, tags, salts, gone) if isinstance(examples.inputs, Rows) else None,
    )


def _routing(documents: Documents, taxonomy: Taxonomy, trust: Trust) -> Routing | None:
    if documents.policy is None:
        return None
    where = f"{documents.where}: policy"
    kind = policy_for(taxonomy)
    signed = open_document(documents.policy, kind, trust=trust, now=documents.judged, where=where)
    return bind(signed.value, taxonomy, where=where)


def _salts(documents: Documents, tags: VerifiedTags) -> Salts:
    salts = read_salts(documents.salts)
    if len(salts) != len(tags.tags):
        raise ProvenanceError(
            f"{documents.salts}: {len(salts)} salts for {len(tags.tags)} tags: they belong to another table"
        )
    return salts


def _doubtful(tags: VerifiedTags) -> dict[int, str]:
    """Return the slots whose tags have no authority that may vouch for them, with the reason."""
    table, codes = tags.tags, tags.codes
    doubtful: dict[int, str] = {}
    for (authority, path), doubt in tags.doubts.items():
        by = table.authorities == tags.table.authorities.index(authority)
        doubtful |= dict.fromkeys(np.flatnonzero(by & (table.classes == codes[path])).tolist(), str(doubt.reason))
    return doubtful | dict.fromkeys(np.flatnonzero(table.classes == codes[QUARANTINE]).tolist(), TAGGED)


def _unlike(
    tags: VerifiedTags, salts: Salts, examples: Split, gone: np.ndarray, routing: Routing | None
) -> dict[int, str]:
    """Return the slots whose content differs from the tagged one, or cannot be compared with it, with the reason."""
    quarantine = tags.codes[QUARANTINE]
    # Away from home the salts of classes that are denied everywhere are missing: no forward pass reads their examples.
    unread = {code for path, code in tags.codes.items() if routing is not None and not admits(routing, path)}
    later = isinstance(examples.inputs, Rows)  # compared when they are read
    classes = tags.tags.classes
    here = ~gone[: len(classes)] & (classes != quarantine)
    withheld, destroyed = salts.withheld, salts.destroyed
    unlike = dict.fromkeys(np.flatnonzero(here & destroyed).tolist(), ERASED)
    unlike |= dict.fromkeys(np.flatnonzero(here & withheld & ~np.isin(classes, [*unread])).tolist(), WITHHELD)
    for slot in () if later else np.flatnonzero(here & ~withheld & ~destroyed).tolist():
        if not _is_tagged(tags, salts, slot, examples.content(slot)):
            unlike[slot] = OTHER_CONTENT
    return unlike


def _proof(documents: Documents, tags: VerifiedTags, salts: Salts, gone: np.ndarray) -> Check:
    """Return a check of examples in shards, which are not read before they train: each against its tag."""

    # Left out, in quarantine, or of a class that is not read.
    unread = gone[: len(salts)] | salts.destroyed | salts.withheld

    def check(slot: int, content: bytes) -> None:
        if slot < len(unread) and not unread[slot] and not _is_tagged(tags, salts, slot, content):
            raise ProvenanceError(
                f"{documents.where}: the example of slot {slot}: {_WORDS[OTHER_CONTENT]}{_source(documents, slot)}"
                f"{REMEDIES[OTHER_CONTENT]}; what is in shards is compared with its tags when it is opened"
            )

    return check


def _is_tagged(tags: VerifiedTags, salts: Salts, slot: int, content: bytes) -> bool:
    """Return whether this content is what the tag of a slot commits to; its salt is there."""
    return commit(salts[slot], content) == tags.tags.commitments[slot].tobytes()


def _set_aside(documents: Documents, gone: np.ndarray) -> dict[int, str]:
    """Return the reasons for which left-out examples were in quarantine in the original run.

    Their content may be gone, so it cannot be judged again. They stay in quarantine, so that every class has the same
    slots, and the same count of them, as in the original run.
    """
    if documents.quarantine is None:
        return {}
    where = f"{documents.where / QUARANTINE_FILE}"
    set_aside = parse_json(documents.quarantine, where=where, error=ProvenanceError, max_bytes=MAX_QUARANTINE)
    rows = rows_set_aside(set_aside, where=where, error=ProvenanceError)
    return {row: reason for row, reason in rows.items() if row < len(gone) and gone[row]}


def _refusal(documents: Documents, slot: int, reason: str, number: int, codes: np.ndarray, tags: VerifiedTags) -> str:
    path = next(path for path, code in tags.codes.items() if code == codes[slot])
    tagged = f" ({path})" if slot < len(tags.tags) else f" (the table ends at slot {len(tags.tags) - 1})"
    others = f"; so it is of {number - 1} more" if number > 1 else ""
    return (
        f"{documents.where}: the example of slot {slot}{tagged}: {_WORDS[reason]}{others}{_source(documents, slot)}"
        f"{REMEDIES.get(reason, '')}; a policy with quarantine: weight-zero would keep such examples out instead"
    )


def _source(documents: Documents, slot: int) -> str:
    """Return what the tag of a slot says about where its example is from."""
    with TagFile(documents.table) as file:
        for rows in file.batches():
            if 0 <= (place := slot - rows.first) < len(rows.sources.index):
                source = rows.sources.values[rows.sources.index[place]]
                return f"; its tag names {source!r:.200}" if source else ""
    return ""
