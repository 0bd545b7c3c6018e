"""Governed training: methods that act in the loop on what signed documents say, and what they share.

    documents, credentials   what a run was given, and whether it is believed
    session                  what the methods of a run share

A new method is its file and a line in this table.
"""

from explorer.engine.method import Method

_ALL: tuple[type[Method], ...] = ()

METHODS: dict[str, type[Method]] = {method.name: method for method in _ALL}
