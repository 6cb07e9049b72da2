"""The best configuration as a file for `automl sweep`: one trial, nothing left to tune."""

import json
import re
from typing import Any

from automl.core import SweepSpec, Trial
from automl.core.resuming import shell_line, trained_words

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "nan", "inf"})


def recipe(spec: SweepSpec, trial: Trial) -> str:
    """The configuration file of one trial of a sweep."""
    name = f"{spec.name[:58]}-best"
    words = ["automl", "sweep", f"{name}.yaml", *trained_words(spec)]
    command = " ".join(shell_line(words).splitlines())
    lines = [
        f"# Trial {trial.number} of the sweep {spec.name}; save as {name}.yaml and run: {command}",
        f"name: {name}",
    ]
    if spec.workload:
        lines.append(f"workload: {spec.workload}")
    for section, values in (("data", spec.data), ("fixed", spec.fixed), ("reports", spec.reports)):
        items = [f"  {scalar(key)}: {scalar(value)}" for key, value in values.items()]
        lines += [f"{section}:", *items] if values else []
    lines.append(f"goals: [{', '.join(map(str, spec.goals))}]")
    if spec.constraints:
        lines.append(f"constraints: [{', '.join(scalar(str(one)) for one in spec.constraints)}]")
    lines += ["space:", *(f"  {key}: [{scalar(value)}]" for key, value in trial.params.items())]
    resources = f"resources: {{cpus: {spec.resources.cpus}, gpus: {scalar(spec.resources.gpus)}}}"
    return (
        "\n".join(
            [*lines, "budget: {trials: 1}", "suggester: sobol", resources, f"seed: {spec.seed}"]
        )
        + "\n"
    )


def scalar(value: Any) -> str:
    """A value in YAML that every parser reads alike; nested values are JSON, a subset of YAML."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):
        return (
            value if _PLAIN.fullmatch(value) and value.lower() not in _WORDS else json.dumps(value)
        )
    if isinstance(value, float):
        text = repr(value)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    return str(value) if isinstance(value, int) else json.dumps(value)
