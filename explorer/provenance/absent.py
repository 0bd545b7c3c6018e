"""What a run leaves out: the examples of classes, the examples that authorities vouch for, or single records.

Their places in the batches stay as they are and empty: order, draws and denominators of all others do not move. The
content of such an example is never read, and its salt may be destroyed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.errors import RecipeError, unknown
from explorer.provenance.attestation import VerifiedTags


@dataclass(frozen=True, kw_only=True, slots=True)
class Absent:
    """What is left out; empty: nothing is."""

    classes: tuple[str, ...] = ()
    authorities: tuple[str, ...] = ()  # all whose tags they vouch for
    records: tuple[int, ...] = ()  # rows of the tag table

    def examples(self, tags: VerifiedTags, *, count: int) -> NDArray[np.bool_]:
        """Whether each of so many training examples is left out. Those without a tag are of no class.

        Raises `RecipeError` for a class, an authority or a row that the table does not know.
        """
        table, names = tags.tags, tags.table.authorities
        gone = np.zeros(count, np.bool_)
        for path in self.classes:
            if path not in tags.codes:
                raise RecipeError(f"routing: without: {unknown('class', path, tags.codes)}")
            gone[: len(table)] |= table.classes == tags.codes[path]
        for name in self.authorities:
            if name not in names:
                raise RecipeError(f"routing: without_authorities: {unknown('authority', name, names)}")
            gone[: len(table)] |= table.authorities == names.index(name)
        for row in self.records:
            if not 0 <= row < len(table):
                raise RecipeError(
                    f"routing: without_records: found {row}; expected rows of the tag table, 0 to {len(table) - 1}"
                )
            gone[row] = True
        return gone
