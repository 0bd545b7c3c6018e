"""Locks by which the sweeps of a user know of each other, so that none measures step times while another trains.

Every process that trains a sweep locks a file `training-*` of its own; a process that measures locks `timing`.

    timing    one at a time. It waits a little for sweeps that train; those that still do are named in the profile.
    training  any number at a time. It does not begin while another process measures.

Locks are advisory `flock`s: the kernel releases them when their holder dies, however it dies, and a file that is not
locked means nothing. The directory belongs to one user. Sweeps of other users are not seen here; the load that they put
on the processor is noticed while a profile is taken.
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

FOR_TRAINING = 60.0  # seconds that a profile waits for sweeps that train, which may take hours
FOR_TIMING = 600.0  # seconds that a sweep, or a profile, waits for another's profile, which takes much less
POLL = 0.05  # seconds
GRACE = 0.3  # seconds after a profile, in which a waiting process takes the lock before this one begins to train
MAX_NAME_BYTES = 300

Wait = Callable[[str], None]


@contextlib.contextmanager
def training(
    name: str, *, on_wait: Wait = lambda message: None, stop: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Show other processes, within the block, that the sweep `name` trains.

    Waits while another process measures, at most `FOR_TIMING` seconds or until `stop` returns True; `on_wait` is called
    once with a message. Raises `RunError` if the directory of the locks cannot be used.
    """
    place = _place()
    # The gate is shared, so that sweeps train at the same time. It stays locked until our own file is, because a
    # process that measures would otherwise miss this one between the two.
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
    """Keep sweeps of this user from starting to train within the block; yield the reasons why the machine is busy.

    The reasons are sweeps that kept training, or a process that kept measuring, for as long as this one waited. Raises
    `RunError` if the directory of the locks cannot be used.
    """
    place = _place()
    # The gate comes first: once it is held, the number of sweeps that train can only fall.
    with contextlib.closing(_open(place / "timing")) as gate:
        exclusive = _patiently(
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
        yield [*([] if exclusive else ["another process measured step times at the same time"]), *reasons]
    time.sleep(GRACE)


def others(place: Path | None = None) -> list[str]:
    """Return the names of the sweeps that other processes train now, in order."""
    present = []
    for path in sorted((place or _place()).glob("training-*")):
        if path.name.startswith(f"training-{os.getpid()}-"):
            continue
        # A file that can be locked has no living holder. It is removed only when it is old, because a process that
        # has just created it may not have locked it yet.
        with contextlib.suppress(RunError), contextlib.closing(_open(path, create=False)) as presence:
            if not presence.lock(fcntl.LOCK_SH):
                present.append(presence.read())
            elif time.time() - path.stat().st_mtime > FOR_TIMING:
                path.unlink(missing_ok=True)
    return present


class _Held:
    """An open file and the lock on it, which is released when the file is closed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def lock(self, mode: int) -> bool:
        """Take the lock if no other process holds one that excludes it; return True if it was taken."""
        try:
            fcntl.flock(self._descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def read(self) -> str:
        """Return the name in the file, without characters that could disturb a terminal."""
        content = os.pread(self._descriptor, MAX_NAME_BYTES, 0).decode(errors="replace")
        return "".join(char for char in content if char.isprintable()) or "a sweep"

    def hold(self, text: str) -> None:
        """Take the lock, and write the name of its purpose. It waits for readers, which hold the lock for a moment."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.write(self._descriptor, text.encode()[:MAX_NAME_BYTES])

    def close(self) -> None:
        os.close(self._descriptor)


def _place() -> Path:
    """Return the user's own directory of locks, created if need be. Raises `RunError` if others could write to it."""
    place = Path(tempfile.gettempdir()) / f".explorer-sweeps-{os.getuid()}"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        status = place.lstat()  # not stat: in a shared temporary directory, another user could plant a link
    except OSError as error:
        raise RunError(f"other sweeps are not seen: cannot use {place}: {error.strerror or error}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise RunError(f"other sweeps are not seen: {place} must be a directory of yours that no other user can enter")
    return place


def _open(path: Path, *, create: bool = True) -> _Held:
    """Open a lock file; a link is not followed, and a child process does not inherit it. Raises `RunError`."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        return _Held(os.open(path, flags, 0o600))
    except OSError as error:
        raise RunError(f"other sweeps are not seen: cannot open {path}: {error.strerror or error}") from error


def _patiently(
    attempt: Callable[[], bool], patience: float, stop: Callable[[], bool], on_wait: Callable[[], None]
) -> bool:
    """Repeat the attempt for up to `patience` seconds; return True if it succeeds.

    attempt   returns True on success
    patience  seconds
    stop      returns True when waiting has become pointless
    on_wait   called before the first wait, if the attempt does not succeed at once
    """
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
