"""What was not updated did not move: the layers that a whole segment says 0 of, held against the tensors of its states.

A `state` entry lists the leaf of every tensor, as the genesis does for the state before the first step
(recorded/tensors.py). Two states in a row tell which tensors moved in between, optimiser state included; each of them
has to be of a layer that some step of the segment says was updated. The lists have to lead to the roots of their
states, so that they cannot say less than those.
"""

from collections.abc import Sequence
from itertools import chain

from explorer.audit.conditions import Judgement
from explorer.entries.run import State, Step
from explorer.errors import LedgerError
from explorer.runlog.run_ledger import Placed, RunLedger, Segment
from explorer.runlog.tensors import (
    BLOB,
    MAX_BYTES,
    OWNERS,
    Tensors,
    check_roots,
    layer_of,
    moved,
    parameter_of,
    parse_tensors,
    read_owners,
)


class Unmoved:
    """Compares states, a segment at a time."""

    def __init__(self, run: RunLedger, judgement: Judgement) -> None:
        self._run, self._judgement = run, judgement
        self._before: Tensors | None = None
        self._listed = BLOB in run.genesis.blobs  # then every state has a list
        self._layers = frozenset(run.genesis.layers)
        if run.begins == 0 and self._listed:  # else the run goes on from another one's state, whose list is not here
            with judgement.reading(0):
                self._before = self._first()

        self._owners: dict[str, str] = {}
        if OWNERS in run.genesis.blobs:
            with judgement.reading(0):
                self._owners = read_owners(self._run)
                said = ", ".join(f"{name} of {layer}" for name, layer in sorted(self._owners.items()))
                # A note: the names of shared tensors do not tell their layer, so the genesis alone can say it.
                judgement.note(f"shared tensors are held to be of the layers that the genesis says: {said:.300}")

    def segment(self, segment: Segment, steps: Sequence[Placed[Step]]) -> None:
        """Compare the states around these steps."""
        before, self._before = self._before, None
        with self._judgement.reading(segment.state.index):
            after = self._before = self._tensors(segment.state)
            if segment.past is not None:
                before = self._at(segment.past.before)
            if before is None or after is None:
                return
            self._judgement.count("states compared")
            flags = zip(*(placed.entry.updated for placed in steps), strict=True)
            updated = {name for name, each in zip(self._run.genesis.layers, flags, strict=True) if "1" in each}
            still: dict[str, str] = {}
            for name in sorted(moved(before, after)):
                layer = self._owners.get(parameter_of(name)) or layer_of(name, self._layers)
                if layer is not None and layer not in updated:
                    still.setdefault(layer, name)
                elif layer is None and (name in after.parameters or name in after.buffers):
                    still.setdefault(f"a layer that {name} is of", name)
            for layer, name in still.items():
                self._judgement.contradict(
                    segment.state.index,
                    f"steps {segment.first} to {segment.stop - 1}: none of them updated {layer}, and {name} moved",
                    expected=_leaf(before, name),
                    found=_leaf(after, name),
                )

    def _at(self, state: int | None) -> Tensors | None:
        """The list of the state with this entry; None: of the one that the ledger begins with."""
        if state is not None:
            return self._tensors(next(self._run.read([state], State)))
        return self._first() if self._run.begins == 0 and self._listed else None

    def _tensors(self, state: Placed[State]) -> Tensors | None:
        """The list of a state. Raises `LedgerError` for one that is not that of the state."""
        content = self._run.blob(state, BLOB, max_bytes=MAX_BYTES)
        if content is None and not self._listed:
            # Part of the condition: without the lists a layer that says it was not updated may have moved all the same.
            self._judgement.untold("whether layers that were not updated stayed: the run's states list no tensors")
            return None
        if content is None:
            raise LedgerError("a state without its list of tensors, which the genesis has: what moved cannot be seen")
        where = f"entry {state.index}: {BLOB}"
        tensors = parse_tensors(content, where=where)
        check_roots(tensors, state.entry.state, where=where)
        return tensors

    def _first(self) -> Tensors | None:
        """The list of the genesis. Raises `LedgerError` for one that is not that of the initial parameters."""
        (genesis,) = self._run.read([0], type(self._run.genesis))
        content = self._run.blob(genesis, BLOB, max_bytes=MAX_BYTES)
        if content is None:
            raise LedgerError("the list of the tensors before step 0 is not here: what moved cannot be seen")
        tensors = parse_tensors(content, where=f"entry 0: {BLOB}")
        if tensors.roots[0] != genesis.entry.initial:
            found = f"entry 0: {BLOB}: the parameters lead to the root {tensors.roots[0]}"
            raise LedgerError(f"{found}; recorded is {genesis.entry.initial}")
        return tensors


def _leaf(tensors: Tensors, name: str) -> str:
    found = dict(chain(tensors.parameters.items(), tensors.buffers.items(), tensors.optimizer.items()))
    return found.get(name, "no such tensor")
