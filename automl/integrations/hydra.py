"""Runs the jobs of a Hydra program as the trials of a sweep, for `hydra_plugins`."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString, Transformer
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.errors import CompactHydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

import automl
from automl.core import parse_goals
from automl.errors import UsageError
from search_spaces import Choice, Float, Int
from search_spaces.parameters import Parameter
from search_spaces.plain import read_space
from workers.context import Context

from .job_files import JobFiles


def run(
    context: HydraContext,
    task: TaskFunction,
    config: DictConfig,
    settings: Mapping[str, Any],
    arguments: Sequence[str],
) -> automl.Result:
    """Run the sweep and write its best trial to `optimization_results.yaml`, as other sweepers do.

    Args:
        settings: the keys of `AutomlSweeperConfig`.
        arguments: overrides of the command line, sweeps among them.

    Raises:
        CompactHydraException: a setting is wrong.
    """
    given: dict[str, Any] = {key: plain(value) for key, value in settings.items()}
    params, options = given.pop("params"), given.pop("options")
    given["store"] = given["store"] if "://" in given["store"] else os.path.abspath(given["store"])  # noqa: PTH100
    written = [f"{key}={value}" for key, value in params.items() if isinstance(value, str)]
    parser = OverridesParser.create(config_loader=context.config_loader)
    # The last override of a key counts.
    overrides = {o.get_key_element(): o for o in parser.parse_overrides([*written, *arguments])}
    entries = {key: value for key, value in params.items() if key not in overrides}
    entries |= {named(key): parameter(o) for key, o in overrides.items() if o.is_sweep_override()}
    keys = {named(key): key for key in (*params, *overrides)}
    fixed = [o.input_line for o in overrides.values() if not o.is_sweep_override()]
    folder = Path(config.hydra.sweep.dir)
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, folder / "multirun.yaml")
    options = {"dispatcher": "inline" if options.get("workers", 1) == 1 else "local", **options}
    try:
        metric = parse_goals(given["goals"])[0].metric
        objective = HydraObjective(context, task, config, fixed, keys, metric)
        result = automl.sweep(objective, read_space(entries), **given, **options)
    except (UsageError, TypeError) as error:  # Hydra shows its own without a traceback
        raise CompactHydraException(f"hydra.sweeper: {error}") from None
    if (best := result.snapshot.best) is not None:
        found = {"name": "automl", "best_params": dict(best.params), "best_metrics": best.metrics}
        OmegaConf.save(OmegaConf.create(found), folder / "optimization_results.yaml")
    return result


class HydraObjective:
    """Launches the job of a trial with the launcher of the program, and waits for it.

    Args:
        context, task, config: what Hydra gives its sweeper.
        fixed: overrides of every job.
        keys: of the overrides, by parameter.
        metric: the name of a number that the task returns.
    """

    resumable = True  # a job that has left no checkpoint is stopped instead of paused

    def __init__(
        self,
        context: HydraContext,
        task: TaskFunction,
        config: DictConfig,
        fixed: Sequence[str],
        keys: Mapping[str, str],
        metric: str,
    ) -> None:
        self._given = {"hydra_context": context, "task_function": task}
        self._config = config
        self._fixed = list(fixed)
        self._keys = dict(keys)
        self._metric = metric
        self._process = os.getpid()
        self._singletons = Singleton.get_state()

    def __call__(self, trial: Context) -> Mapping[str, Any]:
        """Run the job; returns its metrics, and raises what it raises."""
        if os.getpid() != self._process:
            Singleton.set_state(self._singletons)
        overrides = [f"{self._keys[name]}={encoded(value)}" for name, value in trial.params.items()]
        with JobFiles(trial) as files:
            config = self._with_variables(files.variables)
            launcher = Plugins.instance().instantiate_launcher(**self._given, config=config)
            (job,) = launcher.launch([[*self._fixed, *overrides]], initial_job_idx=trial.number)
            returned = job.return_value
        if returned is None or isinstance(returned, Mapping):
            return {**files.result, **(returned or {})}
        return {**files.result, self._metric: returned}

    def _with_variables(self, variables: Mapping[str, str]) -> DictConfig:
        """The configuration of a job; overrides of Hydra itself are not part of a job's name."""
        config = deepcopy(self._config)
        with read_write(config), open_dict(config):
            for name, text in variables.items():
                quoted = QuotedString(text, Quote.single).with_quotes()
                config.hydra.overrides.hydra.append(f"+hydra.job.env_set.{name}={quoted}")
        return config


def plain(value: Any) -> Any:
    """A list or mapping of Hydra's configuration as one of Python, at any depth."""
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True)
    return {key: plain(one) for key, one in value.items()} if isinstance(value, dict) else value


def named(key: str) -> str:
    """The name of the parameter for a key: "+db@src" is "db_src"."""
    return re.sub(r"[^\w.]", "_", key.lstrip("+"))


def parameter(override: Override) -> Parameter:
    """The parameter of a sweep in Hydra's words."""
    key, value = named(override.get_key_element()), override.value()
    if override.is_interval_sweep():
        kind = Int if isinstance(value.start, int) and isinstance(value.end, int) else Float
        return kind(key, value.start, value.end, log="log" in value.tags)
    values = list(override.sweep_iterator(transformer=Transformer.encode))
    if override.is_range_sweep() and len(values) > 1 and all(type(v) is int for v in values):
        return Int(key, min(values), max(values), step=abs(values[1] - values[0]))
    plain = [v if isinstance(v, int | float) else Transformer.str(v) for v in values]
    return Choice(key, plain, ordered=override.is_range_sweep())


def encoded(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    return json.dumps(value) if value is None or isinstance(value, bool | tuple) else str(value)
