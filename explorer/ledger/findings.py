"""What is wrong with a ledger: where, what was expected, what was found. As many as somebody can read."""

from dataclasses import dataclass

MAX_FINDINGS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One fault."""

    path: str  # below the ledger's directory
    message: str
    expected: str | None = None
    found: str | None = None


class Findings:
    """The first faults that were found, and how many more there were."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.more = 0

    def add(self, path: str, message: str, *, expected: str | None = None, found: str | None = None) -> None:
        """Keep a fault, or count it where enough are kept."""
        if len(self.kept) < MAX_FINDINGS:
            self.conclude(path, message, expected=expected, found=found)
        else:
            self.more += 1

    def conclude(self, path: str, message: str, *, expected: str | None = None, found: str | None = None) -> None:
        """Keep a fault however many there are: what is wrong with the whole, not with one of many files."""
        self.kept.append(Finding(path=printable(path), message=message, expected=expected, found=found))


def printable(path: str) -> str:
    """A path as it can be shown: the names of files are somebody else's bytes."""
    return path if path.isprintable() else ascii(path)
