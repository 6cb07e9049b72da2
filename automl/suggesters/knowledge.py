"""Where good values of well-known parameters usually lie: a weak prior that experience gives.

`knowledge.json` was learned by `benchmarks/suggesters/learn_knowledge.py` from trainings of many
models: for each kind of model and role of a parameter, a normal density of the good values, and how
the learning rate shifts with the batch and with SGD. A parameter's name tells its role. A belief of
the user, or a range that excludes the usual values, counts instead.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from automl.core.text import number
from search_spaces import Choice, Space
from search_spaces.parameters import Parameter, Value

from .user_prior import FLOOR, UserPrior, truncated_normal

Array = NDArray[np.float64]
FILE: Final = Path(__file__).with_name("knowledge.json")
SHARE: Final = 0.5  # weight of knowledge, in that of a user's prior
ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "learning_rate": ("lr", "eta", "eta0", "learning_rate_init", "init_lr", "step_size"),
    "batch_size": ("batch", "bs", "train_batch_size"),
    "weight_decay": ("wd",),
    "optimizer": ("solver", "optim"),
    "activation": ("act", "nonlinearity"),
    "momentum": (),
    "beta1": ("adam_beta1",),
    "dropout": ("dropout_rate", "drop_rate"),
    "warmup": ("warmup_fraction", "warmup_share"),
    "width": ("hidden_size", "hidden_dim", "num_units", "units"),
    "depth": ("num_layers", "n_layers", "layers"),
    "n_estimators": ("num_trees", "num_boost_round", "num_iterations"),
    "max_depth": (),
    "num_leaves": ("max_leaf_nodes",),
    "min_samples_leaf": ("min_child_samples", "min_data_in_leaf"),
    "min_samples_split": (),
    "subsample": ("max_samples", "bagging_fraction"),
    "max_features": ("colsample_bytree", "feature_fraction"),
    "ccp_alpha": (),
    "reg_alpha": ("lambda_l1",),
    "reg_lambda": ("lambda_l2",),
    "C": (),
    "gamma": (),
    "alpha": (),
    "l1_ratio": (),
    "epsilon": (),
}
# A parameter of one of these roles tells the kind of model; the first kind that fits counts.
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "networks": ("batch_size", "optimizer", "dropout", "width", "momentum"),
    "trees": ("n_estimators", "num_leaves", "max_depth", "min_samples_leaf"),
    "kernels": ("C", "gamma"),
    "linear": ("l1_ratio", "alpha"),
}


def role_of(name: str) -> str:
    """The role of a parameter of this name; "" if it is unknown. The last part of a path counts."""
    short = name.rpartition(".")[2].replace("-", "_")
    lowered = short.lower()
    return next(
        (role for role, names in ROLES.items() if short == role or lowered in (role, *names)), ""
    )


def kind_of(space: Space) -> str:
    """The kind of model that a space tunes; "" if its parameters do not tell."""
    roles = {role_of(name) for name in space.parameters}
    return next((kind for kind, markers in KINDS.items() if roles & set(markers)), "")


def logarithmic(parameter: Parameter) -> bool:
    """Whether a number's good values are compared on a logarithmic scale."""
    return bool(getattr(parameter, "log", False))


