"""What an attacker can change, and who refuses it: ledgers, documents, training code, packs.

    python benchmarks/attacks.py [SECTION ...] [--only WORDS]     writes benchmarks/attacks.md where all sections ran

Sections: ledger, documents, leaks, packs. Every attack changes one thing in a copy of a small governed run that is
trained when the script begins, does what follows from the change consistently, signs it with all keys of the quorum
where the attacker has them, and asks the verbs that should refuse it. It is refused, or accepted with the sentence of
SECURITY.md that says so, which has to be there word for word; else it is OPEN, and the exit status is 1.
`--only` runs the attacks whose names contain these words, prints all answers and writes nothing.
"""

import importlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from attack_world import ATTACKS, SENTENCES, Row, World
from options import options

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = ("ledger", "documents", "leaks", "packs")
SHOWN = 160  # characters of a message


def rows_of(world: World, section: str, *, only: str = "") -> Iterator[Row]:
    """The rows of a section, one attack after the other."""
    importlib.import_module(f"attack_{section}")
    for each in [each for each in ATTACKS if each.section == section and only in each.name]:
        yield Row(attack=each, answers=each.act(world))


def missing_sentences(security: str) -> list[str]:
    """The sentences that SECURITY.md does not have, word for word."""
    text = " ".join(security.split())
    return [name for name, sentence in SENTENCES.items() if sentence not in text]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], metavar="SECTION")
    parser.add_argument("--only", default="", metavar="WORDS")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.monotonic()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="explorer-attacks-") as temporary:
        world = World(Path(temporary))
        for section in arguments.sections or SECTIONS:
            for row in rows_of(world, section, only=arguments.only):
                rows.append(row)
                print(f"{row.verdict:<10} {section}: {row.attack.name}", flush=True)
                if arguments.only or row.verdict == "OPEN":
                    for verb, said in row.answers.items():
                        print(f"             {verb}: {said[:SHOWN] or 'accepts it'}")
    print(f"{len(rows)} attacks in {time.monotonic() - start:.0f} s; open: {sum(r.verdict == 'OPEN' for r in rows)}")
    sys.exit(any(row.verdict == "OPEN" for row in rows))


if __name__ == "__main__":
    main()
