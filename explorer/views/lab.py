"""JupyterLab of `explorer open`: it executes a notebook before the browser shows it, and saves what can be seen.

The cells run in the kernel session of the notebook's path, to which JupyterLab connects when it opens the notebook; it
asks that kernel for the widgets, as after a reload of the page. So the first thing on the screen is the live picture.

A saved widget is only an identifier, which means nothing without its kernel. So a file holds pictures and tables in the
place of widgets, and a browser gets the widgets back as long as the kernel that made them lives.
"""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from logging import LogRecord
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import KernelManager
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from jupyter_server.utils import url_path_join
from jupyterlab.labapp import LabApp
from jupyterlab_server.workspaces_handler import WorkspacesManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from tornado.web import HTTPError

from explorer.errors import ExplorerError

WIDGET = "application/vnd.jupyter.widget-view+json"
MODEL = re.compile(r"[0-9a-f]{32}")
PATIENCE = 10.0  # seconds for a kernel to draw its stills; a busy one keeps the last ones
WIDTH = 800  # pixels on the screen: a picture has more, for dense screens
LOST = "<p>This was a live view. <code>explorer open</code> shows it again.</p>"
QUIET = (  # what asks a new user questions, or asks the network for news
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
    "--Application.log_level=ERROR",
    "--ServerApp.open_browser=False",
)
# DuckDB's binding counts what it still holds when the kernel ends, on a terminal that shows its prompt already.
END_QUIETLY = "__import__('atexit').register(lambda os: os.dup2(os.open(os.devnull, os.O_WRONLY), 2), __import__('os'))"
LAYOUT = {  # only the notebook: side bars are closed, and a click on their icons opens them
    "layout-restorer:data": {
        "main": {"dock": None},
        "left": {"collapsed": True, "visible": True},
        "right": {"collapsed": True, "visible": True},
        "relativeSizes": [0, 1, 0],
        "top": {"simpleVisibility": True},
    }
}
NO_NEWS = "@jupyterlab/apputils-extension:announcements"


class LiveContents(AsyncLargeFileManager):
    """Files on disk hold stills; a browser gets the widgets that they stand for, while their kernel lives."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._live: dict[str, tuple[list[Any], list[Any], object]] = {}  # cell: its stills, its outputs, the kernel
        self._saving = asyncio.Lock()

    async def save(self, model: dict[str, Any], path: str = "") -> dict[str, Any]:
        """Save a file; a notebook with stills in the place of widgets."""
        if model.get("type") != "notebook" or not model.get("content"):
            return await super().save(model, path)
        async with self._saving:
            content = json.loads(json.dumps(model["content"]))
            await self._still(content, path.strip("/"))
            return await super().save({**model, "content": content}, path)

    async def get(self, path: str, content: bool = True, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Return a file; a notebook with the widgets of its kernel, if that lives."""
        if not content:
            return await super().get(path, content, *arguments, **options)
        async with self._saving:  # the browser opens while the first stills are drawn
            model = await super().get(path, content, *arguments, **options)
        if model["type"] == "notebook":
            kernel = _incarnation(await self._kernel(path.strip("/")))
            for cell in model["content"]["cells"]:
                stills, outputs, made_by = self._live.get(cell.get("id", ""), ([], [], None))
                if kernel is not None and kernel == made_by and _plain(cell.get("outputs")) == _plain(stills):
                    cell["outputs"] = type(model["content"])(outputs=outputs)["outputs"]
        return model

    async def _still(self, notebook: dict[str, Any], path: str) -> None:
        """Put stills in the place of the widgets of a notebook."""
        cells = [cell for cell in notebook["cells"] if any(_widget(output) for output in cell.get("outputs", ()))]
        if not cells:
            return
        kernel = await self._kernel(path)
        widgets = [_widget(output) for cell in cells for output in cell["outputs"]]
        drawn = await _ask(kernel, [model for model in widgets if model])
        for cell in cells:
            outputs = cell["outputs"]
            before, replaced, _ = self._live.get(cell["id"], ([], [], None))
            stills: list[Any] = []
            for output in outputs:
                model = _widget(output)
                if model is None:
                    stills.append(output)
                elif drawn.get(model):
                    stills += [_display(part) for part in drawn[model]]
                elif outputs == replaced:
                    stills = list(before)  # the kernel is busy: what was drawn last
                    break
                else:
                    stills.append(_display({"text/html": LOST}))
            self._live[cell["id"]] = (stills, outputs, _incarnation(kernel))
            cell["outputs"] = stills

    async def _kernel(self, path: str) -> Any:
        """Return the manager of the kernel of a notebook, or None."""
        server: Any = self.parent
        try:
            session = await server.session_manager.get_session(path=path)
            return server.kernel_manager.get_kernel(session["kernel"]["id"])
        except (HTTPError, KeyError):
            return None


