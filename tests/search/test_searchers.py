"""The contract of searchers, and searchers that break it."""

import time
from collections.abc import Collection, Sequence

import pytest

from explorer.search.effects import Effects
from explorer.search.random_search import RandomSearch
from explorer.search.searcher import Ranked, Searcher, Seen, Space, Trial
from explorer.search.searchers import DEFAULT, SEARCHERS
from explorer.search.tally import BASELINE, Tally
from explorer.search.tpe import TreeParzen
from tests.search.spaces import World, world


class Conformance:
    """Contract of searchers: each fact as a function that raises `AssertionError` for a searcher that breaks it."""

    def proposals(self, kind: type[Searcher], of: World) -> list[Seen]:
        """A search proposes what may be tried and was not, within the spend, and ends."""
        searcher, seen = kind(of.space, seed=1), list[Seen]()
        while (trial := searcher.next(seen)) is not None:
            assert trial.methods in of.space.recipes
            assert trial.budget in of.space.ladder and trial.seed in of.space.seeds
            assert trial not in [one.trial for one in seen]
            assert trial.methods not in {one.trial.methods for one in seen if one.quality is None}
            seen.append(of.seen(trial))
            assert Tally(of.space, seen).spent <= of.space.spend * (1 + 1e-9)
        assert len(seen) > 10
        return seen

    def pure(self, kind: type[Searcher], of: World) -> None:
        """Another instance continues from any prefix, and what an instance was asked before makes no difference."""
        seen = of.replay(kind(of.space, seed=1), most=30)
        asked = kind(of.space, seed=1)
        for place in (len(seen) - 1, 3, len(seen) // 2, 0):
            assert asked.next(seen[:place]) == kind(of.space, seed=1).next(seen[:place]) == seen[place].trial
        assert asked.ranking(seen) == kind(of.space, seed=1).ranking(seen)

    def pending(self, kind: type[Searcher], of: World) -> None:
        """A run that is being trained is not proposed again, and counts as spent."""
        searcher, seen = kind(of.space, seed=1), of.replay(kind(of.space, seed=1), most=12)
        running: set[Trial] = set()
        while (trial := searcher.next(seen, running)) is not None:
            assert trial not in running and trial not in {one.trial for one in seen}
            running.add(trial)
            assert Tally(of.space, seen, running).spent <= of.space.spend * (1 + 1e-9)

    def ranks(self, kind: type[Searcher], of: World) -> None:
        """Recipes that were tried are ranked once, best first, and one of the best comes first."""
        seen = of.replay(kind(of.space, seed=1))
        ranked = kind(of.space, seed=1).ranking(seen)
        tried = {one.trial.methods for one in seen} - {one.trial.methods for one in seen if one.quality is None}
        assert len(ranked) == len({one.methods for one in ranked}) and {one.methods for one in ranked} <= tried
        assert [one.regret for one in ranked] == sorted(one.regret for one in ranked)
        assert all(one.regret >= 0 for one in ranked) and ranked[0].seconds is not None
        assert ranked[0].methods in {frozenset("ce"), frozenset("ace"), frozenset("c"), frozenset("ac")}


FACTS = ("proposals", "pure", "pending", "ranks")
# Optuna is an extra, and a study is built again for every proposal.
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name == TreeParzen.name else name for name in sorted(SEARCHERS)]


@pytest.fixture(autouse=True)
def _extra(request: pytest.FixtureRequest) -> None:
    if getattr(request.node, "callspec", None) and request.node.callspec.params.get("name") == TreeParzen.name:
        pytest.importorskip("optuna", reason="needs the extra `search`")


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("name", NAMES)
def test_searchers_conform(name: str, fact: str) -> None:
    spend = 120.0 if name == "grid" else 40.0
    getattr(Conformance(), fact)(SEARCHERS[name], world(spend=spend, broken=[frozenset("abe")]))


@pytest.mark.parametrize("name", NAMES)
def test_up_to_so_many_methods(name: str) -> None:
    seen = Conformance().proposals(SEARCHERS[name], world("abcdefg", up_to=2, spend=25.0))
    assert max(len(one.trial.methods) for one in seen) == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_space_without_methods_ends(name: str) -> None:
    tiny = world("", spend=100.0)
    seen = tiny.replay(SEARCHERS[name](tiny.space))
    assert {one.trial.methods for one in seen} <= {BASELINE}
    assert [one.methods for one in SEARCHERS[name](tiny.space).ranking(seen)] == [BASELINE]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_proposed_without_money(name: str) -> None:
    poor = world(spend=0.05)
    assert SEARCHERS[name](poor.space).next([]) is None
    assert SEARCHERS[name](poor.space).ranking([]) == []


class Forgetful(RandomSearch):
    """A searcher that proposes the same run for ever."""

    def next(self, seen: Sequence[Seen], pending: Collection[Trial] = ()) -> Trial | None:
        return super().next([])


class Spendthrift(RandomSearch):
    """A searcher that looks at no price."""

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        super().__init__(world(spend=1e9).space, seed=seed)


class Remembering(RandomSearch):
    """A searcher that is no function of what was seen."""

    def next(self, seen: Sequence[Seen], pending: Collection[Trial] = ()) -> Trial | None:
        self.calls = getattr(self, "calls", 0) + 1
        trials = [trial for trial in self._trials(Tally(self.space, seen, pending)) if trial is not None]
        return trials[self.calls % 5] if len(trials) > 5 else None


class Upside(RandomSearch):
    """A searcher that ranks the worst first."""

    def ranking(self, seen: Sequence[Seen]) -> list[Ranked]:
        return super().ranking(seen)[::-1]


@pytest.mark.parametrize(
    ("kind", "fact"),
    [
        (Forgetful, "proposals"),
        (Spendthrift, "proposals"),
        (Spendthrift, "pending"),
        (Remembering, "pure"),
        (Upside, "ranks"),
    ],
)
def test_a_searcher_that_breaks_the_contract_is_noticed(kind: type[Searcher], fact: str) -> None:
    with pytest.raises(AssertionError):
        getattr(Conformance(), fact)(kind, world())


def test_the_default_is_in_the_table() -> None:
    assert DEFAULT in SEARCHERS and all(kind.name == name for name, kind in SEARCHERS.items())


@pytest.mark.slow
def test_a_proposal_is_quick_among_thousands_of_recipes() -> None:
    """One among 4,096 takes at most a second of a quiet processor; ten times as much is a fault, not a busy machine."""
    large = world("abcdefghijklm", up_to=6, spend=60.0)
    searcher = SEARCHERS[Effects.name](large.space)
    seen = large.replay(searcher, most=40)
    begun = time.process_time()
    assert searcher.next(seen) is not None
    assert time.process_time() - begun < 10
