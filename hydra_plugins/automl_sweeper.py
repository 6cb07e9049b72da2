"""The sweeper `hydra/sweeper=automl`; Hydra finds plugins in the namespace `hydra_plugins`.

Every Hydra program imports this module, so it imports nothing heavy.
"""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class AutomlSweeperConfig:
    """The keys of `hydra.sweeper`; all but `params` and `options` are arguments of `automl.sweep`.

    Args:
        params: the space: sweeps in Hydra's words ("interval(0.001, 0.1)", "tag(log, ...)",
            "choice(a, b)", "range(1, 9)") or in automl's ({low: 0.001, high: 0.1, log: true}).
            Sweeps on the command line are added.
        options: further arguments of `automl.sweep`, such as `workers`.
    """

    _target_: str = "hydra_plugins.automl_sweeper.AutomlSweeper"
    goals: Any = "minimize loss"
    trials: int = 20
    suggester: Any = "bayes"
    stopper: Any = "none"
    seed: int = 0
    store: str = ".automl"
    name: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


ConfigStore.instance().store(
    group="hydra/sweeper", name="automl", node=AutomlSweeperConfig, provider="automl"
)


class AutomlSweeper(Sweeper):  # type: ignore[misc]
    """Runs the jobs of a Hydra program as the trials of a sweep."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what is needed to launch jobs."""
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def sweep(self, arguments: list[str]) -> Any:
        """Run the sweep; returns its `Result`."""
        from automl.integrations.hydra import run

        return run(self.hydra_context, self.task_function, self.config, self._settings, arguments)
