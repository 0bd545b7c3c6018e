"""JupyterLab and Chromium for the browser tests: both local, and nothing is let out of the machine."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Locator, Page, Request, Route, ViewportSize

CHROMIUM = os.environ.get("EXPLORER_CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
VIEWPORT: ViewportSize = {"width": 1400, "height": 900}
LOCAL = {"127.0.0.1", ""}  # "" is what `data:` and `blob:` addresses have for a host

CONFIGURATION = """
from jupyterlab.galata import configure_jupyter_server

configure_jupyter_server(c)
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.port = {port}
c.ServerApp.root_dir = {root!r}
c.LabApp.extension_manager = "readonly"
"""

# Cells that are run before the kernel is connected raise a dialog instead.
READY = """async () => {
    const panel = window.jupyterapp.shell.currentWidget;
    await panel.context.ready;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
}"""


class Fence:
    """Aborts every request that would leave the machine, and remembers it."""

    def __init__(self, context: BrowserContext) -> None:
        self.blocked: list[str] = []
        context.route("**/*", self._judge)

    def _judge(self, route: Route, request: Request) -> None:
        if (urlsplit(request.url).hostname or "") in LOCAL or request.url.startswith("file:"):
            route.continue_()
        else:
            self.blocked.append(request.url)
            route.abort()


@contextmanager
def jupyterlab(root: Path, *, workspace: Path) -> Iterator[str]:
    """Serve `root` with JupyterLab and yield its address. Settings and logs are kept in `workspace`."""
    port = free_port()
    configuration = workspace / "jupyter_config.py"
    configuration.write_text(CONFIGURATION.format(port=port, root=str(root)))
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(workspace / "config"),
        "JUPYTER_DATA_DIR": str(workspace / "data"),
        "JUPYTER_RUNTIME_DIR": str(workspace / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(workspace / "settings"),
        "IPYTHONDIR": str(workspace / "ipython"),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "jupyterlab", f"--config={configuration}", "--allow-root"]
    _silence(workspace / "settings")
    with (workspace / "jupyter.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=root, stdout=log, stderr=subprocess.STDOUT)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(address, process=process, log=workspace / "jupyter.log")
            yield address
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and its kernels. It waits for a kernel that starts, without an end if that kernel never answers."""
    kernels = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for kernel in kernels:
        with suppress(psutil.NoSuchProcess):
            kernel.kill()


def open_notebook(page: Page, address: str, name: str) -> None:
    """Open a notebook in a fresh workspace, hide the side bar and run all its cells."""
    page.goto(f"{address}/lab/tree/{name}?reset", wait_until="domcontentloaded")
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=600_000)
    page.evaluate(READY)
    page.evaluate("() => { window.jupyterapp.commands.execute('application:toggle-left-area') }")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")


def _silence(settings: Path) -> None:
    """No question about news, no look for updates."""
    file = settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _wait_for(address: str, *, process: subprocess.Popen[bytes], log: Path, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{address}/api/status", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


def drag(page: Page, target: Locator, *, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag over `target` between two points, each given as fractions of its width and height."""
    box = target.bounding_box()
    assert box is not None, "the target is not on the page"
    page.mouse.move(box["x"] + start[0] * box["width"], box["y"] + start[1] * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + end[0] * box["width"], box["y"] + end[1] * box["height"], steps=8)
    page.mouse.up()
    page.wait_for_timeout(1000)  # the brush is sent once the mouse rests


def becomes(page: Page, ask: Callable[[], object], expected: object, *, seconds: float = 600) -> None:
    """Wait until `ask` gives the expected value, while events of the page arrive."""
    deadline = time.monotonic() + seconds
    while ask() != expected and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    assert ask() == expected


def scroll_to(page: Page, selector: str) -> None:
    """Bring an element to the top of the notebook, and wait until the notebook has settled there."""
    page.locator(selector).first.evaluate("element => element.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(1000)


def theme(page: Page, name: str) -> None:
    """Switch JupyterLab to its theme of that name: "Light" or "Dark"."""
    page.evaluate(
        f"() => {{ window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {name}'}}) }}"
    )
    page.wait_for_selector(f'body[data-jp-theme-light="{str(name == "Light").lower()}"]', state="attached")
    page.wait_for_timeout(1000)  # the setting is saved after a moment


def faults(page: Page, within: str) -> list[str]:
    """The serious faults that axe finds in a part of the page: which rule, and where."""
    # Vega draws the rectangle of a brush, and gives no way to describe it; a list beside the chart says what is in it.
    context = {"include": [[within]], "exclude": [[".brush_brush_bg"], [".brush_brush"]]}
    found = Axe().run(page, context=context).response["violations"]
    return [
        f"{each['id']}: {node['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def overflow(page: Page, within: str) -> int:
    """By how many pixels something sticks out of an element to the right."""
    return page.locator(within).first.evaluate("element => element.scrollWidth - element.clientWidth")


CUT = """within => {
    const pen = document.createElement("canvas").getContext("2d");
    function wide(text, style) {
        pen.font = style.font;
        return pen.measureText(text).width + parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
    }
    // Whether something around a table or a button ends before it does. What scrolls and is reached by Tab is meant to.
    function isHidden(part) {
        let right = part.getBoundingClientRect().right;
        for (let around = part.parentElement; around; around = around.parentElement) {
            const how = getComputedStyle(around).overflowX, box = around.getBoundingClientRect();
            if (how === "visible" && around !== document.documentElement) continue;
            const scrolls = ["auto", "scroll"].includes(how) && around.tabIndex >= 0;
            if (!scrolls && right > box.left + around.clientLeft + around.clientWidth + 1) return true;
            right = Math.min(right, box.right);
        }
        return false;
    }
    function isCut(part) {
        const style = getComputedStyle(part), box = part.getBoundingClientRect();
        if (!box.width || !box.height || part.closest("svg, .x-unseen")) return false;
        if (part.matches("table, button") && isHidden(part)) return true;
        if (part.multiple) return [...part.options].some(o => wide(o.text, style) > box.width);
        if (part.matches("select")) return wide(part.selectedOptions[0]?.text ?? "", style) > part.clientWidth;
        if (part.matches("input[type=text], input[type=search]")) {
            return wide(part.value || part.placeholder, style) > part.clientWidth;
        }
        const words = [...part.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
        return words && ["hidden", "clip"].includes(style.overflowX) && part.scrollWidth > part.clientWidth + 1;
    }
    return [...document.querySelector(within).querySelectorAll("*")].filter(isCut).map(part =>
        `<${part.tagName.toLowerCase()} class="${part.className}">: ` +
        (part.selectedOptions?.[0]?.text ?? (part.value || part.placeholder || part.textContent)).slice(0, 80));
}"""


def cut(page: Page, within: str = ".explorer") -> list[str]:
    """The texts, fields, choices, buttons and tables below an element that are wider than their place, so cut off."""
    return page.evaluate(CUT, within)