def _widget(output: dict[str, Any]) -> str | None:
    """Return the model of the widget in an output. An identifier that is none is no widget: it would be executed."""
    model = output.get("data", {}).get(WIDGET, {}).get("model_id")
    return model if isinstance(model, str) and MODEL.fullmatch(model) else None


def _display(part: dict[str, str]) -> dict[str, Any]:
    size = {"image/png": {"width": WIDTH}} if "image/png" in part else {}
    return {"output_type": "display_data", "metadata": size, "data": part}


def _plain(outputs: Any) -> list[Any]:
    """Return outputs for comparing: texts may be split into lines on disk."""
    return [
        {kind: "".join(value) if isinstance(value, list) else value for kind, value in output.get("data", {}).items()}
        for output in outputs or ()
    ]


def _incarnation(kernel: Any) -> object:
    """Return what changes when a kernel is restarted, which takes its widgets."""
    return None if kernel is None else (kernel.kernel_id, getattr(kernel.provisioner, "pid", None))


async def _ask(kernel: Any, models: list[str]) -> dict[str, Any]:
    """Return the stills of widgets from the kernel that holds them; none from a kernel that is busy or gone."""
    if kernel is None or not models:
        return {}
    client = kernel.client()
    client.start_channels()
    try:
        asked = f"__import__('explorer.views.still', fromlist=['stills']).stills({models!r})"
        reply = await client.execute(
            "", silent=True, user_expressions={"stills": asked}, reply=True, timeout=PATIENCE, store_history=False
        )
        return (
            reply["content"].get("user_expressions", {}).get("stills", {}).get("data", {}).get("application/json", {})
        )
    except TimeoutError:
        return {}
    finally:
        client.stop_channels()


def serve(notebook: Path, *, root: Path, reading: str, browser: bool, trusted: bool, arguments: Sequence[str]) -> None:
    """Serve `root`, execute the notebook and open it, until the server is stopped.

    Args:
        notebook: the notebook, below `root`.
        root: the directory that the server shows.
        reading: what is read meanwhile, for the terminal.
        browser: open a browser; otherwise the address is printed.
        trusted: the cells are as shipped: they are executed, even from an untrusted file.
        arguments: arguments for Jupyter.

    Raises `ExplorerError` if Jupyter refuses to run here.
    """
    if hasattr(os, "geteuid") and os.geteuid() == 0 and "--allow-root" not in arguments:
        raise ExplorerError("Jupyter refuses to run as root: add -- --allow-root")
    own = [f"--ServerApp.root_dir={root}", "--ServerApp.contents_manager_class=explorer.views.lab.LiveContents"]
    if hasattr(KernelManager, "transport_encryption"):  # since jupyter-client 8.9; without it kernels warn
        own.append("--KernelManager.transport_encryption=auto")
    with tempfile.TemporaryDirectory() as workspaces:
        WorkspacesManager(workspaces).save("default", json.dumps({"data": LAYOUT, "metadata": {"id": "default"}}))
        own.append(f"--LabApp.workspaces_dir={workspaces}")
        server = LabApp.initialize_server(argv=[*QUIET, *own, *arguments, str(notebook)])
        server.web_app.settings["page_config_hook"] = _without_questions
        server.log.addFilter(_our_words)
        loop: Any = server.io_loop.asyncio_loop  # pyright: ignore[reportAttributeAccessIssue]: tornado wraps it
        opening = loop.create_task(_open(server, notebook, root, reading, browser, trusted))
        opening.add_done_callback(lambda task: server.stop() if not task.cancelled() and task.exception() else None)

        def stop(*_: object) -> None:
            # Cells that are executed hold channels to their kernel, which would keep this process from ending.
            loop.call_soon_threadsafe(opening.cancel)
            server.stop(from_signal=True)

        # Jupyter's own handler asks whether to stop, and ends without ending its kernels where there is no terminal.
        signal.signal(signal.SIGINT, stop)
        server.start()
        opening.cancel()
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(opening)


