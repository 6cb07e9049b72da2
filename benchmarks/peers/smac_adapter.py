"""SMAC 2.4 (Lindauer et al., JMLR 2022): its facade for hyperparameters, a random forest."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    InCondition,
    Integer,
)
from ConfigSpace.conditions import AndConjunction
from smac import HyperparameterOptimizationFacade, Scenario
from smac.multi_objective.parego import ParEGO
from smac.runhistory import StatusType, TrialValue

from benchmarks.peers.choices import Row, inward
from search_spaces import Choice, Int, Space


class Smac:
    """SMAC by ask and tell; ParEGO for several goals. Each configuration runs once."""

    num_trials = 200
    deterministic = True
    intensifier: dict[str, int] = {"max_config_calls": 1}

    def __init__(self, space: Space, num_goals: int, seed: int) -> None:
        self.space = space
        self.num_goals = num_goals
        self.configs = config_space(space, seed)
        self.proposal: Any = None
        names = [f"loss_{i}" for i in range(num_goals)]
        scenario = Scenario(
            self.configs,
            deterministic=self.deterministic,
            n_trials=self.num_trials,
            seed=seed,
            output_directory=tempfile.mkdtemp(),
            objectives=names if num_goals > 1 else names[0],
        )
        extra = {"multi_objective_algorithm": ParEGO(scenario)} if num_goals > 1 else {}
        intensifier = HyperparameterOptimizationFacade.get_intensifier(scenario, **self.intensifier)
        self.facade = HyperparameterOptimizationFacade(
            scenario,
            lambda config, seed=0: 0.0,
            intensifier=intensifier,
            overwrite=True,
            logging_level=50,
            **extra,
        )

    def tell(self, rows: list[Row]) -> None:
        for row in rows:
            cost = row["losses"] if self.num_goals > 1 else row["losses"][0]
            status = StatusType.CRASHED if row["failed"] else StatusType.SUCCESS
            # SMAC waits for an answer to its own proposal, so it gets that one back even if the
            # client repaired it.
            self.facade.tell(self.proposal, TrialValue(cost=cost, time=1.0, status=status))

    def ask(self) -> Row:
        self.proposal = self.facade.ask()
        return self._params(self.proposal.config)

    def best(self) -> Row:
        """The incumbent."""
        return self._params(self.facade.intensifier.get_incumbent())

    def _params(self, config: Any) -> Row:
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in config.items()}
        return inward(self.space, plain)


def config_space(space: Space, seed: int) -> ConfigurationSpace:
    configs = ConfigurationSpace(seed=seed)
    for name, p in space.parameters.items():
        if isinstance(p, Choice) and p.ordered and len(p.choices) > 1:
            configs.add(Integer(name, (0, len(p.choices) - 1)))
        elif isinstance(p, Choice):
            configs.add(Categorical(name, list(range(len(p.choices)))))
        else:
            configs.add(
                (Integer if isinstance(p, Int) else Float)(name, (p.low, p.high), log=p.log)
            )
    for name, p in space.parameters.items():
        conditions = [
            _condition(space, configs, name, parent, values) for parent, values in p.when.items()
        ]
        if conditions:
            configs.add(conditions[0] if len(conditions) == 1 else AndConjunction(*conditions))
    return configs


def _condition(
    space: Space, configs: ConfigurationSpace, name: str, parent: str, values: tuple[Any, ...]
) -> Any:
    indices = [
        space.parameters[parent].choices.index(v)
        if isinstance(space.parameters[parent], Choice)
        else v
        for v in values
    ]
    if len(indices) == 1:
        return EqualsCondition(configs[name], configs[parent], indices[0])
    return InCondition(configs[name], configs[parent], indices)
