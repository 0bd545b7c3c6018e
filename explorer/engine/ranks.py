"""Ranks: the processes of one node that train a run together, and what they tell each other.

They are connected by torch.distributed: gloo between CPUs, NCCL between GPUs. Only bytes travel; nothing is added on
the way, since the order of additions is that of the lanes (engine/lanes.py). Rank 0 decides and writes files.

A rank that ends closes its connections, so the others see it at their next exchange and stop with `LostRank`.
"""

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from explorer.errors import RunError

PATIENCE = datetime.timedelta(hours=2)  # of a rank that waits for one that is busy: evaluating, or writing a ledger


class LostRank(RunError):
    """Error of a rank that cannot reach another one."""


class Ranks:
    """This process as one of those that train a run."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        """Use `joined` where there is more than one."""
        self.rank, self.size = rank, size

    @property
    def leads(self) -> bool:
        """Return whether this one decides and writes."""
        return self.rank == 0

    def swap(self, mine: Tensor, *, source: int, targets: tuple[int, ...]) -> Tensor:
        """Send bytes to the targets, and return as many from the source, on the same device."""
        theirs = torch.empty_like(mine)
        with _reported():
            operations = [dist.P2POp(dist.irecv, theirs, source)]
            operations += [dist.P2POp(dist.isend, mine, target) for target in targets]
            for request in dist.batch_isend_irecv(operations):
                request.wait()
        return theirs

    def told(self, value: int) -> int:
        """Return rank 0's number."""
        if self.size == 1:
            return value
        number = torch.tensor([value], dtype=torch.int64)
        with _reported():
            dist.broadcast(number, src=0)
        return int(number.item())

    def gathered(self, text: str) -> list[str]:
        """Return what each rank says, in their order."""
        return [self._said(rank, text.encode()).decode() for rank in range(self.size)]

    def given(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of rank 0, on the CPU."""
        mine = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()} if self.leads else {}
        return load(self._said(0, save(mine)))

    def _said(self, rank: int, mine: bytes) -> bytes:
        """Return the bytes of that rank."""
        if self.size == 1:
            return mine
        size = torch.tensor([len(mine)], dtype=torch.int64)
        with _reported():
            dist.broadcast(size, src=rank)
            row = torch.empty(int(size.item()), dtype=torch.uint8)
            if rank == self.rank and mine:
                row.copy_(torch.frombuffer(bytearray(mine), dtype=torch.uint8))
            dist.broadcast(row, src=rank)
        return row.numpy().tobytes()


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo has no type of its own for a closed connection
        raise LostRank(f"another rank of this run was lost: {str(error).splitlines()[0]:.300}") from error


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """Join the ranks that torchrun started, as its variables say, for the block."""
    # What ranks say to each other goes from host to host, so that no host waits for its GPU.
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
