"""`explorer taxonomy` and `explorer tags`: the tree of classes, the class of every example, and its vouchers."""

import hashlib
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.cli import options
from explorer.cli.signing import load_key, open_trusted, sign_to, signed_words
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
    """Sign a draft of a taxonomy, or add a signature to a signed one. This takes a key of data governance."""
    return sign_to(out, file, TAXONOMY, key=key, passphrase_file=passphrase_file, trust=trust)


def verify_taxonomy(file: TaxonomySource, trust: options.TrustFile) -> Answer:
    """Check the signatures of a signed taxonomy. The exit status is 0 only if they are valid now."""
    opened = open_trusted(file, TAXONOMY, trust)
    if opened.draft is not None:
        raise ProvenanceError(f"{file}: found an unsigned draft; expected a signed taxonomy")
    return Answer(page=lambda: _taxonomy_lines(opened), record=lambda: _taxonomy_record(opened))


def show_taxonomy(file: TaxonomySource, trust: options.OptionalTrust = None) -> Answer:
    """Show the tree of classes with definitions, and its signers."""
    opened = open_trusted(file, TAXONOMY, trust)
    codes = opened.value.codes
    rows = [
        (codes[class_.path], drawn, "yes" if class_.personal_data else "no", class_.source.value, class_.definition)
        for drawn, class_ in _tree(opened.value)
    ]
    # Quarantine is in every taxonomy and in no file: its code is 0 by the format of tag tables.
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
    """Yield every class below its parent, with the lines of the tree that lead to it."""
    # Sorted by parts of the path: as text, "open-data" would come between "open" and "open/mit".
    ordered = sorted(taxonomy.classes, key=lambda class_: class_.path.split("/"))
    below: dict[str, list[Any]] = {}
    for class_ in ordered:
        below.setdefault(class_.path.rpartition("/")[0], []).append(class_)

    def walk(path: str, lead: str) -> Iterator[tuple[str, Any]]:
        children = below.get(path, [])
        for child in children:
            last = child is children[-1]
            branch, onward = ("", "") if not path else ("└─ ", "   ") if last else ("├─ ", "│  ")
            yield f"{lead}{branch}{child.path.rpartition('/')[2]}", child
            yield from walk(child.path, lead + onward)

    return walk("", "")


# --- explorer tags ---


Table = Annotated[Path, typer.Argument(metavar="TABLE", help="A tag table (Parquet).")]
TaxonomyFile = Annotated[Path, typer.Option("--taxonomy", metavar="FILE", help="Signed taxonomy of the classes.")]
RECORDS = "Records as JSON lines: text or file, class, source, authority."


def make(
    records: Annotated[Path, typer.Argument(metavar="RECORDS", help=RECORDS)],
    out: options.TableOut,
    salts: options.SaltsOut,
    authority: Annotated[
        str | None, typer.Option("--authority", metavar="NAME", help="Authority for records that name none.")
    ] = None,
) -> Answer:
    """Make a tag table and its salts from records. The table is valid once it is signed."""
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
        Path | None,
        typer.Option("--description", metavar="FILE", help="Description of the dataset (YAML), for a new attestation."),
    ] = None,
    attestation: Annotated[
        Path | None, typer.Option("--attestation", metavar="FILE", help="Signed attestation to add a signature to.")
    ] = None,
    expires: options.Expires = None,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """Sign a tag table with a key of data governance; with --attestation, add a signature."""
    if (description is None) == (attestation is None):
        raise ProvenanceError(
            "expected one of --description FILE, to attest, and --attestation FILE, to add a signature"
        )
    now, trusted = options.clock(), read_trust(trust)
    classes = _signed_taxonomy(taxonomy, trust)
    keys = [load_key(key, passphrase_file)]
    # A description starts an attestation; without one, a signature joins those of the other authorities.
    if description is not None:
        envelope = attest(
            table,
            taxonomy=classes,
            description=read_description(read_document(description)),
            issued=format_time(now),
            expires=format_time(now + options.YEAR) if expires is None else expires,
            keys=keys,
            trust=trusted,
            now=now,
        )
    else:
        assert attestation is not None
        if expires is not None:
            raise ProvenanceError("--expires: found with --attestation, which already has an end of validity")
        envelope = add_signature(
            table,
            read_attestation(attestation),
            taxonomy=classes,
            keys=keys,
            trust=trusted,
            now=now,
            where=str(attestation),
        )
    write_envelope(out, envelope)
    count, missing = len(envelope.signatures), still_to_sign(envelope, trust=trusted, where=str(out))
    digest = hashlib.sha256(envelope.payload).hexdigest()
    return Answer(
        page=lambda: [
            f"{out}: {count} signature{'s' if count > 1 else ''}",
            *(
                f"still to sign: {name}, with explorer tags sign --attestation {shlex.quote(str(out))}"
                for name in missing
            ),
        ],
        record=lambda: {"file": str(out), "digest": digest, "signatures": count, "still_to_sign": list(missing)},
    )


def verify(
    table: Table,
    attestation: Annotated[
        Path, typer.Option("--attestation", metavar="FILE", help="Signed attestation of the table.")
    ],
    taxonomy: TaxonomyFile,
    trust: options.TrustFile,
    records: Annotated[
        Path | None, typer.Option("--records", metavar="FILE", help="Records to compare with the table. Needs --salts.")
    ] = None,
    salts: Annotated[Path | None, typer.Option("--salts", metavar="FILE", help="Salt file of the records.")] = None,
) -> Answer:
    """Check a tag table against its signed attestation. The exit status is 0 only if every tag is valid now."""
    if (records is None) != (salts is None):
        raise ProvenanceError("records are checked with their salts: expected both --records and --salts, or neither")
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
    salts: Annotated[Path, typer.Argument(metavar="SALTS", help="Salt file of a tag table.")],
    slot: Annotated[int, typer.Option("--slot", metavar="N", help="Slot of the record, counted from 0.")],
) -> Answer:
    """Destroy the salt of one record: it can no longer be linked to its tag. The table and every proof stay valid."""
    destroy_salt(salts, slot)
    words = f"{salts}: the salt of slot {slot} is destroyed; destroy the record too, and every copy of both"
    return Answer(page=lambda: [words], record=lambda: {"salts": str(salts), "destroyed": slot})


def _signed_taxonomy(path: Path, trust: Path) -> Taxonomy:
    opened = open_trusted(path, TAXONOMY, trust)
    if opened.draft is not None:
        raise ProvenanceError(f"{path}: found an unsigned draft; expected a signed taxonomy")
    return opened.value


def _check_records(verified: VerifiedTags, records: Path, salts: Path) -> Checked:
    # The signed table names the authorities, so a record needs none here.
    claimed = read_records(records, authority="")
    return check_records(claimed, tags=verified.tags, salts=read_salts(salts), codes=verified.codes)


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
    signed = verified.table
    yield f"{path}: {signed.records} tags, all valid: signed by {', '.join(one.name for one in verified.authorities)}"
    yield f"root      {verified.root}"
    yield f"dataset   {signed.description.title} ({signed.description.issuer})"
    yield f"issued    {signed.issued}, expires {signed.expires}\n"
    rows = [
        (path, count.records, f"{count.records / signed.records:.1%}", voucher.authority)
        for voucher in signed.vouchers
        for path, count in sorted(voucher.classes.items())
    ]
    yield table_of(("class", "records", "share", "vouched for by"), rows, right=("records", "share"))
    if checked is not None:
        gone = f", {checked.destroyed} whose salts were destroyed" if checked.destroyed else ""
        yield f"records   {checked.matching} match their tags{gone}"
