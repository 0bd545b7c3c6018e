"""Every method that a recipe can name: those that train, and those that act on signed documents."""

from explorer import governance, methods
from explorer.engine.method import Method

GOVERNED = frozenset(governance.METHODS)  # these need `governance: DIR`

METHODS: dict[str, type[Method]] = methods.METHODS | governance.METHODS
