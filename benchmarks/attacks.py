"""What an attacker can change and which verb refuses it: ledgers, documents, training code, packs.

    python benchmarks/attacks.py [SECTION ...] [--only WORDS]     writes benchmarks/attacks.md where all sections ran

Sections: ledger, documents, leaks, packs. Every attack changes one thing in a copy of a small governed run that is
trained when the script begins, does what follows from the change consistently, signs it with all keys of the quorum
where the attacker has them, and asks the verbs that should refuse it. It is refused, or accepted with the sentence of
SECURITY.md that says so, which has to be there word for word; else it is OPEN, and the exit status is 1.
`--only` runs the attacks whose names contain these words, prints all answers and writes nothing.
"""

import importlib
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from attack_world import ATTACKS, SENTENCES, STEPS, Row, World
from options import options
from pages import write_page

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_suffix(".md")
SECTIONS = {
    "ledger": "A ledger whose every statement is signed again",
    "documents": "Documents, and files without a signature",
    "leaks": "Leaks planted in the code that trains",
    "packs": "The files of a pack, one by one",
}
SHOWN = 150  # characters of a message
_SCRUBBED = (
    (re.compile(r"(?<!\S)/\S*/(?=[^/\s])"), ""),  # directories of the machine
    (re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b"), r"\1..."),
    (re.compile(r"resnet8-digits-[a-z0-9.-]*?-s\d+-[0-9a-f]{8}"), "RUN"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
)


def rows_of(world: World, section: str, *, only: str = "") -> Iterator[Row]:
    """The rows of a section, one attack after the other."""
    importlib.import_module(f"attack_{section}")
    for each in [each for each in ATTACKS if each.section == section and only in each.name]:
        yield Row(attack=each, answers=each.act(world))


def missing_sentences(rows: Sequence[Row], security: str) -> list[str]:
    """The sentences that accepted attacks rest on and SECURITY.md does not have, word for word."""
    text = " ".join(security.split())
    needed = {row.attack.accepted for row in rows if row.verdict == "documented"}
    return [SENTENCES[name] for name in sorted(filter(None, needed)) if SENTENCES[name] not in text]


def page(rows: Mapping[str, Sequence[Row]], seconds: Mapping[str, float]) -> str:
    """`attacks.md`."""
    every = [row for each in rows.values() for row in each]
    lines = [_summary(name, rows[name], seconds[name]) for name in rows]
    lines.append(_summary("all", every, sum(seconds.values())))
    invariants = {row.attack.breaks for row in rows["ledger"] if row.verdict == "refused"}
    tables = "\n\n".join(f"## {SECTIONS[name]}\n\n{_table(rows[name])}" for name in rows)
    return f"""# What an attacker can change, and who refuses it

Made by `benchmarks/attacks.py`. Provenance is simulated: digits in four classes by label.

| section | attacks | new | refused | accepted as documented | open | seconds |
|---|---|---|---|---|---|---|
{chr(10).join(lines)}

Every row is one change of one thing in a copy of a small governed run of {STEPS} steps: one class is denied half of the
depth, one is admitted late, one is in a sealed region. What follows from the change is made again (roots, digests,
commitments, tables), and all of it is signed with all keys of the quorum where the attacker has them. Then the verbs
that should refuse it are asked. The {len(invariants)} distinct invariants of a ledger that are broken and found are in
the second column of the first table.

- **new**: neither reported by others nor refused before; written against the checks as they are now.
- **refused**: the verb that has to refuse it does, with the message shown; in brackets, which others do too.
- **accepted as documented**: with the sentence of SECURITY.md that says so, which the script looks up there word for
  word. Where a replay differs all the same, the row says so.
- **open**: neither. The script then ends with status 1.

The attacker is the trainer, with all keys, secrets and files, unless the second column says otherwise: a reader, an
outsider, or the code itself. A leak is planted in the engine while a run is trained, while its class is deleted and
while the certificate is verified, so that it is in the run and in its reference alike; `counterfactual` is `explorer
delete verify --counterfactual`, and a replay is by honest code. Times are of one run on a machine that others may use.

{tables}
"""


def _summary(name: str, rows: Sequence[Row], seconds: float) -> str:
    verdicts = [row.verdict for row in rows]
    counts = [verdicts.count(each) for each in ("refused", "documented", "OPEN")]
    new = sum(not row.attack.known for row in rows)
    return f"| {name} | {len(rows)} | {new} | {' | '.join(map(str, counts))} | {seconds:.0f} |"


def _table(rows: Sequence[Row]) -> str:
    head = "| attack | it breaks | who gains what | what came of it |\n|---|---|---|---|"
    return "\n".join([head, *(_line(row) for row in rows)])


def _line(row: Row) -> str:
    attack = row.attack
    name = attack.name if attack.known else f"{attack.name} (new)"
    cells = (name, attack.breaks, f"{attack.who}: {attack.gains}", _outcome(row))
    return f"| {' | '.join(each.replace('|', '/') for each in cells)} |"


def _outcome(row: Row) -> str:
    answers = {verb: text for verb, text in row.refused.items() if verb not in ("named", "open")}
    if row.verdict == "refused":
        first = next(verb for verb in row.attack.by or answers if row.answers.get(verb))
        others = ", ".join(verb for verb in answers if verb != first)
        return f"**refused** by {first}: {scrubbed(answers[first])}{f' ({others})' if others else ''}"
    others = "".join(f"; {verb}: {scrubbed(text)}" for verb, text in row.refused.items())
    if row.verdict == "documented":
        return f'accepted: "{SENTENCES[row.attack.accepted or ""]}"{others}'
    return f"**OPEN**{others}"


def scrubbed(text: str) -> str:
    """A message without what is of this machine and this run, in one cell of a table."""
    for pattern, instead in _SCRUBBED:
        text = pattern.sub(instead, text)
    text = re.sub(r"\s+", " ", text).replace("<", "&lt;").strip()
    return text if len(text) <= SHOWN else f"{text[:SHOWN].rstrip()}..."


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--only", default="", metavar="WORDS", help="attacks whose names contain these words")
    arguments = parser.parse_args()
    if unknown := [each for each in arguments.sections if each not in SECTIONS]:
        parser.error(f"found {unknown[0]!r}; expected some of {', '.join(SECTIONS)}")
    torch.set_num_threads(1)
    rows: dict[str, list[Row]] = {}
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="explorer-attacks-") as temporary:
        world = World(Path(temporary))
        for section in arguments.sections or SECTIONS:
            start = time.monotonic()
            rows[section] = []
            for row in rows_of(world, section, only=arguments.only):
                rows[section].append(row)
                print(f"{row.verdict:<10} {section}: {row.attack.name}", flush=True)
                if arguments.only or row.verdict == "OPEN":
                    for verb, text in row.answers.items():
                        print(f"             {verb}: {text[:SHOWN] or 'accepts it'}")
            seconds[section] = time.monotonic() - start
    every = [row for each in rows.values() for row in each]
    missing = missing_sentences(every, (ROOT / "SECURITY.md").read_text())
    for sentence in missing:
        print(f"not in SECURITY.md: {sentence}")
    if not arguments.only and rows.keys() == SECTIONS.keys():
        write_page(PAGE, page(rows, seconds))
    still_open = sum(row.verdict == "OPEN" for row in every)
    print(f"{len(every)} attacks in {sum(seconds.values()):.0f} s; open: {still_open}")
    sys.exit(bool(missing or still_open))


if __name__ == "__main__":
    main()
