"""Base of the widgets with a script of their own: it hears the kernel however late the browser loads the script."""

from importlib.resources import files
from typing import Any
from uuid import uuid4

import anywidget
import traitlets


def script(name: str) -> str:
    """Return the module of a widget, with the function `listen` in it. It exports that as its `initialize`."""
    here = files("explorer.views")
    return "".join(here.joinpath(f"{part}.js").read_text(encoding="utf-8") for part in ("scripted", name))


class Scripted(anywidget.AnyWidget):
    """Widget whose `_esm` is a `script`. `own` is the identifier of its model, by which the script finds it."""

    own = traitlets.Unicode().tag(sync=True)

    def __init__(self, *arguments: Any, **traits: Any) -> None:
        own = uuid4().hex
        super().__init__(*arguments, model_id=own, own=own, **traits)