def _without_questions(_: object, page: dict[str, Any]) -> dict[str, Any]:
    """Leave out the part of JupyterLab that asks a new user whether it may fetch news."""
    page["disabledExtensions"] = [*page.get("disabledExtensions", ()), NO_NEWS]
    return page


def _our_words(record: LogRecord) -> bool:
    """Leave out the addresses that Jupyter logs: they are printed, with the notebook."""
    return "To access the server" not in record.getMessage()


async def _open(server: ServerApp, notebook: Path, root: Path, reading: str, browser: bool, trusted: bool) -> None:
    path = notebook.relative_to(root).as_posix()
    contents: Any = server.contents_manager
    model = await contents.get(path, type="notebook")
    filled = model["content"]
    if trusted or contents.notary.check_signature(filled):
        print(reading, flush=True)
        for trouble in await _execute(server, filled, path):
            print(trouble, file=sys.stderr, flush=True)
        contents.notary.mark_cells(filled, True)
        saving = asyncio.ensure_future(contents.save({"type": "notebook", "format": "json", "content": filled}, path))
        await asyncio.sleep(0)  # it holds the lock from here: a browser waits for it
    else:
        print(f"{path} was changed elsewhere: read it, then choose Run > Run All Cells", flush=True)
        saving = None
    token = server.identity_provider.token
    address = url_path_join(server.connection_url, "lab", "tree", path) + (f"?token={token}" if token else "")
    shown = browser and _has_browser()
    print(address, *([] if shown else _tunnel(server)), "Ctrl-C ends the server and its kernels.", sep="\n", flush=True)
    if shown:
        server.launch_browser()
    if saving is not None:
        await saving


async def _execute(server: ServerApp, notebook: Any, path: str) -> list[str]:
    """Execute the cells in the session that JupyterLab will connect to. Return what went wrong, in words."""
    name = notebook.metadata.get("kernelspec", {}).get("name", "python3")
    try:
        session = await server.session_manager.create_session(
            path=path, name=Path(path).name, type="notebook", kernel_name=name
        )
        kernel = server.kernel_manager.get_kernel(session["kernel"]["id"])
        client = NotebookClient(notebook, km=kernel, timeout=None, record_timing=False)
        channels: Any = kernel.client()
        client.kc = channels
        channels.start_channels()
        await channels.wait_for_ready(timeout=120)
        channels.execute(END_QUIETLY, silent=True)
        try:
            for index, cell in enumerate(notebook.cells):
                await client.async_execute_cell(cell, index)
        finally:
            channels.stop_channels()
    except CellExecutionError as error:
        return [f"a cell of {path} failed: {error.ename}: {error.evalue}"]
    except (DeadKernelError, NoSuchKernel, RuntimeError, HTTPError) as error:
        return [f"the kernel of {path} failed: {error}"]
    return []


def _has_browser() -> bool:
    """Return whether there is a browser with a window: text browsers, as on servers, cannot show a notebook."""
    if sys.platform not in ("darwin", "win32") and not {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & os.environ.keys():
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _tunnel(server: ServerApp) -> list[str]:
    """Return how to open the address from another machine."""
    if server.ip not in ("localhost", "127.0.0.1", "::1"):
        return []
    port = server.port
    return [
        f"From another machine: ssh -L {port}:localhost:{port} {socket.gethostname()}, then open the address there."
    ]
