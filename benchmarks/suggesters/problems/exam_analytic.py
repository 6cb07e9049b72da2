"""Exam: spaces and functions that are drawn at random, so nobody has chosen or tuned on them.

Each is made from a number of its own. A function is a sum of terms of the unit cube. Each
input is warped by a Kumaraswamy distribution function first. Every family adds one difficulty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from automl.core.trial import ReportPoint
from benchmarks.suggesters.problems.base import Metrics, Observation, Params, Problem, problem
from search_spaces import Choice, Float, Int, Space
from search_spaces.errors import TrialFailure

ROOT_SEED: Final = 731_945  # of the exam; no other problem of the project is made from it
Vector = np.ndarray
Function = Callable[[Vector], float]


@dataclass(frozen=True)
class Surface:
    """A function of numbers and choices.

    Args:
        space: of the configurations.
        numbers: names of the numbers; their terms see the unit cube.
        warps: the two exponents of each number's Kumaraswamy distribution.
        terms: of the warped numbers that are active.
        offsets: of each option of each choice.
        centres: where the terms have their best; an inactive number lies there.
    """

    space: Space
    numbers: Sequence[str]
    warps: Vector
    terms: Sequence[Function]
    offsets: dict[str, dict[Any, float]]
    centres: Vector

    def __call__(self, params: Params) -> float:
        at = self.warped(params)
        shift = sum(options[params[n]] for n, options in self.offsets.items() if n in params)
        return float(sum(term(at) for term in self.terms) + shift)

    def warped(self, params: Params) -> Vector:
        """The numbers in the unit cube; an inactive one lies at the centre of its terms."""
        at = self.centres.copy()
        for i, name in enumerate(self.numbers):
            if name in params:
                unit = float(self.space.parameters[name].to_units([params[name]])[0])
                a, b = self.warps[i]
                at[i] = 1 - (1 - unit**a) ** b
        return at


def bowl(rng: np.random.Generator, centre: Vector, scale: float = 1.0) -> Function:
    """A quadratic with random axes, whose curvatures differ by up to a factor of 100."""
    count = len(centre)
    axes, _ = np.linalg.qr(rng.standard_normal((count, count)))
    weights = 10 ** rng.uniform(-1, 1, count)
    weights *= scale * 4 / weights.sum()
    return lambda at: float(weights @ (axes @ (at - centre)) ** 2)


def cliff(rng: np.random.Generator, centre: Vector) -> Function:
    """A plateau beyond a smooth step in a random direction, away from the best."""
    direction = rng.standard_normal(len(centre))
    direction /= np.linalg.norm(direction)
    edge = direction @ centre + rng.uniform(0.15, 0.4)
    height = rng.uniform(0.3, 1.0)
    return lambda at: float(height / (1 + math.exp(-25 * (direction @ at - edge))))


def ripple(rng: np.random.Generator, centre: Vector) -> Function:
    """Waves around the best along every axis, with several local optima."""
    waves, height = rng.uniform(1.0, 2.5, len(centre)), 0.15 / len(centre)
    return lambda at: float(height * (1 - np.cos(2 * np.pi * waves * (at - centre))).sum())


def well(rng: np.random.Generator, centre: Vector) -> Function:
    """A narrow optimum: a deep Gaussian well of a tenth of the range."""
    active = rng.permutation(len(centre))[:3]
    width, depth = rng.uniform(0.06, 0.12), rng.uniform(0.8, 1.5)
    return lambda at: float(
        depth * (1 - math.exp(-(((at - centre)[active] ** 2).sum()) / (2 * width**2)))
    )


def stairs(rng: np.random.Generator, centre: Vector) -> Function:
    """Steps at random places, as trees make them, a function of one or two inputs each."""
    terms = []
    for _ in range(12):
        i = int(rng.integers(len(centre)))
        edge, height = rng.uniform(0.05, 0.95), rng.uniform(0.05, 0.3)
        up = centre[i] < edge
        terms.append((i, edge, height, up))
    return lambda at: float(sum(h for i, e, h, up in terms if (at[i] > e) == up))


def number(rng: np.random.Generator, name: str, **when: Any) -> Float | Int:
    """A number with a random kind, range and scale."""
    if rng.random() < 0.3:
        low = int(rng.integers(1, 5))
        high = low + int(rng.integers(6, 300))
        return Int(name, low, high, log=high / low > 30, **when)
    if rng.random() < 0.5:
        low = 10.0 ** rng.uniform(-6, -1)
        return Float(name, low, low * 10 ** rng.uniform(1.5, 5), log=True, **when)
    low = rng.uniform(-5, 5)
    return Float(name, low, low + 10 ** rng.uniform(-1, 2), **when)


def surface(
    rng: np.random.Generator,
    numbers: int,
    choices: int,
    *,
    conditional: int = 0,
    relevant: int | None = None,
    extra: Sequence[Callable[[np.random.Generator, Vector], Function]] = (),
) -> Surface:
    """A random surface.

    Args:
        numbers: that are always active.
        choices: with two to five options each.
        conditional: numbers of each option of the first choice.
        relevant: numbers on which the terms depend; None for all.
        extra: terms beside the bowl.
    """
    parameters: list[Any] = [number(rng, f"x{i}") for i in range(numbers)]
    offsets: dict[str, dict[Any, float]] = {}
    for c in range(choices):
        options = [f"o{k}" for k in range(int(rng.integers(2, 6)))]
        parameters.append(Choice(f"c{c}", options))
        offsets[f"c{c}"] = dict(zip(options, rng.exponential(0.3, len(options)), strict=True))
        if c == 0:
            parameters += [
                number(rng, f"{option}_x{k}", when={"c0": option})
                for option in options
                for k in range(conditional)
            ]
    names = [p.name for p in parameters if not isinstance(p, Choice)]
    centre = rng.uniform(0.1, 0.9, len(names))
    kept = np.sort(rng.permutation(len(names))[: relevant or len(names)])

    def on(made: Function) -> Function:
        return lambda at: made(at[kept])

    terms = [on(make(rng, centre[kept])) for make in (bowl, *extra)]
    warps = np.exp(rng.normal(0, 0.5, (len(names), 2)))
    return Surface(Space(*parameters), names, warps, terms, offsets, centre)


def failing(rng: np.random.Generator, made: Surface, share: float) -> Callable[[Params], Metrics]:
    """Configurations beyond a random plane fail; the best lies near it, on the good side."""
    direction = rng.standard_normal(len(made.numbers))
    direction /= np.linalg.norm(direction)
    drawn = made.space.sample(rng, 500)
    points = np.array([made.warped(p) for p in drawn])
    if direction @ made.centres > np.quantile(points @ direction, 1 - share):
        direction = -direction
    best = float(direction @ made.centres) + 0.02
    edge = max(float(np.quantile(points @ direction, 1 - share)), best)

    def metrics(params: Params) -> Metrics:
        if direction @ made.warped(params) > edge:
            raise TrialFailure("out_of_memory")
        return {"loss": made(params)}

    return metrics


def uneven(made: Surface) -> Callable[[Params, np.random.Generator], Observation]:
    """Noise that grows with the loss."""

    def observe(params: Params, rng: np.random.Generator) -> Observation:
        clean = made(params)
        loss = clean + 0.15 * (0.1 + clean) * float(rng.standard_normal())
        return Observation({"loss": loss}, (ReportPoint(1, {"loss": loss}, 1.0),))

    return observe


def problems() -> list[Problem]:
    """One of each family."""
    families: list[tuple[str, Callable[[np.random.Generator], Surface]]] = [
        ("warped", lambda rng: surface(rng, int(rng.integers(3, 8)), 0, extra=(ripple,))),
        ("mixed", lambda rng: surface(rng, *map(int, rng.integers(2, 5, 2)), extra=(cliff,))),
        ("conditional", lambda rng: surface(rng, 2, 2, conditional=2, extra=(cliff,))),
        ("failing", lambda rng: surface(rng, int(rng.integers(3, 7)), 1)),
        ("noisy", lambda rng: surface(rng, int(rng.integers(3, 6)), 1)),
        ("uneven_noise", lambda rng: surface(rng, int(rng.integers(3, 6)), 1)),
        ("narrow", lambda rng: surface(rng, int(rng.integers(2, 5)), 1, extra=(well,))),
        ("jagged", lambda rng: surface(rng, int(rng.integers(3, 7)), 1, extra=(stairs,))),
        ("many", lambda rng: surface(rng, int(rng.integers(15, 26)), 2, relevant=5)),
    ]
    found = []
    for number_of_family, (name, draw) in enumerate(families):
        rng = np.random.default_rng([ROOT_SEED, number_of_family])
        made = draw(rng)
        metrics: Callable[[Params], Any] = made
        more: dict[str, Any] = {"tags": f"exam {name}"}
        if name == "failing":
            metrics = failing(rng, made, 0.5)
        elif name == "noisy":
            more["noise"] = 0.1
        elif name == "uneven_noise":
            more = {"tags": "exam noisy", "observe": uneven(made)}
        full = f"exam_{name}"
        found.append(problem(full, "synthetic", made.space, "minimize loss", metrics, **more))
    return found
