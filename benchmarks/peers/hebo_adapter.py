"""HEBO 0.3 (Cowen-Rivers et al., JAIR 2022).

Inactive parameters take their middle value; failed trials take the worst loss. In a small space
almost all offspring of its evolutionary search are known, and a suggestion would take minutes:
pymoo breeds up to a hundred times in each generation until enough are new. There it breeds three
times.
"""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
from hebo.acq_optimizers import evolution_optimizer
from hebo.design_space.design_space import DesignSpace
from hebo.optimizers.general import GeneralBO
from hebo.optimizers.hebo import HEBO

from benchmarks.peers.choices import Row, inward, outward
from search_spaces import Choice, Int, Space

SMALL = 1_000  # configurations


class Hebo:
    """HEBO by ask and tell; its evolutionary variant for several goals."""

    def __init__(self, space: Space, num_goals: int, seed: int) -> None:
        np.random.seed(seed)
        self.space = space
        if space.size is not None and space.size <= SMALL:
            evolution_optimizer.MixedVariableMating = functools.partial(
                evolution_optimizer.MixedVariableMating, n_max_iterations=3
            )
        self.varied = [name for name, p in space.parameters.items() if p.size != 1]
        design = DesignSpace().parse(
            [_describe(name, space.parameters[name]) for name in self.varied]
        )
        self.optimizer = (
            HEBO(design, scramble_seed=seed)
            if num_goals == 1
            else GeneralBO(design, num_obj=num_goals)
        )

    def tell(self, rows: list[Row]) -> None:
        for row in rows:
            filled = {
                name: row["params"].get(name, self.space.parameters[name].middle())
                for name in self.varied
            }
            codes = outward(self.space, filled)
            frame = pd.DataFrame([{name: codes[name] for name in self.varied}])
            self.optimizer.observe(frame, np.array([row["losses"]]))

    def ask(self) -> Row:
        found = self.optimizer.suggest(n_suggestions=1).iloc[0].to_dict()
        fixed = outward(
            self.space, {n: p.middle() for n, p in self.space.parameters.items() if p.size == 1}
        )
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in found.items()}
        return inward(self.space, {**plain, **fixed})


def _describe(name: str, p: object) -> Row:
    if isinstance(p, Choice):
        if p.ordered:
            return {"name": name, "type": "int", "lb": 0, "ub": len(p.choices) - 1}
        return {"name": name, "type": "cat", "categories": list(range(len(p.choices)))}
    kind = {
        (True, True): "pow_int",
        (True, False): "int",
        (False, True): "pow",
        (False, False): "num",
    }
    return {"name": name, "type": kind[isinstance(p, Int), p.log], "lb": p.low, "ub": p.high}  # type: ignore[attr-defined]
