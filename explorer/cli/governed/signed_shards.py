"""`explorer data sign`, `verify`, `find` and `erase`: who vouches for the bytes of shards, whether they are whole, and
examples that are to be gone."""

import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli import options
from explorer.cli.signing import load_key
from explorer.data.progress_line import watched
from explorer.data.shards import shard_index
from explorer.data.shards.shard_erasure import RowsInShard, rows_of
from explorer.data.shards.shard_erasure import erase as erase_rows
from explorer.data.shards.shard_files import ShardFiles
from explorer.data.shards.shard_index import Index, Layout, SideName
from explorer.data.shards.shard_search import MAX_CONTENT, MEMORY, Held, examples_with
from explorer.data.shards.shards import with_first
from explorer.data.shards.tokenising import tokeniser_at
from explorer.errors import DataError
from explorer.objects import Missing, Objects, open_objects
from explorer.page.amounts import count
from explorer.page.document import Block
from explorer.page.terminal import Answer, table
from explorer.provenance import shards_attestation
from explorer.provenance.shards_attestation import ATTESTATION, ShardsAttestation
from explorer.provenance.signing import Signed, open_document, sign_document
from explorer.provenance.spellings import format_time
from explorer.provenance.trust import read_trust
from explorer.rundir import read_bytes

MOST_FAULTS = 20  # that are shown
MOST_LISTED = 50
AGAIN = (0.5,)  # seconds before a shard is asked for again: of many that are gone, none is waited for

Place = Annotated[
    str, typer.Argument(metavar="PLACE", help="Directory of shards, or s3://, gs:// or az:// and a path.")
]


