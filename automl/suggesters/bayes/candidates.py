"""Candidate configurations: everywhere, moves of good ones, the initial design, and the search.

Configurations are arrays in the unit cube of the whole space, NaN if a parameter is inactive.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from automl.suggesters.domain import Domain
from automl.suggesters.user_prior import UserPrior
from search_spaces import Choice, Float, Int
from search_spaces.parameters import Parameter, Value
from workers.protocol import Params

if TYPE_CHECKING:
    from torch import Tensor

    Score = Callable[["Array"], Tensor]
Array = NDArray[np.float64]
NUM_DESIGN = 5  # trials of the initial design
MARGIN = 0.2  # part of each number's range that the design leaves out at either end
MIN_SUCCESSES = 2  # before which it goes on
NUM_TRANSFERRED = 3  # trials of the design if there are earlier sweeps: their best ones
POOL = 128  # points of the design to choose from
CERTAINTY = 8.0  # weight of the log probability of success against coverage
END = 0.33  # share of the moved numbers that go to an end of their range
TWO = 0.4  # share of the moves that change two coordinates
REFINEMENTS = ((0.01, 0.2), (0.003, 0.05), (0.001, 0.02))
OPTION_EVERY = 6  # suggestions, one of which tries an option that has not succeeded
HOPELESS = 3  # failed trials of an option without success, after which it is given up
COPIES = 10  # of each good configuration, with other values of newly active parameters
WORTHLESS = -300.0  # score below which nothing is gained, or failure is likely
DECODED = 32  # candidates decoded at once
MAX_SAMPLED = 128  # configurations drawn one by one
MAX_CELLS = 4096  # integers with more values are continuous until they are decoded
PRIOR_SHARE = 0.5  # of the points everywhere that are drawn from the user's prior
SAME = 1e-9  # unit values that are closer are equal


class CandidateSampler:
    """Draws candidates within a domain, whole arrays at once.

    Points are in the unit cube of the whole space. They are snapped to values that exist, and to
    NaN if a parameter is inactive.

    Args:
        domain: what may be proposed.
        prior: where good values probably are, if the user has said so.
    """

    def __init__(self, domain: Domain, prior: UserPrior | None = None) -> None:
        self.domain = domain
        self.prior = prior or UserPrior(domain.space, {})
        self.space = domain.space
        self.parameters = list(self.space.parameters.values())
        names = list(self.space.parameters)
        limited = [domain.inner.parameters.get(p.name, p) for p in self.parameters]
        both = list(zip(self.parameters, limited, strict=True))
        self.cells = [_cells(whole, part) for whole, part in both]
        self.low, self.high = np.array([_range(whole, part) for whole, part in both]).T.copy()
        self.rules = [  # of each parameter: column of a parent, and its admissible values
            [
                (names.index(parent), _units(self.space.parameters[parent], values))
                for parent, values in part.when.items()
            ]
            for part in limited
        ]
        self.unordered = np.array(
            [isinstance(p, Choice) and not p.ordered for p in self.parameters], dtype=bool
        )
        self.fixed = np.array([c is not None and len(c) == 1 for c in self.cells], dtype=bool)

    def snap(self, points: Array) -> Array:
        """The nearest points that may be tried; NaN of an active parameter becomes its middle."""
        middle = (self.low + self.high) / 2
        points = np.clip(np.where(np.isnan(points), middle, points), self.low, self.high)
        for column, centres in enumerate(self.cells):
            if centres is not None:
                edges = (centres[1:] + centres[:-1]) / 2
                points[:, column] = centres[np.searchsorted(edges, points[:, column], side="right")]
            for parent, admissible in self.rules[column]:
                close = np.abs(points[:, parent, None] - admissible) < SAME  # false for NaN
                points[~close.any(1), column] = np.nan
        return points

    def everywhere(
        self,
        rng: np.random.Generator,
        count: int,
        *,
        prior_share: float = PRIOR_SHARE,
        margin: float = 0.0,
    ) -> Array:
        """Uniform points, a share of them from the prior; fewer if constraints exclude most.

        Args:
            margin: part of each number's range that is left out at either end. Without one, some
                numbers of half of the points lie at an end.
        """
        shares = rng.random((count, len(self.low)))
        shares = np.where(self.unordered, shares, margin + (1.0 - 2.0 * margin) * shares)
        points = self.low + shares * (self.high - self.low)
        if not margin:
            half = points[count // 2 :]
            rate = rng.choice([1.0 / len(self.low), 2.0 / len(self.low), 0.5], size=(len(half), 1))
            moved = (rng.random(half.shape) < rate) & ~self.unordered
            half[moved] = np.where(rng.random(half.shape) < 0.5, self.low, self.high)[moved]
        from_prior = int(prior_share * count) if self.prior else 0
        if from_prior:
            points[:from_prior] = self.prior.draw(rng, points[:from_prior])
        points = self.legal(self.snap(points))
        if len(points) < count // 4:
            drawn = self.domain.inner.sample(rng, min(count - len(points), MAX_SAMPLED))
            points = np.concatenate([points, self.space.encode(drawn)])
        return np.asarray(points)

    def moves(self, rng: np.random.Generator, base: Array, count: int) -> Array:
        """One or two coordinates of a configuration redrawn over their whole range.

        A third of the numbers goes to an end. Improvement is nearly flat far from the trials, so a
        search over small steps stays beside the best.
        """
        points = np.repeat(base[None], count, 0)
        points = np.where(np.isnan(points), rng.random(points.shape), points)
        free = np.flatnonzero(~self.fixed)
        if not len(free):
            return self.legal(self.snap(points))
        columns = free[rng.integers(len(free), size=(count, 2))]
        for rows, column in (
            (np.arange(count), columns[:, 0]),
            (second := np.flatnonzero(rng.random(count) < TWO), columns[second, 1]),
        ):
            value = rng.random(len(rows))
            end = (rng.random(len(rows)) < END) & ~self.unordered[column]
            value = np.where(end, np.round(value), value)
            span = self.high[column] - self.low[column]
            points[rows, column] = self.low[column] + value * span
        return self.legal(self.snap(points))

    def legal(self, points: Array) -> Array:
        """Those of the points that satisfy the constraints."""
        return points[self.domain.feasible(points)]

    def near(
        self, rng: np.random.Generator, bases: Array, count: int, scales: tuple[float, float]
    ) -> Array:
        """Perturbations of legal `bases` (`b x d`): some coordinates move by log-uniform steps.

        Args:
            scales: smallest and largest step.
        """
        points = self.legal(self._perturbed(rng, bases, count, scales))
        if len(points) < count // 8:
            each = max(count // 8 // len(bases), 1)
            for params in self.space.decode(self.snap(bases)):
                moved = self.domain.neighbours(params, rng, each)
                points = np.concatenate([points, self.space.encode(moved)]) if moved else points
        return points

    def _perturbed(
        self, rng: np.random.Generator, bases: Array, count: int, scales: tuple[float, float]
    ) -> Array:
        d = len(self.parameters)
        base = bases[rng.integers(len(bases), size=count)]
        filled = np.where(np.isnan(base), rng.random((count, d)), base)
        rate = (
            rng.choice([1.0 / d, 2.0 / d, 0.5, 1.0], size=(count, 1))
            if d > 1
            else np.ones((count, 1))
        )
        moved = (rng.random((count, d)) < rate) & ~self.fixed
        moved[np.arange(count), rng.integers(d, size=count)] = True
        size = np.exp(rng.uniform(np.log(scales[0]), np.log(scales[1]), size=(count, 1)))
        step = rng.standard_normal((count, d)) * size
        for column, centres in enumerate(self.cells):
            if centres is not None and len(centres) > 1:  # at least to the next value
                least = np.maximum(np.abs(step[:, column]), 1.0 / len(centres))
                step[:, column] = np.sign(step[:, column]) * least
        value = filled + step
        stopped = rng.random((count, 1)) < 0.5  # at the ends; the others are reflected
        value = np.abs(np.where(stopped, np.clip(value, 0.0, 1.0), value))
        value = np.where(value > 1.0, 2.0 - value, value)
        resample = self.unordered & (rng.random((count, d)) < 0.7)
        value = np.where(self.unordered, np.where(resample, rng.random((count, d)), filled), value)
        return self.snap(np.where(moved, value, filled))

    def crossed(self, rng: np.random.Generator, bases: Array, count: int) -> Array:
        """`count` points, each coordinate from one of two of the `bases`."""
        first, second = (bases[rng.integers(len(bases), size=count)] for _ in range(2))
        mixed = np.where(rng.random(first.shape) < 0.5, first, second)
        other = np.where(np.isnan(first), second, first)
        mixed = np.where(np.isnan(mixed), other, mixed)
        return self.legal(self.snap(np.where(np.isnan(mixed), rng.random(first.shape), mixed)))

    def first_new(
        self, pool: Array, taken: set[Hashable], rng: np.random.Generator
    ) -> list[Params]:
        """The first candidate that is legal and new, else a random one; none if none is left."""
        parts = (pool[start : start + DECODED] for start in range(0, len(pool), DECODED))
        decoded = chain.from_iterable(map(self.space.decode, parts))
        return self.domain.first_new(decoded, taken) or self.domain.new_points(rng, taken, 1)


class InitialDesign:
    """The defaults, then a sequential Latin hypercube: values that the trials before left out.

    Conditional parameters count only if they are active. A likely success counts as well, and so
    does the user's prior. The ends of ranges are left out, where good values are rare. If there are
    earlier sweeps, it is their best configurations (Feurer et al., "Initializing Bayesian
    hyperparameter optimization via meta-learning", 2015).

    Args:
        sampler: of candidates.
        earlier: `m x d`, configurations of earlier sweeps, the best first.
    """

    def __init__(self, sampler: CandidateSampler, earlier: Array) -> None:
        self.sampler, self.earlier = sampler, earlier
        self.size = NUM_TRANSFERRED if len(earlier) else NUM_DESIGN

    def goes_on(self, failed: NDArray[np.bool_], num_pending: int) -> bool:
        """Whether the next configuration belongs to the design, after `n` trials."""
        return (~failed).sum() < MIN_SUCCESSES or len(failed) + num_pending < self.size

    def pool(
        self,
        known: Array,
        failed: NDArray[np.bool_],
        success: Score | None,
        rng: np.random.Generator,
    ) -> Array:
        """Candidates, the best first; over whole ranges if all trials of a whole design failed.

        Args:
            known: `n x d`, the configurations so far.
            failed: of those that have ended.
            success: predicts the log probability of success; None if no trial has failed.
        """
        apart = np.nan_to_num(np.abs(self.earlier[:, None] - known[None])).max(2, initial=0.0)
        fresh: Array = self.earlier[(apart > SAME).all(1)]
        if len(known) < self.size and len(fresh):
            return fresh
        margin = 0.0 if failed.all() and len(failed) >= NUM_DESIGN else MARGIN
        points = self.sampler.everywhere(rng, POOL, prior_share=1.0, margin=margin)
        worth = self.sampler.prior.log_density(points) - self._overlap(points, known)
        if success is not None:
            worth += CERTAINTY * success(points).numpy()
        return points[np.argsort(-worth, kind="stable")]

    def _overlap(self, points: Array, known: Array) -> Array:
        """How often the values of each point were tried, `m`, at most as in a whole design."""
        total = np.zeros(len(points))
        for column, unordered in enumerate(self.sampler.unordered):
            apart = np.abs(points[:, None, column] - known[None, :, column])
            same = apart < SAME if unordered else np.clip(1.0 - NUM_DESIGN * apart, 0.0, 1.0)
            total += np.where(np.isnan(apart), 0.0, same).sum(1)
        return total * min(1.0, NUM_DESIGN / max(len(known), 1))


def untried_option(
    sampler: CandidateSampler, unit: Array, failed: NDArray[np.bool_], number: int
) -> tuple[int, float] | None:
    """The option to try now: of all that never succeeded, that with the fewest trials; mostly None.

    Once trials fail, the demand for likely success would never try it. An option of an unordered
    choice of three at least is tried up to three times: failures may have other reasons.

    Args:
        unit: `n x d`, the configurations so far; failed: which of them failed.
        number: of suggestions; every sixth tries an option.

    Returns:
        The column of its choice, and its unit value.
    """
    if number % OPTION_EVERY or not failed.any():
        return None
    found: list[tuple[int, int, float]] = []
    for column in np.flatnonzero(sampler.unordered).tolist():
        cells: Array = sampler.cells[column]  # type: ignore[assignment]
        for value in cells.tolist() if len(cells) > 2 else ():  # the surrogate explores fewer
            rows = np.abs(unit[:, column] - value) < SAME
            share = len(cells) * int(rows.sum())
            if rows.sum() < HOPELESS and failed[rows].all() and 3 * share < number:
                found.append((share, column, value))
    return min(found)[1:] if found else None


def with_option(
    sampler: CandidateSampler,
    score: Score,
    best: Array,
    option: tuple[int, float],
    taken: set[Hashable],
    rng: np.random.Generator,
) -> list[Params]:
    """The most promising of the `best` with this option and nothing else changed, if any is.

    So the trial tells about the option. Arguments as in `maximise`.
    """
    column, value = option
    pool = np.repeat(best, COPIES, axis=0)
    pool = np.where(np.isnan(pool), rng.random(pool.shape), pool)
    pool[:, column] = value
    pool = sampler.legal(sampler.snap(pool))
    pool = pool[pool[:, column] == value]  # the others lack its parent
    values = score(pool).numpy()
    order = np.argsort(-values, kind="stable")
    promising = sampler.space.decode(pool[order[values[order] > WORTHLESS]])
    return sampler.domain.first_new(promising, taken)


def maximise(
    sampler: CandidateSampler,
    score: Score,
    best: Array,
    taken: set[Hashable],
    rng: np.random.Generator,
) -> list[Params]:
    """The new configuration with the highest score found; [] if the space has none.

    It scores candidates everywhere and around the best, then moves the best of them in rounds.

    Args:
        score: of candidates.
        best: configurations to look around, the best first.
        taken: keys of known configurations.
    """
    pool = np.concatenate(
        [
            sampler.everywhere(rng, 600),
            *(sampler.moves(rng, one, 40 if i else 120) for i, one in enumerate(best[:5])),
            sampler.near(rng, best[:1], 150, (0.003, 0.3)),
            sampler.near(rng, best[:5], 150, (0.01, 0.3)),
            sampler.crossed(rng, best, 80),
        ]
    )
    values = score(pool).numpy()
    for scales in REFINEMENTS:
        top = pool[np.argsort(-values, kind="stable")[:4]]
        more = [*(sampler.moves(rng, one, 60) for one in top), sampler.near(rng, top, 120, scales)]
        pool = np.concatenate([pool, *more])
        values = np.concatenate([values, score(np.concatenate(more)).numpy()])
    return sampler.first_new(pool[np.argsort(-values, kind="stable")], taken, rng)


def best_drawn(
    sampler: CandidateSampler,
    draws: Callable[[Array], Tensor],
    best: Array,
    taken: set[Hashable],
    rng: np.random.Generator,
) -> list[Params]:
    """The best new configuration of each of some drawn functions, which differ from each other.

    Args:
        draws: values `s x m` of the functions at `m x d` candidates, of which few are affordable.
        best, taken: see `maximise`.
    """
    moves = [sampler.moves(rng, one, 100) for one in best[:4]]
    pool = np.concatenate([sampler.everywhere(rng, 200), *moves])
    met, found = set(taken), list[Params]()
    for values in draws(pool).numpy():
        found += sampler.first_new(pool[np.argsort(-values, kind="stable")], met, rng)
        met.update(map(sampler.space.key, found[-1:]))
    return found


def _units(parameter: Parameter, values: Iterable[Value]) -> Array:
    return np.array([parameter.to_unit(value) for value in values])


def _cells(whole: Parameter, part: Parameter) -> Array | None:
    small = part.size == 1 or (part.size and max(part.size, whole.size or 0) <= MAX_CELLS)
    return _units(whole, part.values()) if small or isinstance(part, Choice) else None


def _range(whole: Parameter, part: Parameter) -> tuple[float, float]:
    if part is whole or not isinstance(part, Float | Int):
        return 0.0, 1.0
    low, high = _units(whole, (part.low, part.high))
    return low, high
