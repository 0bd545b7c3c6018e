"""HTML whose elements answer: a table with check boxes, a line with buttons.

The HTML is made by `explorer.page.html`, which escapes every text from outside. Its elements say what they report, as
`live.js` lists: a press, a change of a check box, a hover. Anything else in it is shown and does nothing.
"""

import re
from collections.abc import Callable
from typing import Any

import traitlets

from explorer.page.html import Markup
from explorer.views.scripted import Scripted, script

# The HTML is ours: in it a ">" of a name is written as an entity.
CONTROLS = re.compile(r"</?button\b[^>]*>|<input\b[^>]*>")
LONGEST = 1000  # characters of a name or key; a page that sends more is not ours


class Live(Scripted):
    """HTML that reports what happens to its elements: `on_event` is called with event, name, key and `checked`."""

    _esm = script("live")
    html = traitlets.Unicode().tag(sync=True)

    def __init__(self, on_event: Callable[[str, str, str, bool], None]) -> None:
        self._on_event = on_event
        super().__init__()
        self.on_msg(lambda _, content, __: self.hear(content))

    def show(self, shown: Markup) -> None:
        """Show HTML in the place of what was shown."""
        self.html = str(shown)

    def static(self) -> Markup:
        """Return what is shown for a place where nothing answers: without buttons and fields."""
        return Markup(CONTROLS.sub("", self.html))

    def hear(self, content: Any) -> None:
        """Pass on a message of the browser; one of another form is ignored, because any page could send it."""
        if not isinstance(content, dict):
            return
        event, name, key = (str(content.get(part, ""))[:LONGEST] for part in ("event", "name", "key"))
        self._on_event(event, name, key, content.get("checked") is True)
