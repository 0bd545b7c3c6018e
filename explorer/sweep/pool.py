"""The workers of one start of a sweep, whatever executor they belong to, and how their calls are asked to stop.

Executors of ours have `interrupt`. For any other `concurrent.futures.Executor` the sweep's directory has a file, the
permit: calls that are in progress look for it, and stop after their step once it is gone; calls that begin later do
nothing. A driver that was killed leaves its permit, and the next start removes it, so no call outlives its sweep.
"""

import uuid
from collections.abc import Callable, Collection
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import Any

from explorer import rundir
from explorer.errors import SweepError
from explorer.run_files import Hardware

Workers = Executor | Callable[[], Executor]  # a function makes one for the sweep, which shuts it down


class Pool:
    """An executor, with two ways to end its calls: after their step, and at once as far as it can."""

    def __init__(self, workers: Workers, directory: Path) -> None:
        self._make = None if isinstance(workers, Executor) else workers
        self._executor = workers if isinstance(workers, Executor) else workers()
        self.permit: Path | None = None  # none for an executor that can be interrupted
        self.abandoned = False  # by the second interrupt: calls in progress are not waited for
        if not hasattr(self._executor, "interrupt"):
            for left in directory.glob(f"{rundir.PERMIT}*"):
                left.unlink(missing_ok=True)
            self.permit = directory.resolve() / f"{rundir.PERMIT}{uuid.uuid4().hex}"
            rundir.write_bytes(self.permit, b"")

    @property
    def workers(self) -> int | None:
        """The number of its workers now; None: it does not tell."""
        return getattr(self._executor, "workers", None)

    def room(self, hardware: Hardware) -> int | None:
        """Return how many runs for this hardware its workers make at once; None: they are not told apart."""
        room = getattr(self._executor, "room", None)
        return None if room is None else room(hardware)

    def submit(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        to: Hardware | None = None,
        apart: Collection[str] = (),
        **kwargs: Any,
    ) -> Future[Any]:
        """Submit a call. An executor that can choose gives it `to` a worker with this hardware, and to one on another
        host than those in `apart` if there are others.

        An executor that the death of a worker has ended is replaced first.
        """
        if to is not None and (submit_to := getattr(self._executor, "submit_to", None)) is not None:
            return submit_to(to, apart, fn, *args, **kwargs)
        try:
            return self._executor.submit(fn, *args, **kwargs)
        except BrokenExecutor as error:
            if self._make is None:
                raise SweepError(
                    f"the executor ended with a worker that died ({error}): give run_sweep a function that makes one,"
                    " and it continues with another"
                ) from error
            self._executor.shutdown(wait=False)
            self._executor = self._make()
            return self._executor.submit(fn, *args, **kwargs)

    def avoid(self, host: str) -> bool:
        """Give the host no more calls; return whether the executor can do that, and has other hosts."""
        avoid = getattr(self._executor, "avoid", None)
        return avoid is not None and avoid(host)

    def interrupt(self) -> None:
        """Ask the calls in progress to stop; the second time, stop at once. A signal handler may call it."""
        if self.permit is None:
            self._executor.interrupt()  # pyright: ignore[reportAttributeAccessIssue]
            return
        self.abandoned = not self.permit.exists()
        self.permit.unlink(missing_ok=True)

    def shutdown(self) -> None:
        """End what was made for the sweep, and take back the permit."""
        if self.permit is not None:
            self.permit.unlink(missing_ok=True)
        if self._make is not None:
            self._executor.shutdown(wait=not self.abandoned)
