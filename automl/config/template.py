"""Writes a first configuration, for a workload or for a function of the user."""

import re
from pathlib import Path

from automl.core.arguments import NAME
from automl.errors import UsageError
from search_spaces.plugins import nearest

PREAMBLE = """\
# {summary}
#
#   automl sweep {file}{option} --dry-run    check it and show what would be tuned
#   automl sweep {file}{option}              run it
#
# Any value can be set on the command line too, such as budget.trials=50.

name: {name}
"""
TAIL = """
# The sweep ends at the first of these: trials, time, worker_time (summed over workers), target.
budget:
  trials: 20
  time: 1h

# suggester: bayes, tpe, sobol, random... A stopper (asha, median, curve) ends bad trials early.
suggester: bayes
stopper: none

# As many trials run at once as the machine has room for, or as many as `workers:` says.
# Of one worker; `gpus` is 1 if this machine has GPUs. Add `memory: 4GB` to limit a rank's memory.
resources: {cpus: 1}
seed: 0
"""


def for_workload(name: str, file: str) -> str:
    """A configuration that tunes everything that a workload declares for the hardware.

    Args:
        name: of the workload; file: of the configuration.

    Raises:
        UsageError: there is no such workload.
    """
    from workers.workloads import WORKLOADS

    workload = WORKLOADS.get(name)
    parts = [
        PREAMBLE.format(summary=workload.summary, name=name, file=file, option=""),
        f"workload: {name}\n\ndata:\n  name: builtin\n\n",
        f"# Several make a Pareto front.\ngoals: [{', '.join(workload.goals)}]\n\n",
        "# What is tuned: all that the workload declares for this machine, which\n"
        f"# `automl space {file}` lists; or an entry for each parameter that you choose.\n",
        "space: auto\n",
    ]
    return "".join(parts) + TAIL


def for_objective(target: str, config: str) -> str:
    """A configuration for a function in a Python file. The file is read, not run.

    Args:
        target: FILE:NAME of the function; config: file of the configuration.

    Raises:
        UsageError: `target` is not FILE:NAME, or the file defines no such function.
    """
    file, _, function = target.rpartition(":")
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--objective is FILE:NAME; {file or target!r} cannot be read: {error}"
        ) from error
    functions = dict(re.findall(r"^def (\w+)(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL))
    if function not in functions:
        hint = nearest(function, list(functions))
        raise UsageError(f"--objective: {file} has no function {function!r} at its top: {hint}")
    read = re.findall(r"params\[['\"]([A-Za-z_][\w.]*)['\"]\]", functions[function])
    names = list(dict.fromkeys(read)) or ["learning_rate"]
    entries = "\n".join(f"  {name}: {{low: 0.0, high: 1.0}}" for name in names)
    metrics = re.findall(r"return {\s*['\"](\w+)['\"]:", functions[function]) or ["loss"]
    name, option = name_of(config), f" --objective {target}"
    parts = [
        PREAMBLE.format(
            summary=f"Tune {function} of {file}", name=name, file=config, option=option
        ),
        "\n# One of the metrics that the function returns or reports.\n",
        f"goals: minimize {metrics[0]}\n",
        "\n# The parameters that it reads from trial.params. Give each a list, or a range",
        "\n# {low, high}, with log: true, type: int or default: VALUE if needed.\nspace:\n",
        entries + "\n",
    ]
    return "".join(parts) + TAIL


def name_of(file: str) -> str:
    """A name for the sweep, from the file of its configuration."""
    stem = Path(file).stem
    return stem if NAME.fullmatch(stem) else "sweep"
