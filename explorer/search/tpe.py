"""Optuna's TPE with its Hyperband pruner, over the fixed ladder: what most would use today. Needs the extra `search`.

A trial of Optuna's is a recipe on one seed. It reports its pace at every budget of the ladder, and Hyperband says
whether it is raised to the next; every budget is a run of its own, whose schedule ends there. The study is built again
from what was seen, event by event, since a searcher keeps nothing.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from explorer.errors import SweepError
from explorer.search.random_search import shuffled
from explorer.search.searcher import Methods, Ranked, Searcher, Seen, Space, Trial
from explorer.search.tally import BASELINE, REPEATS, Tally, first

ASKED = 20  # times for a recipe that can be built and is left to try
STUDY = "search"  # Hyperband draws brackets by this name


class TreeParzen(Searcher):
    """TPE over methods that are on or off, with Hyperband."""

    name = "tpe"

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        """Raises `SweepError` where Optuna is not installed."""
        super().__init__(space, seed=seed)
        self._optuna = _optuna()
        self._choices = {
            name: self._optuna.distributions.CategoricalDistribution([False, True]) for name in space.methods
        }
        self._recipes = frozenset(space.recipes)
        # Resources as multiples of the shortest budget, since Hyperband takes whole numbers.
        self._resources = [max(1, round(budget / space.ladder[0])) for budget in space.ladder]

    def next(self, seen: Sequence[Seen], pending: Collection[Trial] = ()) -> Trial | None:
        tally = Tally(self.space, seen, pending)
        begin = first(tally.trial(BASELINE, budget, repeats=REPEATS) for budget in reversed(self.space.ladder))
        if begin is not None or not self.space.methods:
            return begin
        study = self._optuna.create_study(
            study_name=STUDY,
            sampler=self._optuna.samplers.TPESampler(seed=self.seed * 100_003 + len(tally.taken)),
            pruner=self._optuna.pruners.HyperbandPruner(min_resource=1, max_resource=self._resources[-1]),
        )
        raised = next(iter(self._told(study, seen, pending, tally)), None)
        return self._asked(study, tally) if raised is None else raised

    def ranking(self, seen: Sequence[Seen]) -> list[Ranked]:
        return Tally(self.space, seen).ranking()

    def _told(self, study: Any, seen: Sequence[Seen], pending: Collection[Trial], tally: Tally) -> list[Trial]:
        """Report every run to the study, and return the runs to which Hyperband raises trials."""
        trials: dict[tuple[Methods, int], Any] = {}
        state = self._optuna.trial.TrialState
        raised: dict[tuple[Methods, int], Trial | None] = {}
        for (methods, budget, seed), quality in seen:
            if methods == BASELINE:
                continue
            key = (methods, seed)
            if key not in trials:
                study.enqueue_trial({name: name in methods for name in self.space.methods})
                trials[key] = study.ask(self._choices)
            stop, pace = self.space.ladder.index(budget), None
            if quality is not None:
                pace = tally.pace(methods, budget, quality)
            if pace is None:
                raised[key] = None
                study.tell(trials[key], state=state.FAIL, skip_if_finished=True)
                continue
            trials[key].report(float(np.log(pace)), self._resources[stop])
            pruned = trials[key].should_prune()
            raised[key] = None
            if stop == len(self.space.ladder) - 1:
                study.tell(trials[key], float(np.log(pace)), skip_if_finished=True)
            elif pruned:
                study.tell(trials[key], state=state.PRUNED, skip_if_finished=True)
            else:
                raised[key] = Trial(methods, self.space.ladder[stop + 1], seed)
        for methods, _, seed in sorted(pending, key=lambda trial: (sorted(trial.methods), *trial[1:])):
            if methods != BASELINE and (methods, seed) not in trials:
                study.enqueue_trial({name: name in methods for name in self.space.methods})
                trials[methods, seed] = study.ask(self._choices)
        return [
            trial
            for trial in raised.values()
            if trial is not None
            and trial not in tally.taken
            and trial.methods not in tally.failed
            and tally.affords(trial.methods, trial.budget)
        ]

    def _asked(self, study: Any, tally: Tally) -> Trial | None:
        """Return the first run of the recipe that TPE asks for; of a random one where its wishes cannot be built, cost
        too much or are all done."""
        for _ in range(ASKED):
            wish = study.ask(self._choices)
            methods = frozenset(name for name in self.space.methods if wish.params[name])
            study.tell(wish, state=self._optuna.trial.TrialState.FAIL)  # so that it counts for nothing
            if methods in self._recipes and methods != BASELINE:
                trial = tally.trial(methods, self.space.ladder[0])
                if trial is not None:
                    return trial
        order = shuffled(self.space, self.seed)
        return first(tally.trial(methods, budget) for budget in self.space.ladder for methods in order)


def _optuna() -> Any:
    try:
        import optuna  # an extra
    except ImportError as error:
        raise SweepError(
            "search: searcher 'tpe' needs optuna, which is not installed: pip install 'explorer[search]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
