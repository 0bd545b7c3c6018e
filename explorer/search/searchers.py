"""The table of searchers. A new one needs its file and a line here."""

from explorer.search.effects import Effects
from explorer.search.halving import Halving
from explorer.search.random_search import RandomSearch
from explorer.search.searcher import Searcher
from explorer.search.tpe import TreeParzen
from explorer.search.whole_grid import WholeGrid

SEARCHERS: dict[str, type[Searcher]] = {
    searcher.name: searcher
    for searcher in (
        Effects,
        Halving,
        RandomSearch,
        TreeParzen,
        WholeGrid,
    )
}
DEFAULT = Effects.name
