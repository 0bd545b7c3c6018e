"""`explorer taxonomy`: sign, verify and show the tree of classes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.cli.options import Believe, KeyFile, PassphraseFile, SignedOut, TrustFile
from explorer.cli.signing import open_believed, sign_to, signed_words
from explorer.errors import ProvenanceError
from explorer.page.terminal import Answer, table
from explorer.provenance.signing import Opened
from explorer.provenance.taxonomy import TAXONOMY, Taxonomy
from explorer.schema import to_json

File = Annotated[Path, typer.Argument(metavar="FILE", help="A taxonomy: a draft (YAML) or a signed file.")]


def sign(
    file: File,
    key: KeyFile,
    trust: TrustFile,
    out: SignedOut,
    passphrase_file: PassphraseFile = None,
) -> Answer:
    """Sign a draft, or add a signature to a signed file. Takes a key of data governance."""
    return sign_to(out, file, TAXONOMY, key=key, passphrase_file=passphrase_file, trust=trust)


def verify(file: File, trust: TrustFile) -> Answer:
    """Check the signatures of a signed taxonomy; exit status 0 only if they are valid now."""
    opened = open_believed(file, TAXONOMY, trust)
    if opened.draft is not None:
        raise ProvenanceError(f"{file}: an unsigned draft; no authority vouches for it")
    return Answer(page=lambda: _head(opened), record=lambda: _summary(opened))


def show(file: File, trust: Believe = None) -> Answer:
    """Print the tree with definitions, and who signed it."""
    opened = open_believed(file, TAXONOMY, trust)
    codes = opened.value.codes
    rows = [
        (codes[each.path], drawn, "yes" if each.personal_data else "no", each.source.value, each.definition)
        for drawn, each in _drawn(opened.value)
    ]
    rows.insert(0, (0, "quarantine", "-", "-", "Built in: examples without a voucher. It never trains."))
    columns = ("code", "class", "personal", "source", "definition")
    return Answer(
        page=lambda: [*_head(opened), "", table(columns, rows, right=("code",))],
        record=lambda: {**_summary(opened), "codes": codes, "taxonomy": to_json(opened.value)},
    )


def _summary(opened: Opened[Taxonomy]) -> dict[str, Any]:
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


def _head(opened: Opened[Taxonomy]) -> list[str]:
    taxonomy = opened.value
    return [
        f"taxonomy {taxonomy.name} version {taxonomy.version}: {signed_words(opened)}",
        f"sha256 {taxonomy.digest}",
        f"{len(taxonomy.classes)} classes, issued {taxonomy.issued}, expires {taxonomy.expires}",
    ]


def _drawn(taxonomy: Taxonomy) -> Iterator[tuple[str, Any]]:
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
