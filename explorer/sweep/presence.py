"""Which sweeps train on this machine now, so that no sweep is timed while another trains.

Every process of a user that trains a sweep holds a file `training-*` of its own; who times holds `timing`.

    timing    one at a time. It waits a little for sweeps that train; those that still do are named in the profile.
    training  any number at a time. It does not begin while another process times.

Locks are advisory `flock`s: the kernel releases them when their holder dies, however it dies, and a file without its
lock says nothing. The directory is the user's alone: sweeps of other users are not seen here, and what they take of the
processor is seen while a profile is taken.
"""

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from explorer.errors import RunError

FOR_TRAINING = 60.0  # seconds that a profile waits for sweeps that train
FOR_TIMING = 600.0  # seconds that a sweep, or a profile, waits for another's profile, which takes much less
POLL = 0.05
GRACE = 0.3  # after a profile: who waits for the lock gets it before this process begins to train
MAX_NAME_BYTES = 300

Wait = Callable[[str], None]


@contextlib.contextmanager
def training(
    name: str, *, on_wait: Wait = lambda message: None, stop: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Within the block, processes that want to time know that the sweep `name` trains.

    Waits while another process times, `FOR_TIMING` seconds at most or until `stop`; `on_wait` hears of it once. Raises
    `RunError` if the directory of the locks cannot be used.
    """
    place = _place()
    with contextlib.closing(_open(place / "timing")) as gate:
        _patiently(
            lambda: gate.lock(fcntl.LOCK_SH),
            FOR_TIMING,
            stop,
            lambda: on_wait("waiting while another process measures step times"),
        )
        path = place / f"training-{os.getpid()}-{secrets.token_hex(4)}"
        presence = _open(path)
        presence.hold(name)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        presence.close()


@contextlib.contextmanager
def timing(*, on_wait: Wait = lambda message: None, stop: Callable[[], bool] = lambda: False) -> Iterator[list[str]]:
    """Within the block no sweep of this user begins to train. Yields why the machine is busy all the same: sweeps that
    went on training, or a process that went on timing, for as long as this one waited.

    Raises `RunError` if the directory of the locks cannot be used.
    """
    place = _place()
    with contextlib.closing(_open(place / "timing")) as gate:
        alone = _patiently(
            lambda: gate.lock(fcntl.LOCK_EX),
            FOR_TIMING,
            stop,
            lambda: on_wait("waiting while another process measures step times"),
        )
        quiet = _patiently(
            lambda: not others(place),
            FOR_TRAINING,
            stop,
            lambda: on_wait(f"{_named(others(place))} trains on this machine: waiting up to {FOR_TRAINING:.0f} s"),
        )
        reasons = [] if quiet else [f"{_named(others(place))} trained at the same time"]
        yield [*([] if alone else ["another process measured step times at the same time"]), *reasons]
    time.sleep(GRACE)


def others(place: Path | None = None) -> list[str]:
    """Return the names of the sweeps that other processes train now, in order."""
    present = []
    for path in sorted((place or _place()).glob("training-*")):
        if path.name.startswith(f"training-{os.getpid()}-"):
            continue
        with contextlib.suppress(RunError), contextlib.closing(_open(path, create=False)) as presence:
            if not presence.lock(fcntl.LOCK_SH):
                present.append(presence.read())
            elif time.time() - path.stat().st_mtime > FOR_TIMING:  # its holder was killed
                path.unlink(missing_ok=True)
    return present


class _Held:
    """An open file and the lock on it, which ends with it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def lock(self, mode: int) -> bool:
        """Take the lock if no other process is in the way."""
        try:
            fcntl.flock(self._descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def read(self) -> str:
        """Return what the file says, as far as it can be shown."""
        content = os.pread(self._descriptor, MAX_NAME_BYTES, 0).decode(errors="replace")
        return "".join(char for char in content if char.isprintable()) or "a sweep"

    def hold(self, text: str) -> None:
        """Take the lock, which others hold for a moment when they look, and say what for."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.write(self._descriptor, text.encode()[:MAX_NAME_BYTES])

    def close(self) -> None:
        os.close(self._descriptor)


def _place() -> Path:
    """Return the user's own directory of locks, made if there is none. Raises `RunError` for one that another could
    write."""
    place = Path(tempfile.gettempdir()) / f".explorer-sweeps-{os.getuid()}"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        status = place.lstat()
    except OSError as error:
        raise RunError(f"other sweeps are not seen: cannot use {place}: {error.strerror or error}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise RunError(f"other sweeps are not seen: {place} must be a directory of yours that no other user may enter")
    return place


def _open(path: Path, *, create: bool = True) -> _Held:
    """Open a file of locks; a link is not followed. Raises `RunError`."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        return _Held(os.open(path, flags, 0o600))
    except OSError as error:
        raise RunError(f"other sweeps are not seen: cannot open {path}: {error.strerror or error}") from error


def _patiently(
    attempt: Callable[[], bool], patience: float, stop: Callable[[], bool], on_wait: Callable[[], None]
) -> bool:
    """Return whether the attempt succeeds, at once or within so many seconds; `on_wait` is called before the first
    wait."""
    if attempt():
        return True
    on_wait()
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and not stop():
        time.sleep(POLL)
        if attempt():
            return True
    return False


def _named(names: list[str]) -> str:
    """
    >>> _named(["digits"]), _named(["a", "b"]), _named([])
    ("sweep 'digits'", "sweep 'a' and sweep 'b'", 'another sweep')
    """
    return " and ".join(f"sweep {name!r}" for name in names) or "another sweep"
