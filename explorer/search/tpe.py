"""Optuna's TPE with its Hyperband pruner, over the fixed ladder: what most would use today. Needs the extra `search`.

A trial of Optuna's is a recipe on one seed. It reports its pace at every budget of the ladder, and Hyperband says
whether it is raised to the next; every budget is a run of its own, whose schedule ends there. The study is a function
of what was seen, reported run by run; a recipe is asked for as TPE would sample its parameters, one by one.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from explorer.search.optuna_sampler import import_optuna
from explorer.search.random_search import shuffled
from explorer.search.searcher import Methods, Ranked, Searcher, Seen, Space, Trial
from explorer.search.tally import BASELINE, REPEATS, Tally, first

ASKED = 6  # times for a recipe that can be built and is left to try
STUDY = "search"  # Hyperband draws brackets by this name


class TreeParzen(Searcher):
    """TPE over methods that are on or off, with Hyperband."""

    name = "tpe"

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        """Raises `SweepError` where Optuna is not installed."""
        super().__init__(space, seed=seed)
        self._optuna = import_optuna("search: searcher 'tpe'")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        self._choices = {
            name: self._optuna.distributions.CategoricalDistribution([False, True]) for name in space.methods
        }
        self._recipes = frozenset(space.recipes)
        self._last: _Told | None = None
        # Resources as multiples of the shortest budget, since Hyperband takes whole numbers.
        self._resources = [max(1, round(budget / space.ladder[0])) for budget in space.ladder]

    def next(self, seen: Sequence[Seen], pending: Collection[Trial] = ()) -> Trial | None:
        tally = Tally(self.space, seen, pending)
        begin = first(tally.trial(BASELINE, budget, repeats=REPEATS) for budget in reversed(self.space.ladder))
        if begin is not None or not self.space.methods:
            return begin
        told = self._told(tuple(seen), tally)
        raised = [trial for trial in told.raised.values() if trial is not None and self._possible(trial, tally)]
        return raised[0] if raised else self._asked(told.study, tally)

    def ranking(self, seen: Sequence[Seen]) -> list[Ranked]:
        return Tally(self.space, seen).ranking()

    def _possible(self, trial: Trial, tally: Tally) -> bool:
        failed = trial.methods in tally.failed
        return trial not in tally.taken and not failed and tally.affords(trial.methods, trial.budget)

    def _told(self, seen: tuple[Seen, ...], tally: Tally) -> "_Told":
        """Return the study after these runs. The last one is continued if they begin with its own, judged alike: that
        saves time and changes nothing."""
        curve = tuple(tally.mean(BASELINE, budget) for budget in self.space.ladder)
        told = self._last
        if told is None or told.curve != curve or told.seen != seen[: len(told.seen)]:
            study = self._optuna.create_study(
                study_name=STUDY,
                pruner=self._optuna.pruners.HyperbandPruner(min_resource=1, max_resource=self._resources[-1]),
            )
            told = _Told(curve=curve, study=study)
        for one in seen[len(told.seen) :]:
            if one.trial.methods != BASELINE:
                self._tell(told, one, tally)
        told.seen = seen
        self._last = told
        return told

    def _tell(self, told: "_Told", one: Seen, tally: Tally) -> None:
        """Report a run, and note the next budget of its trial if Hyperband raises it."""
        (methods, budget, seed), state = one.trial, self._optuna.trial.TrialState
        stop = self.space.ladder.index(budget)
        if (methods, seed) not in told.trials:
            fresh = self._optuna.trial.create_trial(
                state=state.RUNNING,
                params={name: name in methods for name in self.space.methods},
                distributions=self._choices,
            )
            told.study.add_trial(fresh)
            number = told.study.get_trials(deepcopy=False)[-1]._trial_id
            told.trials[methods, seed] = self._optuna.trial.Trial(told.study, number)
        trial, pace = told.trials[methods, seed], None
        if one.quality is not None:
            pace = tally.pace(methods, budget, one.quality)
        told.raised[methods, seed] = None
        if pace is None:
            told.study.tell(trial, state=state.FAIL, skip_if_finished=True)
            return
        trial.report(float(np.log(pace)), self._resources[stop])
        if stop == len(self.space.ladder) - 1:
            told.study.tell(trial, float(np.log(pace)), skip_if_finished=True)
        elif trial.should_prune():
            told.study.tell(trial, state=state.PRUNED, skip_if_finished=True)
        else:
            told.raised[methods, seed] = Trial(methods, self.space.ladder[stop + 1], seed)

    def _asked(self, study: Any, tally: Tally) -> Trial | None:
        """Return the first run of the recipe that TPE asks for; of a random one where its wishes cannot be built, cost
        too much or are all done."""
        sampler = self._optuna.samplers.TPESampler(seed=self.seed * 100_003 + len(tally.taken))
        blank = self._optuna.trial.create_trial(state=self._optuna.trial.TrialState.RUNNING)
        for _ in range(ASKED):
            wish = {
                name: sampler.sample_independent(study, blank, name, choice) for name, choice in self._choices.items()
            }
            methods = frozenset(name for name, on in wish.items() if on)
            if methods in self._recipes and methods != BASELINE:
                trial = tally.trial(methods, self.space.ladder[0])
                if trial is not None:
                    return trial
        order = shuffled(self.space, self.seed)
        return first(tally.trial(methods, budget) for budget in self.space.ladder for methods in order)


@dataclass(kw_only=True)
class _Told:
    """A study, and what it was told."""

    curve: tuple[float | None, ...]  # of the baseline, by which paces are judged
    study: Any
    seen: tuple[Seen, ...] = ()
    trials: dict[tuple[Methods, int], Any] = field(default_factory=dict)
    raised: dict[tuple[Methods, int], Trial | None] = field(default_factory=dict)