@functools.cache
def learned() -> dict[str, Any]:
    """The contents of `knowledge.json`: by kind of model and role, `at`, `spread` and `shifts`
    (or `weights` of choices)."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class UsualNumber:
    """The usual values of one number.

    Args:
        column: of the parameter.
        low, high: ends of its range, as logarithms if it is logarithmic.
        at: the usual value, likewise.
        spread: standard deviation.
        shifts: by column of a parameter and option ("" for a number): what `at` gains by that
            option, or by each power of ten of that number, from `origin` on.
    """

    column: int
    low: float
    high: float
    at: float
    spread: float
    shifts: Mapping[int, Array] = field(default_factory=dict)

    def centres(self, unit: Array) -> Array:
        """The usual value as a coordinate, for each configuration `m x d`."""
        found = np.full(len(unit), self.at)
        for column, gains in self.shifts.items():
            known = np.nan_to_num(unit[:, column], nan=0.5)
            found += gains[np.minimum((known * len(gains)).astype(int), len(gains) - 1)]
        return np.clip((found - self.low) / (self.high - self.low), 0.0, 1.0)

    @property
    def width(self) -> float:
        """The standard deviation, as a part of the range."""
        return self.spread / (self.high - self.low)


class InformedPrior:
    """A user's prior, and knowledge of the parameters that it does not name.

    It has the methods of `UserPrior`, which say what they do.

    Args:
        user: the user's prior.
        knowledge: by kind of model and role, such as what is `learned`.
    """

    def __init__(self, user: UserPrior, knowledge: Mapping[str, Any]) -> None:
        self.user = user
        self.space = user.space
        self.kind = kind_of(self.space)
        usual = knowledge.get(self.kind, {})
        self._numbers: list[UsualNumber] = []
        self._weights: dict[int, Array] = {}
        for column, (name, parameter) in enumerate(self.space.parameters.items()):
            known = usual.get(role_of(name))
            if known is None or name in user.by_name:
                continue
            if isinstance(parameter, Choice):
                if "weights" in known:
                    self._weights[column] = _mass(parameter, known["weights"])
            elif "at" in known and (one := self._number(column, parameter, known)) is not None:
                self._numbers.append(one)

    def __bool__(self) -> bool:
        return bool(self.user or self._numbers or self._weights)

    def log_density(self, unit: Array) -> Array:
        """See `UserPrior.log_density`."""
        total = np.zeros(len(unit))
        for one in self._numbers:
            x = unit[:, one.column]
            density = truncated_normal(np.nan_to_num(x), one.centres(unit), one.width)
            total += np.where(np.isnan(x), 0.0, np.log(FLOOR + (1 - FLOOR) * density))
        for column, mass in self._weights.items():
            x = unit[:, column]
            cell = np.minimum((np.nan_to_num(x) * len(mass)).astype(int), len(mass) - 1)
            total += np.where(np.isnan(x), 0.0, np.log(mass[cell] * len(mass)))
        return self.user.log_density(unit) + SHARE * total

    def draw(self, rng: np.random.Generator, points: Array) -> Array:
        """See `UserPrior.draw`. Values are drawn before what shifts them is known to be active."""
        found = self.user.draw(rng, points)
        for column, mass in self._weights.items():
            cells = rng.choice(len(mass), size=len(found), p=mass)
            found[:, column] = (cells + 0.5) / len(mass)
        for one in self._numbers:
            steps = one.width * rng.standard_normal(len(found))
            usual = np.clip(one.centres(found) + steps, 0.0, 1.0)
            chosen = rng.random(len(found)) < FLOOR
            found[:, one.column] = np.where(chosen, rng.random(len(found)), usual)
        return found

    def mode(self) -> dict[str, Value]:
        """See `UserPrior.mode`."""
        names = list(self.space.parameters)
        found: dict[str, Value] = {}
        unit = np.full((1, len(names)), 0.5)
        for column, mass in self._weights.items():
            choice = self.space.parameters[names[column]]
            unit[0, column] = (int(mass.argmax()) + 0.5) / len(mass)
            found[names[column]] = choice.from_units(unit[0, column : column + 1])[0]
        for one in self._numbers:
            centre = one.centres(unit)
            found[names[one.column]] = self.space.parameters[names[one.column]].from_units(centre)[
                0
            ]
        return {**found, **self.user.mode()}

    def __str__(self) -> str:
        """What it expects, for a person; "" if it knows nothing."""
        mode, names = self.mode(), list(self.space.parameters)
        listed = [names[one.column] for one in self._numbers] + [names[c] for c in self._weights]
        near = ", ".join(f"{name} {_short(mode[name])}" for name in listed)
        return f"begins near {near}: usual for {self.kind}" if near else ""

    def _number(
        self, column: int, parameter: Parameter, known: Mapping[str, Any]
    ) -> UsualNumber | None:
        """The usual values of a number; None if scale or range exclude them."""
        if logarithmic(parameter) != known["log"]:
            return None
        ends = np.array([parameter.low, parameter.high], dtype=np.float64)  # type: ignore[attr-defined]
        low, high = np.log10(ends) if known["log"] else ends
        at, spread = known["at"], known["spread"]
        if not low - spread <= at <= high + spread or high <= low:
            return None
        shifts = {}
        for other, p in enumerate(self.space.parameters.values()):
            gains = _gains(p, known.get("shifts", {}).get(role_of(p.name)))
            if gains is not None:
                shifts[other] = gains
        return UsualNumber(column, low, high, at, spread, shifts)


def usual_values(space: Space, beliefs: Mapping[str, Any]) -> str:
    """Where a search begins because of knowledge, in a sentence; "" if nothing is known."""
    return str(InformedPrior(UserPrior(space, beliefs), learned()))


def _short(value: Value) -> str:
    return number(float(f"{value:.2g}") if isinstance(value, float) else value)


def _gains(parameter: Parameter, shift: Mapping[str, float] | None) -> Array | None:
    """What each option, or each of some equal parts of a number's range, adds to `at`."""
    if shift is None:
        return None
    if isinstance(parameter, Choice):
        return np.array([shift.get(str(choice).lower(), 0.0) for choice in parameter.choices])
    if "slope" not in shift or not logarithmic(parameter):
        return None
    middles = parameter.raw((np.arange(64) + 0.5) / 64)
    return np.asarray(shift["slope"] * (np.log10(middles) - shift["origin"]), dtype=np.float64)


def _mass(choice: Choice, weights: Mapping[str, float]) -> Array:
    """The probability of each option; one that is not known weighs as much as the average."""
    average = math.fsum(weights.values()) / len(weights)
    found = np.array([weights.get(str(one).lower(), average) for one in choice.choices])
    return np.asarray(found / found.sum())
