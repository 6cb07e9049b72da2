"""What each key of a configuration means, with an example; `reference` adds type and default."""

from typing import Final, NamedTuple


class KeyText(NamedTuple):
    """The words about a key.

    Args:
        meaning: in Markdown, with links from `docs/reference/`.
        example: in YAML; of a key below another one, without that.
        default: if the schema's own says too little.
    """

    meaning: str
    example: str
    default: str = ""


_PROGRAM: Final = "../guides/script.md"

KEY_TEXTS: Final = {
    "name": KeyText(
        "Name of the sweep: 1 to 64 letters, digits, `_`, `.` or `-`. "
        "If it is in use, `-2` is added.",
        "name: nmt",
        "the file's name",
    ),
    "workload": KeyText(
        "The workload to train (`automl workloads`). Leave it out for a function or a command.",
        "workload: translation",
    ),
    "data": KeyText(
        "The data set of the workload: its `name`, and settings such as `dir`.",
        "data: {name: multi30k, dir: data/multi30k}",
        "the workload's built-in data",
    ),
    "fixed": KeyText("Options of the workload that are not tuned.", "fixed: {max_epochs: 5}"),
    "space": KeyText(
        "What is tuned. A value is a list of choices, a range, or `auto` for a parameter or a knob "
        "of the workload. `space: auto` tunes all that the workload declares. "
        "See [parameters](#parameters).",
        "space:\n  learning_rate: {low: 1e-4, high: 1e-2, log: true}\n  precision: [fp32, bf16]\n"
        "  attention_layout: auto",
        "all that the workload declares",
    ),
    "space.low": KeyText("Least value.", "low: 1e-5", "the workload's"),
    "space.high": KeyText("Largest value.", "high: 0.1", "the workload's"),
    "space.log": KeyText("Whether the scale is logarithmic.", "log: true", "`false`"),
    "space.step": KeyText(
        "Distance of the values: low, low + step and so on.", "step: 16", "1 for whole numbers"
    ),
    "space.type": KeyText(
        "Kind of the parameter.", "type: int", "`int` if both bounds are whole numbers"
    ),
    "space.choices": KeyText("Values to choose from.", "choices: [sgd, adam]"),
    "space.ordered": KeyText(
        "Whether neighbours in the list are alike.", "ordered: true", "true for numbers"
    ),
    "space.when": KeyText(
        "The parameter exists only if others have these values.", "when: {optimizer: sgd}", "always"
    ),
    "space.affects": KeyText(
        "What it can change, see [affects](../concepts/affects.md).",
        "affects: quality",
        "all three",
    ),
    "space.default": KeyText("Its value in trial 0.", "default: 1e-3"),
    "goals": KeyText(
        "What is optimised: `minimize METRIC` or `maximize METRIC`, then `at the end`, "
        "`within 10m` or nothing. See [several goals](../guides/goals.md).",
        "goals: [maximize bleu within 10m, minimize seconds]",
        "the workload's",
    ),
    "constraints": KeyText(
        "Bounds on metrics, and conditions on parameters. "
        "See [constraints](../guides/constraints.md).",
        "constraints: [peak_memory_bytes <= 8e9, num_layers * width <= 512]",
    ),
    "beliefs": KeyText(
        "Expected good values by parameter; only `bayes` uses them. "
        "See [prior knowledge](../guides/prior-knowledge.md#where-good-values-probably-are).",
        "beliefs: {learning_rate: {at: 2e-3, spread: 0.1}}",
    ),
    "budget": KeyText(
        "When the sweep ends: at the first of these.", "budget: {trials: 50, time: 2h}"
    ),
    "budget.trials": KeyText("Number of trials, with trial 0 and failed ones.", "trials: 50"),
    "budget.time": KeyText("Wall-clock time of all runs of the sweep.", "time: 2h30m"),
    "budget.worker_time": KeyText(
        "Time summed over slots, as a cluster bills it.", "worker_time: 40h"
    ),
    "budget.target": KeyText("Value of the first goal that is good enough.", "target: 0.05"),
    "budget.gain": KeyText(
        "Least expected gain of another trial, in the unit of the goal. The sweep ends if `bayes` "
        "expects less three times in a row, after at least ten trials.",
        "gain: 0.001",
    ),
    "suggester": KeyText(
        "Proposes configurations: `bayes`, `ax`, `tpe`, `optuna-gp`, `sobol`, `random`, or "
        "[your own](../guides/plugins.md).",
        "suggester: tpe",
    ),
    "stopper": KeyText(
        "Ends or pauses poor trials: `none`, `asha`, `hyperband`, `median`, `curve`. "
        "See [early stopping](../guides/early-stopping.md) and [options](#options-of-stoppers).",
        "stopper: {name: asha, grace: 5, factor: 3}",
    ),
    "max_steps": KeyText(
        "The last step of a trial, if it is known; stoppers use it.", "max_steps: 100"
    ),
    "max_retries": KeyText(
        "How often a trial runs again if its configuration did not cause its failure.",
        "max_retries: 5",
    ),
    "resumable": KeyText(
        "Whether your function or command goes on from a checkpoint of its own, so that a stopper "
        "may pause it.",
        "resumable: true",
        "true for a command, else false",
    ),
    "ranks": KeyText(
        "Processes of a trial of your own function or command, one slot each. "
        "See [ranks](../guides/ranks.md).",
        "ranks: 4",
    ),
    "reports": KeyText(
        "How a command prints its metrics: a regular expression of RE2 for each, with one group; "
        f"`tensorboard` is a folder of event files. See [reports]({_PROGRAM}#reports).",
        "reports: {loss: 'val_loss (\\S+)', step: 'epoch (\\d+)'}",
    ),
    "stop_grace": KeyText(
        "Time between the request to a command to stop and SIGTERM.", "stop_grace: 1m", "`10s`"
    ),
    "workers": KeyText(
        "Number of slots: how many trials of one rank run at once. On a Ray cluster also a "
        "[range](../guides/ray.md#workers-that-come-and-go).",
        "workers: 4",
        "as many as there is room for",
    ),
    "workers.min": KeyText("Slots that are asked for all the time.", "min: 2"),
    "workers.max": KeyText("Slots that are asked for while trials wait.", "max: 64"),
    "resources": KeyText(
        "What a slot has. See [GPUs and memory](../guides/gpus.md).",
        "resources: {cpus: 4, gpus: 1, memory: 16GB}",
    ),
    "resources.cpus": KeyText("Cores.", "cpus: 4"),
    "resources.gpus": KeyText(
        "GPUs: a whole number, or a share below 1.", "gpus: 0.5", "1 if this machine has GPUs"
    ),
    "resources.memory": KeyText("What a rank may use.", "memory: 8GB", "no limit"),
    "resources.accelerator": KeyText(
        "Kind of GPU on a Ray cluster, as `ray status` shows it.", "accelerator: H100", "any"
    ),
    "store": KeyText(
        "Folder or database URL of the sweeps. See [PostgreSQL](../guides/postgresql.md).",
        "store: postgresql://automl@db.example/automl",
        "`.automl`",
    ),
    "artifacts": KeyText(
        "Folder or URL that every node reaches, for the files of trials. "
        "See [artifacts](../guides/artifacts.md).",
        "artifacts: s3://bucket/sweeps",
        "in the store",
    ),
    "seed": KeyText("Seed of everything random.", "seed: 7"),
    "timeout": KeyText(
        "A trial that shows no sign of life for so long fails as `timeout`.", "timeout: 30m"
    ),
    "trackers": KeyText(
        "Tools that the sweep is written to while it runs. "
        "See [other tools](../guides/other-tools.md).",
        "trackers: [mlflow, tensorboard]",
    ),
    "prior": KeyText(
        "Finished trials to begin with: `FILE.csv`, `optuna:URL#STUDY`, `sweep:NAME`. "
        "See [prior knowledge](../guides/prior-knowledge.md#trials-from-elsewhere).",
        "prior: [old.csv, sweep:last-week]",
    ),
}
