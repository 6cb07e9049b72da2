"""Runs a function up to `trial.prepare`, to learn which settings could not act on its loop.

`python -m automl.control.rehearsal FILE` reads a line of JSON with `params` and `settings`, and
writes one with `refused`: the first sentence of a setting that cannot act, or null. FILE is what
`workers.runtime.pickling.pickle_objective` has written.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, Final

from search_spaces import Choice, Space
from search_spaces.errors import UsageError
from workers.context import Context
from workers.protocol import Assignment

REHEARSAL_SECONDS: Final = 60.0  # then the trials say it themselves
# What `check` looks at; the strategy and its ranks come besides.
_CHECKED: Final = (
    "accumulation",
    "activation_checkpointing",
    "compile",
    "compile_scope",
    "shard_degree",
    "tensor_degree",
)


class _Reached(BaseException):
    """The function has come to `prepare`; it must not catch this as an error of its own."""


def refused(
    objective: Callable[[Any], Any], space: Space, params: Mapping[str, Any], ranks: int | str = 1
) -> str:
    """Why a setting of the space cannot act on the loop of a function; "" if each can.

    The function runs in a process of its own, up to `trial.prepare`. It is "" too if the function
    does not come there in a minute, or cannot be sent to another process.

    Args:
        params: a configuration with which the function runs.
        ranks: of a trial, or the parameter that says how many.
    """
    from workers.runtime.pickling import pickle_objective

    question = json.dumps(
        {"params": dict(params), "settings": settings_of(space, ranks)}, default=str
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "objective"
        try:
            file.write_bytes(pickle_objective(objective))
            done = subprocess.run(
                [sys.executable, "-m", __name__, str(file)],
                input=question,
                capture_output=True,
                text=True,
                timeout=REHEARSAL_SECONDS,
                env={
                    **os.environ,
                    "CUDA_VISIBLE_DEVICES": "",
                    "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                },
            )
            answer = json.loads(done.stdout.splitlines()[-1])
        except (UsageError, OSError, subprocess.TimeoutExpired, ValueError, IndexError):
            return ""
    return str(answer["refused"] or "")


def settings_of(space: Space, ranks: int | str) -> list[dict[str, Any]]:
    """The settings of a space that `check` tells apart, each with its number of `ranks`."""
    values = {}
    counted = ranks if isinstance(ranks, str) else "ranks"
    for name in dict.fromkeys(("parallelism", counted, *_CHECKED)):
        parameter = space.parameters.get(name)
        if isinstance(parameter, Choice):
            values[name] = list(parameter.choices)
    found = [dict(zip(values, one, strict=True)) for one in product(*values.values())]
    legal = [space.strip(one) for one in found if space.satisfied(space.strip(one))]
    return [
        {**dict(one), "ranks": dict(one).get(counted, 1 if isinstance(ranks, str) else ranks)}
        for one in dict.fromkeys(tuple(one.items()) for one in legal)
    ]


def main() -> None:
    """Answer the question of standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the function prints is no answer
    question = json.loads(sys.stdin.readline())
    from workers.runtime.pickling import read_objective

    sent = read_objective(Path(sys.argv[1]).read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        context = Context(Assignment("rehearsal", 0, 1, question["params"], None, folder))
        answer = rehearse(sent.objective, context, question["settings"])
    print(json.dumps({"refused": answer}), file=answers, flush=True)
    os._exit(0)  # whatever the function has started


def rehearse(
    objective: Callable[[Any], Any], context: Context, settings: Sequence[Mapping[str, Any]]
) -> str | None:
    """Run a function up to `prepare`; the first sentence of a setting that cannot act, or None."""
    found: list[str] = []

    def checking(_: Context, objects: Sequence[Any], *given: Any) -> None:
        found.extend(_sentences(objects, settings, *given))
        raise _Reached

    context.preparing = checking
    with suppress(BaseException):  # an error of the function is said by its trials
        objective(context)
    return found[0] if found else None


def _sentences(
    objects: Sequence[Any],
    settings: Iterable[Mapping[str, Any]],
    blocks: Any,
    tensor_plan: Mapping[str, str] | None,
    options: Mapping[str, Any],
) -> Iterable[str]:
    from workers.own_loop.prepare import Given, check, check_batch, plan_of

    given = Given.of(objects)
    try:
        plan = plan_of(given.model, blocks, tensor_plan or {})
        batch = next(iter(given.loader), None) if given.loader is not None else None
    except UsageError as error:
        yield str(error)
        return
    for setting in settings:
        ranks = int(setting["ranks"])
        values = {"parallelism": "ddp" if ranks > 1 else "single", **options, **setting}
        try:
            check(given, plan, values, ranks)
            if batch is not None:
                check_batch(batch, values, ranks)
        except UsageError as error:
            yield str(error)


if __name__ == "__main__":
    main()
