"""`explorer taxonomy` and `explorer tags`: the tree of classes, the class of every example, and who vouches for it."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.cli import options
from explorer.cli.signing import load_key, open_believed, sign_to, signed_words
from explorer.errors import ProvenanceError
from explorer.page.document import Block
from explorer.page.terminal import Answer
from explorer.page.terminal import table as table_of
from explorer.provenance.commitments import destroy_salt, read_salts
from explorer.provenance.description import read_description
from explorer.provenance.envelope import write_envelope
from explorer.provenance.signing import Opened
from explorer.provenance.spellings import format_time
from explorer.provenance.tag_attestation import (
    VerifiedTags,
    add_signature,
    attest,
    read_attestation,
    still_to_sign,
    verify_tags,
)
from explorer.provenance.tag_records import Checked, Record, check_records, read_records, write_tagged
from explorer.provenance.taxonomy import TAXONOMY, Taxonomy
from explorer.provenance.trust import read_trust
from explorer.schema import to_json
from explorer.yaml_document import read_document

# --- explorer taxonomy ---

TaxonomySource = Annotated[Path, typer.Argument(metavar="FILE", help="A taxonomy: a draft (YAML) or a signed file.")]


def sign_taxonomy(
    file: TaxonomySource,
    key: options.KeyFile,
    trust: options.TrustFile,
    out: options.SignedOut,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """Sign a draft, or add a signature to a signed file. Takes a key of data governance."""
    return sign_to(out, file, TAXONOMY, key=key, passphrase_file=passphrase_file, trust=trust)


def verify_taxonomy(file: TaxonomySource, trust: options.TrustFile) -> Answer:
    """Check the signatures of a signed taxonomy; exit status 0 only if they are valid now."""
    opened = open_believed(file, TAXONOMY, trust)
    if opened.draft is not None:
        raise ProvenanceError(f"{file}: an unsigned draft; no authority vouches for it")
    return Answer(page=lambda: _taxonomy_lines(opened), record=lambda: _taxonomy_record(opened))


def show_taxonomy(file: TaxonomySource, trust: options.Believe = None) -> Answer:
    """Print the tree with definitions, and who signed it."""
    opened = open_believed(file, TAXONOMY, trust)
    codes = opened.value.codes
    rows = [
        (codes[each.path], drawn, "yes" if each.personal_data else "no", each.source.value, each.definition)
        for drawn, each in _tree(opened.value)
    ]
    rows.insert(0, (0, "quarantine", "-", "-", "Built in: examples without a voucher. It never trains."))
    columns = ("code", "class", "personal", "source", "definition")
    return Answer(
        page=lambda: [*_taxonomy_lines(opened), "", table_of(columns, rows, right=("code",))],
        record=lambda: {**_taxonomy_record(opened), "codes": codes, "taxonomy": to_json(opened.value)},
    )


def _taxonomy_record(opened: Opened[Taxonomy]) -> dict[str, Any]:
    taxonomy = opened.value
    return {
        "name": taxonomy.name,
        "version": taxonomy.version,
        "digest": taxonomy.digest,
        "issued": taxonomy.issued,
        "expires": taxonomy.expires,
        "classes": len(taxonomy.classes),
        "signed_by": [authority.name for authority in opened.authorities],
    }


def _taxonomy_lines(opened: Opened[Taxonomy]) -> list[str]:
    taxonomy = opened.value
    return [
        f"taxonomy {taxonomy.name} version {taxonomy.version}: {signed_words(opened)}",
        f"sha256 {taxonomy.digest}",
        f"{len(taxonomy.classes)} classes, issued {taxonomy.issued}, expires {taxonomy.expires}",
    ]


def _tree(taxonomy: Taxonomy) -> Iterator[tuple[str, Any]]:
    """Every class below its parent, with the lines that lead to it."""
    ordered = sorted(taxonomy.classes, key=lambda each: each.path.split("/"))
    below: dict[str, list[Any]] = {}
    for each in ordered:
        below.setdefault(each.path.rpartition("/")[0], []).append(each)

    def walk(path: str, lead: str) -> Iterator[tuple[str, Any]]:
        children = below.get(path, [])
        for child in children:
            last = child is children[-1]
            branch, onward = ("", "") if not path else ("└─ ", "   ") if last else ("├─ ", "│  ")
            yield f"{lead}{branch}{child.path.rpartition('/')[2]}", child
            yield from walk(child.path, lead + onward)

    return walk("", "")


# --- explorer tags ---

DAYS = 365

Table = Annotated[Path, typer.Argument(metavar="TABLE", help="A tag table (Parquet).")]
TaxonomyFile = Annotated[Path, typer.Option("--taxonomy", metavar="FILE", help="The signed taxonomy of its classes.")]
RECORDS = "Records as JSON lines: text or file, class, source, authority."


def make(
    records: Annotated[Path, typer.Argument(metavar="RECORDS", help=RECORDS)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="TABLE", help="Tag table to write.")],
    salts: Annotated[Path, typer.Option("--salts", metavar="FILE", help="File to write the salts to. Keep it secret.")],
    authority: Annotated[
        str | None, typer.Option("--authority", metavar="NAME", help="Authority of records that name none.")
    ] = None,
) -> Answer:
    """Make a tag table and its salts from records. It counts once it is signed."""
    return write_table(out, salts, read_records(records, authority=authority))


def write_table(out: Path, salts: Path, records: Iterable[Record]) -> Answer:
    """Write a tag table and its salts."""
    number = write_tagged(out, salts, records)
    return Answer(
        page=lambda: [f"{out}: {number} tags; {salts}: their salts, mode 0600", "next: explorer tags sign"],
        record=lambda: {"table": str(out), "salts": str(salts), "records": number},
    )


def sign(
    table: Table,
    taxonomy: TaxonomyFile,
    key: options.KeyFile,
    trust: options.TrustFile,
    out: options.SignedOut,
    description: Annotated[
        Path | None, typer.Option("--description", metavar="FILE", help="Description of the dataset (YAML).")
    ] = None,
    attestation: Annotated[
        Path | None, typer.Option("--attestation", metavar="FILE", help="Attestation of others, to add a signature to.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help=f"Default: {DAYS} days from now.")
    ] = None,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """Sign a tag table with a key of data governance; with --attestation, add a signature."""
    if (description is None) == (attestation is None):
        raise ProvenanceError("say what the dataset is with --description, or whom to join with --attestation")
    now, believed = options.clock(), read_trust(trust)
    classes = _signed_taxonomy(taxonomy, trust)
    keys = [load_key(key, passphrase_file)]
    if description is not None:
        envelope = attest(
            table,
            taxonomy=classes,
            description=read_description(read_document(description)),
            issued=format_time(now),
            expires=format_time(now + DAYS * 86_400) if expires is None else expires,
            keys=keys,
            trust=believed,
            now=now,
        )
    else:
        assert attestation is not None
        if expires is not None:
            raise ProvenanceError("--expires: the attestation that you join says already when it expires")
        envelope = add_signature(
            table,
            read_attestation(attestation),
            taxonomy=classes,
            keys=keys,
            trust=believed,
            now=now,
            where=str(attestation),
        )
    write_envelope(out, envelope)
    count, missing = len(envelope.signatures), still_to_sign(envelope, trust=believed, where=str(out))
    digest = hashlib.sha256(envelope.payload).hexdigest()
    return Answer(
        page=lambda: [
            f"{out}: {count} signature{'s' if count > 1 else ''}",
            *(f"still to sign: {name}, with explorer tags sign --attestation {out}" for name in missing),
        ],
        record=lambda: {"file": str(out), "digest": digest, "signatures": count, "still_to_sign": list(missing)},
    )


def verify(
    table: Table,
    attestation: Annotated[Path, typer.Option("--attestation", metavar="FILE", help="The signed attestation.")],
    taxonomy: TaxonomyFile,
    trust: options.TrustFile,
    records: Annotated[
        Path | None, typer.Option("--records", metavar="FILE", help="Records to check against the table.")
    ] = None,
    salts: Annotated[Path | None, typer.Option("--salts", metavar="FILE", help="Salts of the records.")] = None,
) -> Answer:
    """Check a tag table; exit status 0 only if every tag is valid now."""
    if (records is None) != (salts is None):
        raise ProvenanceError("records are checked with their salts: give both --records and --salts, or neither")
    verified = verify_tags(
        table,
        read_attestation(attestation),
        taxonomy=_signed_taxonomy(taxonomy, trust),
        trust=read_trust(trust),
        now=options.clock(),
        where=str(attestation),
    )
    checked = None if records is None or salts is None else _check_records(verified, records, salts)
    return Answer(page=lambda: _page(table, verified, checked), record=lambda: _record(verified, checked))


def erase(
    salts: Annotated[Path, typer.Argument(metavar="SALTS", help="The salt file of a tag table.")],
    slot: Annotated[int, typer.Option("--slot", metavar="N", help="The slot of the record, counted from 0.")],
) -> Answer:
    """Destroy the salt of one record: it can no longer be linked to its tag. The table and every proof still hold."""
    destroy_salt(salts, slot)
    words = f"{salts}: the salt of slot {slot} is destroyed; destroy the record too, and every copy of both"
    return Answer(page=lambda: [words], record=lambda: {"salts": str(salts), "destroyed": slot})


def _signed_taxonomy(path: Path, trust: Path) -> Taxonomy:
    opened = open_believed(path, TAXONOMY, trust)
    if opened.draft is not None:
        raise ProvenanceError(f"{path}: an unsigned draft; tags are signed for a taxonomy that is signed")
    return opened.value


def _check_records(verified: VerifiedTags, records: Path, salts: Path) -> Checked:
    given = read_records(records, authority="")
    return check_records(given, tags=verified.tags, salts=read_salts(salts), codes=verified.codes)


def _record(verified: VerifiedTags, checked: Checked | None) -> dict[str, Any]:
    return {
        "root": verified.root,
        "file": verified.file,
        "attestation": verified.attestation,
        "taxonomy": verified.table.taxonomy,
        "issued": verified.table.issued,
        "expires": verified.table.expires,
        "signed_by": [one.name for one in verified.authorities],
        "records": verified.table.records,
        "histogram": verified.table.histogram,
        "vouchers": to_json(verified.table)["vouchers"],
        "description": to_json(verified.table.description),
        "checked": None if checked is None else asdict(checked),
    }


def _page(path: Path, verified: VerifiedTags, checked: Checked | None) -> Iterator[Block | str]:
    said = verified.table
    yield f"{path}: {said.records} tags, all believed: signed by {', '.join(one.name for one in verified.authorities)}"
    yield f"root      {verified.root}"
    yield f"dataset   {said.description.title} ({said.description.issuer})"
    yield f"issued    {said.issued}, expires {said.expires}\n"
    rows = [
        (path, count.records, f"{count.records / said.records:.1%}", voucher.authority)
        for voucher in said.vouchers
        for path, count in sorted(voucher.classes.items())
    ]
    yield table_of(("class", "records", "share", "vouched for by"), rows, right=("records", "share"))
    if checked is not None:
        gone = f", {checked.destroyed} whose salts were destroyed" if checked.destroyed else ""
        yield f"records   {checked.matching} are those of their tags{gone}"
