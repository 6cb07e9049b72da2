"""Words of Optuna, Ray Tune and Weights & Biases, and what they are called here.

An error about an unknown word gets a hint from these tables.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_TRIALS: Final = "`trials=50` is the number of trials"
_GOALS: Final = 'the goals say it: `goals="minimize loss"` or `goals="maximize accuracy"`'
_STORE: Final = '`store="runs"` is the folder or URL'
_SPACE: Final = 'the space is given to `automl.sweep`: `{"lr": Float("lr", 1e-5, 0.1, log=True)}`'
_STOPPER: Final = '`stopper="asha"` stops poor trials early'
_SUGGESTER: Final = '`suggester="tpe"` and others propose configurations'
_PARAMS: Final = 'the space is given to `automl.sweep`, and the values are in `trial.params["lr"]`'
_REPORT: Final = "`trial.report(step=3, loss=0.5)` returns False if the trial should end"
_RESULT: Final = "return it with the metrics of the trial: `return {'loss': 0.1, 'size': 42}`"

# Keywords of `automl.sweep` and of `automl.Optimizer`.
CALL: Final[Mapping[str, str]] = {
    **dict.fromkeys(("n_trials", "num_samples", "num_trials", "max_evals", "count"), _TRIALS),
    **dict.fromkeys(("direction", "directions", "metric", "mode", "objectives"), _GOALS),
    **dict.fromkeys(("timeout", "time_budget_s", "max_time"), '`budget="10m"` is the time'),
    **dict.fromkeys(("n_jobs", "max_concurrent_trials", "num_workers"), "`workers=4` run at once"),
    **dict.fromkeys(("sampler", "search_alg", "method", "algo"), _SUGGESTER),
    **dict.fromkeys(("pruner", "scheduler", "early_terminate"), _STOPPER),
    **dict.fromkeys(("study_name", "project", "experiment_name"), '`name="mine"` names the sweep'),
    **dict.fromkeys(
        ("storage", "storage_path", "local_dir"), '`store="runs"` is the folder or URL'
    ),
    **dict.fromkeys(("param_space", "config", "parameters", "search_space"), "`space=` has them"),
    **dict.fromkeys(("func", "function", "trainable", "fn"), "the objective is the first argument"),
    "load_if_exists": "`resume=True` goes on with the sweep of that name",
    "callbacks": '`trackers="mlflow"` or an object of your own that inherits `Tracker`',
    "show_progress_bar": "`progress=False` is silent",
    "verbose": "`progress=False` is silent",
    "resources_per_trial": "`resources={'cpus': 2, 'gpus': 1}` is what a slot has",
    "points_to_evaluate": "`enqueue=[{...}]` are configurations to try first",
    "catch": "a trial that raises is recorded as failed, and the sweep goes on",
}
# Arguments that both need.
NEEDED: Final[Mapping[str, str]] = {
    "space": 'the parameters to tune, such as space={"lr": (1e-5, 0.1)}',
    "goals": 'a goal, such as goals="minimize loss"',
}
# Attributes of the trial that an objective gets.
TRIAL: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("suggest_float", "suggest_int", "suggest_categorical", "suggest_uniform"),
            *("suggest_loguniform", "suggest_discrete_uniform", "distributions", "config", "get"),
        ),
        _PARAMS,
    ),
    **dict.fromkeys(("should_prune", "log"), _REPORT),
    **dict.fromkeys(("set_user_attr", "set_system_attr", "user_attrs"), _RESULT),
    **dict.fromkeys(("get_checkpoint", "trial_dir"), "`trial.checkpoint_dir` is kept for resuming"),
    "study": "an objective sees its own trial only",
}
# Names in the package `automl`.
MODULE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("create_study", "optimize", "Study", "minimize", "fmin", "Tuner", "run", "agent"),
        'call `automl.sweep(objective, space, "minimize loss", trials=50)`',
    ),
    "load_study": '`automl.load("name")` reads a sweep',
    "TrialPruned": _REPORT,
    "report": _REPORT,
}
# Attributes of the result.
RESULT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("best_params", "best_config"), "`result.best.params`"),
    **dict.fromkeys(("best_value", "best_score"), "`result.best.value`"),
    **dict.fromkeys(("best_trial", "best_result", "get_best_result"), "`result.best`"),
    "best_trials": "`result.pareto`",
    **dict.fromkeys(("trials_dataframe", "get_dataframe"), "`result.to_pandas()`"),
}
# Keys of a parameter in a space of plain data, and methods of a `Space`.
SPACE: Final[dict[str, str]] = {
    "min": "`low` is the least value",
    "max": "`high` is the largest value",
    "values": "a list of choices: `[16, 32, 64]` or `{'choices': [16, 32, 64]}`",
    "value": "a list of one choice: `[16]`",
    "distribution": "`{'low': 1e-5, 'high': 0.1, 'log': True}` is logarithmic",
    **dict.fromkeys(("suggest_float", "suggest_int", "suggest_categorical", "add"), _SPACE),
}
# Keys of a configuration.
CONFIGURATION: Final[dict[str, str]] = {
    **dict.fromkeys(("trials", "n_trials", "num_samples", "run_cap"), "`budget: {trials: 50}`"),
    **dict.fromkeys(("metric", "direction", "objective"), "`goals: minimize loss`"),
    **dict.fromkeys(("method", "sampler", "search_alg", "algorithm"), "`suggester: bayes`"),
    **dict.fromkeys(("parameters", "param_space", "search_space"), "`space:` has them"),
    **dict.fromkeys(("early_terminate", "pruner", "scheduler"), "`stopper: asha`"),
    **dict.fromkeys(("program", "command"), "the command line says it: `-- python train.py`"),
}


class UnknownAttribute(AttributeError):
    """An attribute that this package calls otherwise; the message says how."""


def hint(
    words: Mapping[str, str], name: object, known: Iterable[str] = (), similarity: float = 0.6
) -> str:
    """What an unknown word is called here, behind a message; "" if that is not known.

    Args:
        words: of other libraries, with what is said about each.
        known: words of ours; the most similar one is asked for, as `difflib` compares them.
        similarity: that it has at least.
    """
    if not isinstance(name, str):
        return ""
    if name in words:
        return f"; {words[name]}"
    close = difflib.get_close_matches(name, known, 1, similarity)
    return f"; did you mean {close[0]!r}?" if close else ""


def no_attribute(owner: object, words: Mapping[str, str], name: str) -> NoReturn:
    """Raise the AttributeError that Python would raise, with a hint."""
    raise unknown_attribute(f"{type(owner).__name__!r} object", words, name, dir(owner))


def unknown_attribute(
    owner: str, words: Mapping[str, str], name: str, known: Iterable[str]
) -> AttributeError:
    """The AttributeError of a name that `owner` does not have: an UnknownAttribute with a hint."""
    public = () if name.startswith("_") else [one for one in known if not one.startswith("_")]
    words_about_it = hint(words, name, public)
    kind = UnknownAttribute if words_about_it else AttributeError
    return kind(f"{owner} has no attribute {name!r}{words_about_it}", name=name)


def hinted(function: F) -> F:
    """A function whose TypeError says what an unknown keyword is called here, and what it needs."""
    signature = inspect.signature(function)
    known = signature.parameters

    @functools.wraps(function)
    def checked(*given: Any, **keywords: Any) -> Any:
        for name in keywords.keys() - known:
            if words := hint(CALL, name, known):
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument {name!r}{words}"
                )
        missing = [*known][len(given) :]
        missing = [n for n in missing if n not in keywords and known[n].default is known[n].empty]
        if missing and NEEDED.keys() >= set(missing):
            needed = " and ".join(NEEDED[name] for name in missing)
            raise TypeError(f"{function.__name__}() needs {needed}")
        return function(*given, **keywords)

    return cast(F, checked)
