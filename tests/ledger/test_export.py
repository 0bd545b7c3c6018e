"""A ledger as others fetch it: static files and a server, read by a client that is written from the specification."""

import functools
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from explorer.errors import LedgerError
from explorer.ledger.log import Log
from explorer.ledger.static_files import RemoteLedger, export, serve
from explorer.ledger.web import Client
from explorer.note import parse, verify
from tests.ledger import tlog_client
from tests.ledger.ledgers import DG, LOG, cosigned, grow, make, note_of
from tests.ledger.signers import ORIGIN, entry


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def static(directory: Path) -> ThreadingHTTPServer:
    """Any web server, which knows nothing of ledgers."""
    return ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(directory)))


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("sizes", [(0,), (1,), (3, 255), (255, 256, 257), (5, 300, 513), (700,)])
def test_a_client_of_the_specification_verifies_what_is_exported_and_served(
    tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    """All entries and tiles, and the tree of every earlier checkpoint, by the partial tiles of that size."""
    directory, older = tmp_path / "ledger", []
    with Log.create(directory, origin=ORIGIN, signer=LOG) as log:
        for size in sizes:
            log.append(entry(number) for number in range(log.size, size))
            older.append(log.commit())
    export(directory, tmp_path / "site")
    for server in (static(tmp_path / "site"), serve(directory, 0)):
        with running(server) as url:
            assert tlog_client.verify(url) == (sizes[-1], older[-1].root)
            assert tlog_client.entries(url, sizes[-1]) == [entry(number) for number in range(sizes[-1])]
            for each in older:
                assert tlog_client.consistent(url, each.size, each.root)
                assert not tlog_client.consistent(url, each.size, bytes(32)), "the control"


def test_the_client_is_a_program_of_its_own(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 300)
    with running(serve(directory, 0)) as url:
        command = [sys.executable, "-I", tlog_client.__file__, url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout.startswith("300 "), done.stderr
    assert "explorer" not in Path(tlog_client.__file__).read_text().replace("`explorer`", "")


def test_an_export_is_brought_up_to_date_and_holds_what_the_specification_knows(tmp_path: Path) -> None:
    directory, site = make(tmp_path / "ledger", 5), tmp_path / "site"
    with Log.open(directory, signer=LOG) as log:
        log.write_blob(b"not for everybody")
    export(directory, site)
    assert sorted(files(site)) == ["checkpoint", "tile/0/000.p/5", "tile/entries/000.p/5"]
    assert export(directory, site) == 0, "nothing is new"
    grow(directory, [entry(number) for number in range(5, 7)])
    cosigned(directory, tmp_path / "state", DG)
    export(directory, site)
    widths = {f"tile/{place}/000.p/{width}" for place in ("0", "entries") for width in (5, 7)}
    assert set(files(site)) == {"checkpoint"} | widths
    signed = parse((site / "checkpoint").read_bytes())
    assert [each.verifier for each in verify(signed, [LOG.verifier, DG.verifier])] == [LOG.verifier, DG.verifier]
    grow(directory, [entry(number) for number in range(7, 300)])
    export(directory, site)
    assert widths <= set(files(site)), "whoever holds an older checkpoint may be reading"
    before = files(site)["tile/0/000"]
    grow(directory, [entry(300)])
    export(directory, site)
    assert not widths & set(files(site)) and files(site)["tile/0/000"] == before
    grow(directory, [entry(301)])
    shutil.copytree(directory, tmp_path / "copy")
    export(tmp_path / "copy", tmp_path / "another")
    assert set(files(tmp_path / "another")) >= {"tile/0/001.p/44", "tile/0/001.p/45", "tile/0/001.p/46"}


def test_an_export_is_of_one_history(tmp_path: Path) -> None:
    directory, older, fork = make(tmp_path / "ledger", 300), make(tmp_path / "older", 200), tmp_path / "fork"
    with Log.create(fork, origin=ORIGIN, signer=LOG) as log:
        log.append(b"other %d" % number for number in range(400))
    site = tmp_path / "site"
    export(directory, site)
    before = files(site)
    for other in (older, fork):
        with pytest.raises(LedgerError, match="no earlier state of this ledger"):
            export(other, site)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter").touch()
    with pytest.raises(LedgerError, match="not empty, and no log was exported there"):
        export(directory, tmp_path / "mine")
    assert files(site) == before and sorted(files(tmp_path / "mine")) == ["letter"]


@pytest.mark.parametrize("path", ["tile/0/000", "tile/0/001.p/44", "tile/1/000.p/1", "tile/entries/000"])
def test_a_damaged_ledger_gets_no_checkpoint_exported(tmp_path: Path, path: str) -> None:
    """Tiles are derived from the entries, so that damage to them does not matter; entries have to lead to the root."""
    directory, site = make(tmp_path / "ledger", 300), tmp_path / "site"
    content = bytearray((directory / path).read_bytes())
    content[20] ^= 1
    (directory / path).write_bytes(content)
    if "entries" in path:
        with pytest.raises(LedgerError, match="its entries lead to root"):
            export(directory, site)
        assert not (site / "checkpoint").exists()
    else:
        export(directory, site)
        with running(static(site)) as url:
            assert tlog_client.verify(url)[0] == 300


STRANGE = """
    secret ../ledger/secret tile/0/../../secret tile/0/%2e%2e/x .lock tile/0/00 tile/9/000 tile/0/002.p/1 tile/0/001
    tile/entries/001.p/45 tile/0/000.p/0 tile/64/000 tile/0/000.p/256 tile/00/000 tile/0/0000 checkpoint/ /
"""


def test_what_is_not_of_the_log_is_not_served(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 300)
    (directory / "secret").write_text("no")
    with running(serve(directory, 0)) as url:
        client = Client(url)
        for path in STRANGE.split():
            assert client.ask("GET", path, max_bytes=999).status == 404, path
        assert client.ask("POST", "checkpoint", b"", max_bytes=999).status in (405, 411)
        assert client.ask("HEAD", "checkpoint", max_bytes=999).status == 200
        client.close()
        assert (
            client.ask("GET", "tile/0/000.p/9", max_bytes=999).body == (directory / "tile/0/000").read_bytes()[: 9 * 32]
        )
        client.close()


def test_a_served_log_follows_its_writer(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 3)
    with running(serve(directory, 0)) as url:
        assert tlog_client.verify(url)[0] == 3
        grow(directory, [entry(number) for number in range(3, 270)])
        assert tlog_client.verify(url)[0] == 270


def test_a_remote_ledger_is_read_like_a_directory(tmp_path: Path) -> None:
    directory = cosigned(make(tmp_path / "ledger", 300), tmp_path / "state", DG)
    export(directory, tmp_path / "site")
    with running(static(tmp_path / "site")) as url:
        client = Client(url)
        found = RemoteLedger(client)
        assert found.note().text == note_of(directory).text
        assert list(found.entries()) == [entry(number) for number in range(300)]
        assert found.witness_notes() == {}
        (tmp_path / "site/tile/entries/000").unlink()
        with pytest.raises(LedgerError, match="tile/entries/000: missing"):
            list(RemoteLedger(client).entries())
        (tmp_path / "site/tile/entries/000").write_bytes(bytes(2**25))
        with pytest.raises(LedgerError, match="expected at most"):
            list(RemoteLedger(client).entries())
        client.close()
