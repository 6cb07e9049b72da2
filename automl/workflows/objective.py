"""What the code of an objective says: which stopper it expects, whether it goes on, what it is."""

import hashlib
import inspect
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final

from automl.control.beginning import code_of, mentions
from automl.core import parse_goals

# What a function names if it goes on from what an earlier attempt has saved.
_GOES_ON: Final = (
    *("restore", "resumed", "LightGBMCallback", "LightningCallback"),
    *("TransformersCallback", "XGBoostCallback"),
)


def usual_stopper(objective: Any, goals: Any) -> str:
    """The stopper if none is named: `median` for a function that asks `trial.should_prune()`."""
    prunes = mentions(objective, "should_prune") and len(parse_goals(goals)) == 1
    return "median" if prunes else "none"


def goes_on(objective: Any) -> bool:
    """Whether a function goes on from its checkpoint, so that a stopper may pause its trials.

    It does if it calls `trial.restore`, reads `trial.resumed` or uses one of our callbacks, which
    keep checkpoints. Otherwise its attribute `resumable` says so.
    """
    said = getattr(objective, "resumable", None)
    return mentions(objective, *_GOES_ON) if said is None else bool(said)


def digests(objective: Any) -> dict[str, str]:
    """What trials run, as a digest by name: a resume sees whether it has changed.

    Of a function: its source, that of what it calls of its module, and the numbers and texts of the
    module that they name. Of a command: its program and script. What they import is not looked at.
    """
    parts: dict[str, bytes] = {}
    # A file may not be read or has changed meanwhile, or there is no function.
    with suppress(OSError, IndexError, SyntaxError, TokenError):
        if getattr(objective, "checks_goals", False):  # a command
            paths = {word: Path(objective.folder, word) for word in objective.arguments[:3]}
            parts |= {
                word: path.read_bytes()
                for word, path in paths.items()
                if path.is_file() and path.stat().st_size < 1 << 24  # what is larger is data
            }
        else:
            codes, module = code_of(objective)
            named = [name for code in codes for name in code.co_names if not name.startswith("__")]
            values = [module[n] for n in named if isinstance(module.get(n), int | float | str)]
            name = f"{Path(codes[0].co_filename).name}:{codes[0].co_qualname}"
            parts[name] = f"{values}{''.join(map(inspect.getsource, codes))}".encode()
    return {name: hashlib.sha256(part).hexdigest()[:16] for name, part in parts.items()}


def unread(target: str | None, constraints: Sequence[Any]) -> str:
    """A line about what a file for Optuna says outside of its objective; "" for nothing.

    Args:
        target: FILE:NAME of the objective.
        constraints: of the sweep.
    """
    file = (target or "").rpartition(":")[0]
    if not file or constraints or "constraints_func" not in Path(file).read_text(errors="replace"):
        return ""
    return (
        f"{file} has a constraints_func, which only a study of Optuna calls: the numbers of "
        "set_user_attr that it reads belong into `constraints`, such as 'size <= 0'"
    )
