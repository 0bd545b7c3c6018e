"""A dataset's card as MLCommons Croissant: what it is, under which licence, which files hold it, and how many examples
of which class there are."""

import json
from collections.abc import Sequence

from explorer.data.cards import Card
from explorer.data.dataset import DataFile
from explorer.provenance.description import Column, File, Records, croissant

MOST = 1_000  # files that are listed
COUNTED = Column(name="counted", type="sc:Text", description="What the numbers count.")
TRAIN = Column(name="train", type="sc:Integer", description="How many on the training side.")
TEST = Column(name="test", type="sc:Integer", description="How many on the test side.")
SIMULATED = "Simulated provenance: this data has no real sources; the provenance classes were cut for demonstration."


def as_croissant(card: Card, files: Sequence[DataFile]) -> str:
    """The document. A licence is said as the dataset's makers state it, "not stated" too."""
    left = len(files) - MOST
    more = f"\n\n{left:,} more files are not listed; the identifier covers all of them." if left > 0 else ""
    document = croissant(
        name=card.name,
        description=f"{card.summary}\n\n{card.description}{more}",
        facts={
            "identifier": f"sha256:{card.digest}",
            "license": card.licence,
            "isBasedOn": card.source,
            "keywords": [card.modality, card.task],
            "rai:dataLimitations": SIMULATED if card.simulated else None,
        },
        files=[File(path=each.path, sha256=each.sha256, encoding=each.media) for each in files[:MOST]],
        records=[_sides(card), _classes(card), _provenance(card)],
    )
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _sides(card: Card) -> Records:
    counts = {"examples": (card.train, card.test)} | ({"tokens": card.tokens} if card.tokens else {})
    return Records(
        name="sides",
        description="Both sides of the split.",
        columns=(COUNTED, TRAIN, TEST),
        key=COUNTED.name,
        rows=[{COUNTED.name: what, TRAIN.name: train, TEST.name: test} for what, (train, test) in counts.items()],
    )


def _classes(card: Card) -> Records:
    return Records(
        name="labels",
        description=f"The labels, with the number of {card.counted or 'examples'} that have each.",
        columns=(Column(name="label", type="sc:Text", description="Its name."), TRAIN, TEST),
        key="label",
        rows=[{"label": each.name, TRAIN.name: each.train, TEST.name: each.test} for each in card.classes],
    )


def _provenance(card: Card) -> Records:
    return Records(
        name="provenance",
        description="Classes of where training examples come from, as whoever made the dataset says; nobody has signed "
        "that here.",
        columns=(Column(name="class", type="sc:Text", description="A class of a taxonomy."), TRAIN),
        key="class",
        rows=[{"class": each.path, TRAIN.name: each.examples} for each in card.provenance],
    )
