"""The best configuration as a file for `automl sweep`: one trial, nothing left to tune."""

from pathlib import Path

from automl.core import SweepSpec, Trial
from automl.core.arguments import compact_json
from automl.core.text import shell_line, trained_words


def line_of(spec: SweepSpec, file: str | Path) -> str:
    """The line that runs the configuration in a file; a ledger does not know FILE:NAME."""
    words = ["automl", "sweep", str(file), *trained_words(spec)]
    return " ".join(shell_line(words).splitlines())


def learned_space(spec: SweepSpec) -> str:
    """The configuration of a sweep whose objective has declared the space as it ran."""
    head = f"# The space that the objective of the sweep {spec.name} has asked for"
    lines = [head, f"name: {spec.name}", f"goals: [{', '.join(map(str, spec.goals))}]", "space:"]
    for name, parameter in spec.space.parameters.items():
        entry = {k: v for k, v in parameter.to_dict().items() if k not in ("type", "name")}
        if parameter.kind == "choice":  # else numbers would be ordered
            entry.setdefault("ordered", False)
        if parameter.kind == "float":  # else bounds without decimals would be whole numbers
            entry |= {end: float(entry[end]) for end in ("low", "high")}
        lines.append(f"  {compact_json(name)}: {compact_json(entry)}")
    texts = [*spec.constraints, *spec.space.constraints]
    lines.append(f"constraints: [{', '.join(compact_json(str(one)) for one in texts)}]")
    trials = spec.budget.trials or 50
    return "\n".join([*lines, f"budget: {{trials: {trials}}}", f"seed: {spec.seed}", ""])


def recipe(spec: SweepSpec, trial: Trial, file: Path | None = None) -> str:
    """The configuration file of one trial of a sweep; `file` is where it is written, if known."""
    name = f"{spec.name[:58]}-best"
    how = "" if file else f"save as {name}.yaml and "
    run = f"{how}run: {line_of(spec, file or f'{name}.yaml')}"
    lines = [f"# Trial {trial.number} of the sweep {spec.name}; {run}", f"name: {name}"]
    if spec.workload:
        lines.append(f"workload: {spec.workload}")
    sections = {"data": spec.data, "fixed": spec.fixed, "reports": spec.reports}
    for section, values in sections.items():
        items = [f"  {compact_json(key)}: {compact_json(value)}" for key, value in values.items()]
        lines += [f"{section}:", *items] if values else []
    lines.append(f"goals: [{', '.join(map(str, spec.goals))}]")
    if spec.constraints:
        bounds = ", ".join(compact_json(str(one)) for one in spec.constraints)
        lines.append(f"constraints: [{bounds}]")
    lines.append("space:")
    lines += [f"  {name}: [{compact_json(value)}]" for name, value in trial.params.items()]
    lines += ["budget: {trials: 1}", "suggester: sobol"]
    lines.append(f"resources: {{cpus: {spec.resources.cpus}, gpus: {spec.resources.gpus}}}")
    return "\n".join([*lines, f"seed: {spec.seed}", ""])
