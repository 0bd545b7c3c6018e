"""A search by effects: methods are parts, so that a run of one recipe tells something of all others.

Quality is a surface with main effects, pairs and budgets (surface.py); times are known before anything is trained. Both
together give draws of the time that each recipe needs to reach the baseline's quality. The next run is the one that
lowers the expected loss of the final choice most for each second (the knowledge gradient of Frazier et al. 2009, over
one to several repeats of a run, since a single noisy one seldom changes a decision).
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from explorer.analysis.monotone import crossing, monotone
from explorer.search.random_search import shuffled
from explorer.search.searcher import Methods, Ranked, Searcher, Seen, Space, Trial
from explorer.search.surface import Cells, Surface, Terms
from explorer.search.tally import BASELINE, Tally, first

DRAWS = 128
MANY = 1000  # recipes, beyond which there are fewer draws
CONTENDERS = 48  # recipes that are considered for the next run
REPEATS = (1, 2, 4, 8)  # runs of a cell together, whose worth is shared out among them
NODES = ndtri((np.arange(31) + 0.5) / 31)  # of the standard normal distribution, equally likely
HOPEFUL = 0.15  # quantile of a recipe's time by which contenders are chosen
OPENING = 2  # recipes, the baseline apart, that are run before a surface is fitted
SETTLED = 1e-3  # of expected regret: less is not worth a run


class Outlook(NamedTuple):
    """The times that all recipes are expected to need, as the search sees them."""

    surface: Surface
    draws_SRB: np.ndarray  # of quality
    loss_SR: np.ndarray  # seconds to the target; those of training in vain where a draw does not reach it
    reached_SR: np.ndarray

    @property
    def regret_R(self) -> np.ndarray:
        """Return the expected share of time lost by choosing a recipe."""
        return (self.loss_SR / self.loss_SR.min(axis=1, keepdims=True)).mean(axis=0) - 1


class Effects(Searcher):
    """Search by main effects, pairs and budgets."""

    name = "effects"

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        super().__init__(space, seed=seed)
        self._terms = Terms(space)
        self._times_RB = np.array(
            [[space.seconds(methods, budget) for budget in space.ladder] for methods in space.recipes]
        )
        self._order = shuffled(space, seed)

    def next(self, seen: Sequence[Seen], pending: Collection[Trial] = ()) -> Trial | None:
        tally = Tally(self.space, seen, pending)
        opening = first(self._opening(tally))
        if opening is not None or not self._enough(tally):
            return opening
        outlook = self._outlook(seen, tally, pending)
        if outlook.regret_R.min() < SETTLED:
            return None
        return first(self._most_telling(outlook, tally)) or first(self._hopeful(outlook, tally))

    def ranking(self, seen: Sequence[Seen]) -> list[Ranked]:
        tally = Tally(self.space, seen)
        if not self._enough(tally):
            return tally.ranking()
        outlook = self._outlook(seen, tally, ())
        regret_R, reached_R = outlook.regret_R, outlook.reached_SR.mean(axis=0)
        order = sorted((self._terms.places[methods] for methods in tally.qualities), key=lambda place: regret_R[place])
        return [
            Ranked(
                methods=self.space.recipes[place],
                seconds=float(np.median(outlook.loss_SR[:, place])) if reached_R[place] >= 0.5 else None,
                regret=max(0.0, float(regret_R[place])),
            )
            for place in order
        ]

    def _opening(self, tally: Tally) -> Iterator[Trial | None]:
        """Yield the first runs: the baseline's ladder, then the longest of a random recipe and of that most unlike it.

        Between these two every method is on once and off once. A method that both have would look as good as they are,
        and recipes without it would hardly be tried.
        """
        ladder, order = self.space.ladder, [methods for methods in self._order if methods not in tally.failed]
        begin = order[:1] and [order[0], max(order, key=lambda methods: len(methods ^ order[0]))]
        cells = [(BASELINE, budget) for budget in reversed(ladder)]
        cells += [(methods, ladder[-1]) for methods in begin]
        tried = {trial[:2] for trial in tally.taken}
        yield from (tally.trial(*cell) for cell in cells if cell not in tried)

    def _enough(self, tally: Tally) -> bool:
        """Return whether a surface can be fitted: the baseline and others were run at the longest budget. With fewer
        runs the effects at that budget are a guess, and the baseline is the better answer."""
        top = self.space.ladder[-1]
        longest = sum(top in budgets for budgets in tally.qualities.values())
        others = len(self._order) - len(tally.failed - {BASELINE})
        return tally.mean(BASELINE, top) is not None and longest > min(OPENING, others)

    def _outlook(self, seen: Sequence[Seen], tally: Tally, pending: Collection[Trial]) -> Outlook:
        usable = [one for one in seen if one.trial.methods not in tally.failed]
        surface = Surface(self._terms, usable)
        if pending:
            # Runs under way are taken to show what is expected of them: their cells are then less worth a run.
            waiting = sorted(trial for trial in pending if trial.methods not in tally.failed)
            means = surface.mean(self._cells([trial[:2] for trial in waiting]))
            usable += [Seen(trial, float(mean)) for trial, mean in zip(waiting, means, strict=True)]
            surface = Surface(self._terms, usable)
        rng = np.random.default_rng([self.seed, len(usable)])
        recipes, stops = self._times_RB.shape
        draws_SRB = surface.draws(DRAWS if recipes <= MANY else DRAWS // 4, rng)
        count = len(draws_SRB)
        fixed = self.space.target
        target_S = draws_SRB[:, self._terms.places[BASELINE], -1] if fixed is None else np.full(count, fixed)
        met = crossing(
            np.broadcast_to(self._times_RB, draws_SRB.shape).reshape(-1, stops),
            monotone(draws_SRB.reshape(-1, stops)),
            np.repeat(target_S, recipes),
        )
        shortest_SR = np.broadcast_to(self._times_RB[:, 0], (count, recipes))
        loss_SR = np.where(met.below_R.reshape(count, recipes), shortest_SR, met.x_R.reshape(count, recipes))
        base = self._terms.places[BASELINE]
        loss_SR[:, base] = self._times_RB[base, -1]  # by definition, whatever its curve
        loss_SR[:, [self._terms.places[methods] for methods in tally.failed if methods != BASELINE]] = np.nan
        reached_SR = np.isfinite(loss_SR)
        in_vain_R = self._times_RB[:, -1] + self._times_RB[base, -1]
        return Outlook(surface, draws_SRB, np.where(reached_SR, loss_SR, in_vain_R), reached_SR)

    def _cells(self, cells: Sequence[tuple[Methods, float]]) -> Cells:
        return Cells(
            np.array([self._terms.places[methods] for methods, _ in cells], dtype=int),
            np.array([self.space.ladder.index(budget) for _, budget in cells], dtype=int),
        )

    def _most_telling(self, outlook: Outlook, tally: Tally) -> Iterator[Trial | None]:
        """Yield the runs of contenders, those first that lower the expected loss of the choice most for each second."""
        stops, base = len(self.space.ladder), self._terms.places[BASELINE]
        loss_R = outlook.loss_SR.mean(axis=0)
        # Recipes that cannot win are pruned: those whose better times are worse than what is expected of the best.
        hopeful_R = np.quantile(outlook.loss_SR, HOPEFUL, axis=0)
        contenders = np.argsort(hopeful_R, kind="stable")[:CONTENDERS]
        contenders = np.unique([base, int(loss_R.argmin()), *contenders[hopeful_R[contenders] <= loss_R.min()]])
        cells = Cells(np.repeat(contenders, stops), np.tile(np.arange(stops), len(contenders)))
        covariance = outlook.surface.covariance(cells)
        slopes = self._slopes(outlook, contenders)  # contenders x cells
        towards = slopes @ covariance
        noise, variance = outlook.surface.noise(cells.budgets), np.diag(covariance)
        mean = loss_R[contenders]
        seconds = self._times_RB[cells.recipes, cells.budgets]
        worth = np.zeros(len(seconds))
        for repeats in REPEATS:
            spread = towards / np.sqrt(np.maximum(variance, 0) + noise / repeats)
            after = (mean[:, None, None] + spread[:, :, None] * NODES).min(axis=0).mean(axis=1)
            worth = np.maximum(worth, (mean.min() - after) / (repeats * seconds))
        for place in np.lexsort((seconds, -worth)):
            yield tally.trial(self.space.recipes[cells.recipes[place]], self.space.ladder[cells.budgets[place]])

    def _hopeful(self, outlook: Outlook, tally: Tally) -> Iterator[Trial | None]:
        """Yield the longest runs of all recipes, the most hopeful first: for a spend that outlasts all contenders."""
        for place in np.argsort(np.quantile(outlook.loss_SR, HOPEFUL, axis=0), kind="stable"):
            yield tally.trial(self.space.recipes[place], self.space.ladder[-1])

    def _slopes(self, outlook: Outlook, contenders: np.ndarray) -> np.ndarray:
        """Return how a recipe's time follows the qualities of its own cells and of the target, by least squares over
        the draws: exact covariances of cells then give those of times, without the noise of so few draws."""
        stops, base = len(self.space.ladder), self._terms.places[BASELINE]
        slopes = np.zeros((len(contenders), len(contenders) * stops))
        target = int(np.flatnonzero(contenders == base)[0]) * stops + stops - 1
        for row, place in enumerate(contenders):
            if place == base:
                continue  # its time is known
            known = np.column_stack([outlook.draws_SRB[:, place], outlook.draws_SRB[:, base, -1]])
            known = known - known.mean(axis=0)
            ridge = 1e-6 * np.trace(known.T @ known) * np.eye(stops + 1)
            loss = outlook.loss_SR[:, place] - outlook.loss_SR[:, place].mean()
            slope = np.linalg.solve(known.T @ known + ridge, known.T @ loss)
            slopes[row, row * stops : (row + 1) * stops] += slope[:-1]
            slopes[row, target] += slope[-1]
        return slopes
