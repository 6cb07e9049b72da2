"""Words of Optuna, Ray Tune and Weights & Biases, and what they are called here.

An error about an unknown word gets a hint: from this table, else the most similar name of ours.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_HERE: Final[Mapping[str, str]] = {
    "n_trials num_samples num_trials max_evals count run_cap": "`trials=50` is their number",
    "direction directions metric mode objectives": 'the goals say it: `goals="minimize loss"`',
    "timeout time_budget_s max_time": '`budget="10m"` is the time',
    "n_jobs max_concurrent_trials num_workers": "`workers=4` run at once",
    "sampler search_alg method algo algorithm": '`suggester="bayes"` proposes configurations',
    "pruner scheduler early_terminate": '`stopper="asha"` stops poor trials early',
    "study_name project experiment_name": '`name="mine"` names the sweep',
    "storage storage_path local_dir": '`store="runs"` is the folder or URL',
    "param_space parameters search_space": "`space=` has them",
    "func function trainable fn": "the objective is the first argument",
    "program": "the command line says it: `-- python train.py`",
    "load_if_exists": "`resume=True` goes on with the sweep of that name",
    "callbacks": '`trackers="mlflow"` or an object of your own that inherits `Tracker`',
    "show_progress_bar verbose": "`progress=False` is silent",
    "resources_per_trial": "`resources={'cpus': 2, 'gpus': 1}` is what a slot has",
    "points_to_evaluate": "`enqueue=[{...}]` are configurations to try first",
    "catch": "a trial that raises is recorded as failed, and the sweep goes on",
    "min": "`low` is the least value",
    "max": "`high` is the largest value",
    "values value": "a list of choices: `[16, 32, 64]` or `{'choices': [16, 32, 64]}`",
    "distribution": "`{'low': 1e-5, 'high': 0.1, 'log': True}` is logarithmic",
    "suggest_uniform suggest_loguniform config distributions get add": "`automl.sweep` gets the "
    'space, or none and `trial.suggest_float` says it; a value is `trial.params["lr"]`',
    "TrialPruned": "`trial.report(step=3, loss=0.5)` returns False to end",
    "set_system_attr": "return it with the metrics: `{'loss': 1, 'n': 2}`",
    "get_checkpoint trial_dir": "`trial.checkpoint_dir` is kept for resuming",
    "study": "an objective sees its own trial only",
    "create_study optimize Study minimize fmin Tuner agent": "call `automl.sweep(objective, space, "
    '"minimize loss", trials=50)`',
    "load_study": '`automl.load("name")` reads a sweep',
    "best_params best_config": "`result.best.params`",
    "best_value best_score": "`result.best.value`",
    "best_trial best_result get_best_result": "`result.best`",
    "best_trials": "`result.pareto`",
    "trials_dataframe get_dataframe": "`result.to_pandas()`",
}
WORDS: Final = {word: said for words, said in _HERE.items() for word in words.split()}


class UnknownAttribute(AttributeError):
    """An attribute that this package calls otherwise; the message says how."""


def hint(name: object, known: Iterable[str] = ()) -> str:
    """What an unknown word is called here, behind a message; "" if that is not known.

    Args:
        known: words of ours; the most similar one is asked for, as `difflib` compares them.
    """
    names = [*known]
    if name in WORDS and name not in names:
        return f"; {WORDS[str(name)]}"
    close = difflib.get_close_matches(str(name), names, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown_attribute(owner: str, name: str, known: Iterable[str]) -> AttributeError:
    """The AttributeError of a name that `owner` does not have: an UnknownAttribute with a hint."""
    said = "" if name[0] == "_" else hint(name, [one for one in known if one[0] != "_"])
    kind = UnknownAttribute if said else AttributeError
    return kind(f"{owner} has no attribute {name!r}{said}", name=name)


def no_attribute(owner: object, name: str) -> NoReturn:
    """Raise the AttributeError that Python would raise, with a hint."""
    raise unknown_attribute(f"{type(owner).__name__!r} object", name, dir(owner))


def hinted(function: F) -> F:
    """A function whose TypeError says what an unknown keyword is called here, and what it needs."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*given: Any, **keywords: Any) -> Any:
        try:
            signature.bind(*given, **keywords)
        except TypeError as error:
            for name in keywords.keys() - signature.parameters:
                words = f"{error}{hint(name, signature.parameters)}"
                raise TypeError(f"{function.__name__}() {words}") from None
            raise
        return function(*given, **keywords)

    return cast(F, checked)