def sign(
    place: Place,
    key: options.KeyFile,
    trust: options.TrustFile,
    expires: options.Expires = None,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """Attest the index of shards, which has the digest of every one, with a key of data governance.

    The attestation is written next to the index. Tags say what an example is (`explorer tags`); this says that the
    bytes are those that data governance has seen.
    """
    objects, content, index = _opened(place)
    now, trusted = options.clock(), read_trust(trust)
    value = ShardsAttestation(
        examples=dict(_counts(index)), issued=format_time(now), expires=expires or format_time(now + options.YEAR)
    )
    where = f"{place}/{shards_attestation.FILE}"
    envelope = sign_document(
        value,
        ATTESTATION,
        [load_key(key, passphrase_file)],
        about=[shard_index.digest_of(content)],
        trust=trusted,
        now=now,
        where=where,
    )
    objects.put(shards_attestation.FILE, envelope.content)
    return Answer(
        page=lambda: [f"{where}: signed, until {value.expires}"],
        record=lambda: {"file": where, "index": shard_index.digest_of(content), "expires": value.expires},
    )


def verify(place: Place, trust: options.OptionalTrust = None) -> Answer:
    """Read every shard and compare it with the index; with --trust, check the attestation of the index too.

    Every file that is missing or damaged is named. The exit status is 0 only if all are whole, and with --trust only
    if data governance vouches for this index now.
    """
    objects, content, index = _opened(place)
    signed = None if trust is None else _attested(objects, content, index, trust)
    faults, erased = _read_all(objects, index)
    shards = len(index.train.shards) + len(index.test.shards)
    return Answer(
        page=lambda: _page(place, index, signed, faults, erased),
        record=lambda: {
            "place": place,
            "index": shard_index.digest_of(content),
            "shards": shards,
            "faults": faults,
            "erased": erased,
            "signed_by": None if signed is None else [one.name for one in signed.authorities],
        },
        holds=not faults,
    )


Part = Annotated[
    int | None,
    typer.Option("--examples", min=1, metavar="N", help="As in the recipe, where it trains on a part of the shards."),
]


def find(
    place: Place,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An image, or a text, as the data have it.")],
    examples: Part = None,
) -> Answer:
    """Find the examples that hold an image or a text, such as what a person wants to have erased.

    An image is found by its bytes, a text by the bytes that tokens spell: also within a longer document, in all blocks
    that hold a part of it. The exit status is 0 only if something was found.
    """
    objects, index = _part(place, examples)
    content = _content(file)
    held, test = _search(content, objects, index), _search(content, objects, index, side="test")
    return Answer(
        page=lambda: _holding(place, file, held, test, examples),
        record=lambda: {
            "place": place,
            "file": str(file),
            "examples": held.whole,
            "pieces": held.pieces,
            "test": {"examples": test.whole, "pieces": test.pieces},
        },
        holds=any(held + test),
    )


def _part(place: str, examples: int | None) -> tuple[Objects, Index]:
    """Return the index of what a recipe trains on, which numbers its examples from the first shard that it uses."""
    objects, _, index = _opened(place)
    return objects, index if examples is None else with_first(index, examples)


def _content(file: Path) -> bytes:
    return read_bytes(file, max_bytes=MAX_CONTENT, error=DataError)


def _search(content: bytes, objects: Objects, index: Index, *, side: SideName = "train") -> Held:
    total = len(index.side(side).shards)
    return examples_with(
        content, index, objects, side=side, watch=lambda shards: watched(shards, "reading shards", total=total)
    )


def _holding(place: str, file: Path, held: Held, test: Held, examples: int | None) -> Iterator[str]:
    for numbers, kind in ((held, "training"), (test, "test")):
        if any(numbers) or kind == "training":
            yield f"{file}: in {count(len(numbers.whole), f'{kind} example')} of {place}{_listed(numbers.whole)}"
        if numbers.pieces:
            yield (
                f"  {len(numbers.pieces):,} more may hold its beginning or end, next to what is not there any more"
                f"{_listed(numbers.pieces)}"
            )
    if any(test):
        yield "  test examples are not erased: every evaluation reads them; write the shards again without them"
    if not any(held):
        return
    part = () if examples is None else ("--examples", str(examples))
    yield f"next: {shlex.join(('explorer', 'data', 'erase', place, '--holding', str(file), *part))}"


def _listed(numbers: tuple[int, ...]) -> str:
    more = f" and {len(numbers) - MOST_LISTED:,} more (--json)" if len(numbers) > MOST_LISTED else ""
    return f": {', '.join(map(str, numbers[:MOST_LISTED]))}{more}" if numbers else ""


NOT_REACHED = (
    "the data that these shards were made from, and every copy of either",
    "the test side of these shards, where `explorer data find` looks too",
    "earlier versions of the files, where the store keeps them; backups; disks that keep overwritten data",
    "caches of shards on other machines, until they are removed there",
    "the salts of their tags: `explorer delete erase` and `explorer tags erase` destroy them",
    "models that trained on them: `explorer delete run` makes one without them",
)


def erase(
    place: Place,
    record: Annotated[
        list[int] | None,
        typer.Option("--record", metavar="N", help="A training example, by its number, counted from 0; repeatable."),
    ] = None,
    holding: Annotated[
        Path | None,
        typer.Option(
            "--holding", metavar="FILE", help="What holds this image or text, as `explorer data find` finds it."
        ),
    ] = None,
    examples: Part = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase. Default: only show what would be erased.")] = False,
) -> Answer:
    """Overwrite training examples in their shards for good. The index stays valid, and every other row is still proved.

    A run that leaves them out, or whose policy keeps examples without a salt out, can still read the same shards. Any
    other run that asks for one of them ends with an error.
    """
    objects, index = _part(place, examples)
    records = [*(record or ())]
    if holding is not None:
        held = _search(_content(holding), objects, index)
        if not any(held):
            raise DataError(f"{holding}: in no training example of {place}: nothing to erase")
        records += held.whole + held.pieces
    if not records:
        raise DataError("nothing to erase: expected --record N, the number of a training example, or --holding FILE")
    places = rows_of(index, records)
    if yes:
        erase_rows(objects, index, places)
    return Answer(
        page=lambda: _erasure(place, places, text=index.inputs.encoding == "tokens", done=yes),
        record=lambda: {
            "place": place,
            "erased": yes,
            "shards": {one.shard: list(one.rows) for one in places},
            "not_reached": list(NOT_REACHED),
        },
        holds=yes,
        faults_to_stderr=True,
    )


def _erasure(place: str, places: tuple[RowsInShard, ...], *, text: bool, done: bool) -> Iterator[Block | str]:
    number = sum(len(one.rows) for one in places)
    yield f"{place}: {'erased' if done else 'would erase'} {count(number, 'training example')}"
    yield from (f"  {one.shard}: row {', '.join(map(str, one.rows))}" for one in places)
    if text:
        yield "  with everything else in these blocks of text"
    yield "  not reached, and left to you:"
    yield from (f"    {words}" for words in NOT_REACHED)
    if not done:
        yield "nothing was changed; --yes erases, and what is erased cannot be restored"


def _opened(place: str) -> tuple[Objects, bytes, Index]:
    objects = open_objects(place)
    content = shard_index.read_content(objects)
    return objects, content, shard_index.parse(content, where=f"{place}/{shard_index.FILE}")


def _counts(index: Index) -> Counter[str]:
    counts: Counter[str] = Counter()
    for shard in index.train.shards:
        if shard.tag is not None:
            counts[shard.tag] += shard.rows
    return counts


def _attested(objects: Objects, content: bytes, index: Index, trust: Path) -> Signed[ShardsAttestation]:
    """Return the attestation of this index. Raises `DataError` where there is none, or it is about another one."""
    where = f"{objects.url}/{shards_attestation.FILE}"
    try:
        envelope = objects.read(shards_attestation.FILE, max_bytes=shards_attestation.MAX_BYTES)
    except Missing as error:
        raise DataError(f"{where}: not there: expected the attestation that `explorer data sign` writes") from error
    signed = open_document(envelope, ATTESTATION, trust=read_trust(trust), now=options.clock(), where=where)
    digest = shard_index.digest_of(content)
    if signed.about != (digest,):
        raise DataError(f"{where}: about the index {signed.about[0][:16]}..., found {digest[:16]}...")
    if dict(_counts(index)) != signed.value.examples:
        raise DataError(f"{where}: its numbers of examples are not those of the index")
    return signed


def _read_all(objects: Objects, index: Index) -> tuple[list[str], int]:
    """Return what is wrong with each file that is missing or damaged, and the number of rows that were erased."""
    faults: list[str] = []
    erased = 0
    if index.tokeniser is not None:
        try:
            tokeniser_at(objects, index.tokeniser.sha256)
        except DataError as error:
            faults.append(str(error))
    for side in (index.train, index.test):
        files = ShardFiles(objects, Layout(side), cache=None, memory=MEMORY, pauses=AGAIN)
        for number in watched(range(len(side.shards)), "reading shards", total=len(side.shards)):
            files.expect(range(number, min(number + 4, len(side.shards))))
            try:
                erased += int(files.opened([number])[0].erased.sum())
            except DataError as error:
                faults.append(str(error))
    return faults, erased


def _page(
    place: str, index: Index, signed: Signed[ShardsAttestation] | None, faults: list[str], erased: int
) -> Iterator[Block | str]:
    shards = len(index.train.shards) + len(index.test.shards)
    kept = f"{shards:,} shards{'' if index.tokeniser is None else ' and their tokeniser'}"
    if faults:
        yield f"{place}: {kept}: {len(faults):,} missing or damaged"
        yield from faults[:MOST_FAULTS]
        if len(faults) > MOST_FAULTS:
            yield f"and {len(faults) - MOST_FAULTS:,} more"
    else:
        yield f"{place}: {kept}, all as the index says"
    if erased:
        yield f"{count(erased, 'row')} erased; the others are proved by the roots in the index"
    if signed is None:
        yield "not checked: who vouches for the index (--trust)"
        return
    yield f"signed by {', '.join(one.name for one in signed.authorities)}, until {signed.value.expires}"
    rows = [(path, f"{number:,}") for path, number in sorted(signed.value.examples.items())]
    if rows:
        yield table(("provenance", "training examples"), rows)
