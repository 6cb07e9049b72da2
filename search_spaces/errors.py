"""The errors that users of this project can see, and hints for words of other tools.

AutomlError                     root; `except AutomlError` catches every deliberate error
├── UsageError                  the request is wrong: exit status 2, nothing was created
│   ├── SpaceError              a parameter, condition or constraint is malformed
│   ├── ConfigError             a configuration file or an override is wrong (automl.config)
│   ├── DataError               a data set is missing or malformed (workers)
│   └── StoreError              the store cannot be opened, is damaged, or is locked
│       └── StoreFailure        the store failed during a sweep: exit status 1, resumable
├── SpaceExhausted              every configuration of a finite space was tried
└── TrialFailure                a trial ended without a result: `kind` is the reason
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

FAILURE_KINDS: Final = (
    "out_of_memory",
    "non_finite",
    "timeout",
    "crashed",
    "preempted",
    "missing_metric",
)


def needs(feature: str, package: str, extra: str = "") -> str:
    """The message about a package that is not installed: what needs it, and how to get it."""
    return f"{feature} needs {package}: pip install " + (
        f"'automl-sweep[{extra}]'" if extra else "automl-sweep"
    )


class AutomlError(Exception):
    """Root of every error that this project raises on purpose."""


class UsageError(AutomlError, ValueError):
    """The request is wrong; the message gives the rule, the value, the place and the remedy."""


class SpaceError(UsageError):
    """A parameter, a condition, a constraint or a configuration does not fit its space."""


class ConfigError(UsageError):
    """One or more errors in a configuration file, one per line of the message."""


class DataError(UsageError):
    """A data set is missing, or one of its lines or records is malformed."""


class StoreError(UsageError):
    """The store cannot be opened or written, is damaged, or another controller holds the sweep."""


class StoreFailure(StoreError):
    """The store became unwritable during a sweep; earlier records are kept."""


class SpaceExhausted(AutomlError):
    """Every configuration of a finite space was tried."""


class TrialFailure(AutomlError):
    """A trial ended without a result.

    Args:
        kind: one of `FAILURE_KINDS`.
        message: the reason, for the user.
    """

    def __init__(self, kind: str, message: str = "") -> None:
        if kind not in FAILURE_KINDS:
            raise UsageError(f"a failure's kind is one of {', '.join(FAILURE_KINDS)}, got {kind!r}")
        super().__init__(message or kind)
        self.kind = kind
        self.message = message

    def __reduce__(self) -> tuple[type[TrialFailure], tuple[str, str]]:
        return (type(self), (self.kind, self.message))


# Words of Optuna, Ray Tune and Weights & Biases, and what they are called here.
_HERE: Final[Mapping[str, str]] = {
    "n_trials num_samples num_trials max_evals count run_cap": "`trials=50`, or "
    "`--trials 50`, is their number",
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
    "constraints_func set_constraint": "`constraints=['size <= 10']` bounds what is returned, or a "
    "number of `trial.set_user_attr`",
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
    "TrialPruned": "`raise optuna.TrialPruned`, or `trial.report(step=3, loss=0.5)` returns False "
    "to end",
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


def hint(name: object, known: Collection[str]) -> str:
    """What an unknown word is called here, behind a message; "" if that is not known.

    Args:
        known: words of ours; the most similar one is asked for, as `difflib` compares them.
    """
    if name in WORDS and name not in known:
        return f"; {WORDS[str(name)]}"
    close = difflib.get_close_matches(str(name), known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def no_attribute(owner: str, name: str, known: Iterable[str]) -> NoReturn:
    """Raise the AttributeError of a name that `owner` does not have, perhaps with a hint."""
    said = "" if name[0] == "_" else hint(name, [one for one in known if one[0] != "_"])
    raise (UnknownAttribute if said else AttributeError)(
        f"{owner} has no attribute {name!r}{said}", name=name
    )


def hinted(function: F) -> F:
    """A function whose TypeError says what an unknown keyword is called here, or how to call it."""
    signature = inspect.signature(function)
    takes = ", ".join(inspect.getfullargspec(function).args).removeprefix("self, ")

    @functools.wraps(function)
    def checked(*given: Any, **keywords: Any) -> Any:
        try:
            signature.bind(*given, **keywords)
        except TypeError as error:
            name = type(given[0]).__name__ if function.__name__ == "__init__" else function.__name__
            hints = [
                hint(n, signature.parameters) for n in keywords if n not in signature.parameters
            ]
            raise TypeError(
                f"{name}() {error}{''.join(hints) or f'; it takes {takes}, ...'}"
            ) from None
        return function(*given, **keywords)

    return cast(F, checked)
