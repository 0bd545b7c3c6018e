"""Two readers of ledgers, Explorer's decoder and the verify.py of packs, asked about ledgers that a trainer has forged.

    python benchmarks/verifiers.py [--ledgers 100000] [--seed 1]           writes benchmarks/verifiers.md

Each ledger is the small one of `tests/disclosure/two_readers.py` with one change, and is signed again: root and
checkpoint are right. A run fails if the two answer differently for a reason that is not listed.
"""

import resource
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from options import options, whole  # noqa: E402
from pages import write_page  # noqa: E402

from tests.disclosure.two_readers import DIFFERENCES, OF_AN_ENTRY, ask, entries, structural, variations  # noqa: E402

FAMILIES = {name: (change.__doc__ or "").strip().splitlines()[0] for name, change in OF_AN_ENTRY.items()}
FAMILIES["entries"] = (structural.__doc__ or "").strip()
MEGABYTE = 1024  # ru_maxrss is in kilobytes


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ledgers", type=whole(), default=100_000, help="how many are asked about")
    parser.add_argument("--seed", type=whole(0), default=1, help="which ones")
    asked = parser.parse_args()
    counted: Counter[tuple[str, str]] = Counter()
    began = time.perf_counter()
    for family, leaves in variations(asked.ledgers, asked.seed):
        answers = ask(leaves)
        if answers.reason is None:
            raise SystemExit(f"{family}: the two differ, and no reason is listed:\n  {answers}\n  {leaves}")
        both = "refused" if answers.explorer else "read"
        counted[family, answers.reason or both] += 1
    seconds = time.perf_counter() - began
    page = "\n".join(_page(asked.ledgers, asked.seed, counted, seconds)) + "\n"
    write_page(Path(__file__).with_suffix(".md"), page)
    print(page)


def _page(ledgers: int, seed: int, counted: Counter[tuple[str, str]], seconds: float) -> list[str]:
    differ = sum(counted[family, reason] for family in FAMILIES for reason in DIFFERENCES.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE
    rows = [
        f"| {family} | {what} | {sum(number for (of, _), number in counted.items() if of == family):,} |"
        f" {counted[family, 'read']:,} | {counted[family, 'refused']:,} |"
        f" {sum(counted[family, reason] for reason in DIFFERENCES.values()):,} |"
        for family, what in FAMILIES.items()
    ]
    reasons = [f"| {why} | {sum(counted[family, why] for family in FAMILIES):,} |" for why in DIFFERENCES.values()]
    return [
        "# Two readers of one ledger",
        "",
        f"{ledgers:,} ledgers of {len(entries())} entries with one change each, signed again by the trainer"
        f" (seed {seed}), read by Explorer's",
        f"decoder and by the verify.py of packs: {differ:,} answers differ, all for the reasons below; none for another"
        " reason.",
        f"{seconds:.0f} s, peak memory {peak:.0f} MB, interpreter and libraries included. Made by"
        " `benchmarks/verifiers.py`.",
        "",
        "| change | what it is | ledgers | both read | both refuse | differ |",
        "|---|---|--:|--:|--:|--:|",
        *rows,
        "",
        "| why one refuses what the other reads | ledgers |",
        "|---|--:|",
        *reasons,
    ]


if __name__ == "__main__":
    main()
