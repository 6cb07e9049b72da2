"""The best configuration as a file for `automl sweep`: one trial, nothing left to tune."""

from automl.core import SweepSpec, Trial
from automl.core.plain_data import yaml_scalar
from automl.core.resuming import shell_line, trained_words


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
    sections = {"data": spec.data, "fixed": spec.fixed, "reports": spec.reports}
    for section, values in sections.items():
        items = [f"  {yaml_scalar(key)}: {yaml_scalar(value)}" for key, value in values.items()]
        lines += [f"{section}:", *items] if values else []
    lines.append(f"goals: [{', '.join(map(str, spec.goals))}]")
    if spec.constraints:
        bounds = ", ".join(yaml_scalar(str(one)) for one in spec.constraints)
        lines.append(f"constraints: [{bounds}]")
    lines.append("space:")
    lines += [f"  {name}: [{yaml_scalar(value)}]" for name, value in trial.params.items()]
    lines += ["budget: {trials: 1}", "suggester: sobol"]
    lines.append(f"resources: {{cpus: {spec.resources.cpus}, gpus: {spec.resources.gpus}}}")
    return "\n".join([*lines, f"seed: {spec.seed}", ""])
