"""Actions of people on a sweep or a trial, also while it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from automl.core.marks import MAX_NOTE

from .action import DONE, Action, Argument, Operation
from .arguments import BY, JSON, STORE, SWEEP, TIME, TRIAL, TRIALS
from .headings import EVERY_DAY, STEER

LIMITS_OF_BUDGET: Final = (
    TRIALS,
    TIME,
    Argument("worker_time", "duration", "Time of all workers.", on="http"),
    Argument("target", float, "Value of the first goal.", on="http"),
    Argument("gain", float, "Least expected gain.", on="http"),
    Argument("until", str, "`settled`: until the recommendation is.", on="http"),
)

STEERING: Final = (
    Action(
        "stop",
        EVERY_DAY,
        "Stop a running sweep, or one trial.",
        """Ask a running sweep to stop. Its trials stop at their next report, and their results
        count.

        To interrupt a sweep and continue it later, press Ctrl-C in its own terminal instead.""",
        ("automl stop nmt", "automl stop nmt --trial 12"),
        (
            SWEEP,
            replace(TRIAL, help="Stop only this trial; the sweep goes on.", required=False),
            STORE,
            BY,
        ),
        operations=(
            Operation(
                "stop_sweep", "/stop", "automl.workflows.steering.stop_sweep", "End the sweep."
            ),
            Operation(
                "stop_trial",
                "/trials/{trial}/stop",
                "automl.workflows.steering.stop_trial",
                "End a trial at its next report; its result counts.",
            ),
        ),
    ),
    Action(
        "pause",
        STEER,
        "Pause a running trial.",
        """Pause a trial at its next report. It goes on after `automl resume SWEEP --trial N`.

        Only a trial that goes on from a checkpoint can pause. Ctrl-C pauses the whole sweep.""",
        ("automl pause nmt --trial 12",),
        (SWEEP, TRIAL, STORE, BY),
        operations=(
            Operation(
                "pause_trial",
                "/trials/{trial}/pause",
                "automl.workflows.steering.pause_trial",
                "Pause a running trial at its next report.",
            ),
        ),
    ),
    Action(
        "retry",
        STEER,
        "Try the configuration of a finished trial again.",
        "Try the configuration of a finished trial again, as a new trial.",
        ("automl retry nmt --trial 12",),
        (SWEEP, TRIAL, STORE, BY),
        operations=(
            Operation(
                "retry_trial",
                "/trials/{trial}/retry",
                "automl.workflows.steering.retry_trial",
                "Try the configuration of a finished trial again, as a new trial.",
            ),
        ),
    ),
    Action(
        "budget",
        STEER,
        "Raise the budget of a sweep, also while it runs.",
        "Raise the budget of a sweep, also while it runs. Limits that are not named stay.",
        ("automl budget nmt --trials 60", "automl budget nmt --budget 3h"),
        (SWEEP, *LIMITS_OF_BUDGET, STORE, BY),
        operations=(
            Operation(
                "set_budget",
                "/budget",
                "automl.workflows.steering.set_budget",
                "Change the limits that are named, null removes one; the others stay.",
            ),
        ),
    ),
    Action(
        "scale",
        STEER,
        "Change the number of workers; on a Ray cluster also while a sweep runs.",
        """Change the number of workers, also while a sweep runs on a Ray cluster.

        More workers begin as soon as the cluster has room for them. If there are too many, idle
        ones end at once, and the others after their trials. An interrupted sweep has this number
        when it is resumed.""",
        ("automl scale nmt 8", "automl scale nmt 64 --min 2"),
        (
            SWEEP,
            Argument(
                "workers",
                int,
                "How many, or the most of a range.",
                metavar="N",
                min=1,
                required=True,
            ),
            Argument(
                "least",
                int,
                "Keep at least M workers, and up to N while trials wait.",
                "--min",
                metavar="M",
                min=1,
            ),
            STORE,
        ),
        run="automl.cli.steering.scale",
        opens="write",
    ),
    Action(
        "enqueue",
        STEER,
        "Give the sweep a configuration to try next.",
        """Add a configuration that the sweep trains next: now if it runs, otherwise after a resume.

        A parameter that is not named has its value of the best trial so far, or its default.""",
        ("automl enqueue nmt learning_rate=3e-3 width=96",),
        (
            SWEEP,
            Argument("settings", metavar="KEY=VALUE...", required=True, many=True, on="shell"),
            Argument(
                "params",
                "params",
                "By parameter; others have their value of the best trial so far, or their default.",
                required=True,
                on="http",
            ),
            STORE,
            BY,
        ),
        run="automl.cli.steering.enqueue",
        operations=(
            Operation(
                "enqueue",
                "/enqueue",
                "automl.workflows.steering.enqueue",
                "Give the sweep a configuration to try next.",
            ),
        ),
        answer={
            **DONE,
            "params": (dict[str, object], "The whole configuration."),
            "trial": (int | None, "Number of the trial that waits; null if the sweep runs."),
        },
    ),
    Action(
        "pin",
        STEER,
        "Fix or narrow a parameter, also while the sweep runs.",
        """Fix a parameter at a value, or narrow its range, from the next suggestion on.

        A running sweep follows at once, another one after a resume. Earlier trials still count, and
        proposed trials are trained unchanged. Without a setting, the present limits are shown.""",
        (
            "automl pin nmt precision=fp32",
            "automl pin nmt learning_rate=1e-4..1e-3 attention_layout=[packed,separate]",
            "automl pin nmt --release precision",
            "automl pin nmt",
        ),
        (
            SWEEP,
            Argument(
                "settings",
                metavar="[KEY=VALUE|KEY=LOW..HIGH|KEY=[VALUE,VALUE]]...",
                many=True,
                on="shell",
            ),
            Argument("limits", "limits", "By parameter: a value, a range, or choices.", on="http"),
            Argument(
                "release",
                "names",
                "Remove the limit of a parameter.",
                "--release",
                metavar="KEY",
                many=True,
            ),
            STORE,
            JSON,
            BY,
        ),
        run="automl.cli.steering.pin",
        operations=(
            Operation(
                "pin",
                "/pin",
                "automl.workflows.steering.pin",
                "Pin or narrow parameters, or release them, from the next suggestion on.",
            ),
        ),
        answer={**DONE, "limits": (dict[str, dict[str, object]], "Those that hold now.")},
    ),
    Action(
        "mark",
        STEER,
        "Star, tag or annotate a sweep or a trial.",
        "Star, tag or annotate a sweep or a trial, at any time. Without an option, show its marks.",
        (
            'automl mark nmt --trial 12 --star --tag baseline --note "best without dropout"',
            "automl mark nmt --trial 12",
        ),
        (
            SWEEP,
            replace(TRIAL, help="Number of a trial.  [default: the sweep itself]", required=False),
            Argument("star", bool, "Give or take a star.", "--star/--no-star"),
            Argument("add_tags", "tags", "Add a tag; may be repeated.", "--tag", "WORD", many=True),
            Argument("remove_tags", "tags", "Remove a tag.", "--untag", "WORD", many=True),
            Argument(
                "note",
                help="Replace the note; '' removes it.",
                flag="--note",
                metavar="TEXT",
                max_length=MAX_NOTE,
            ),
            Argument(
                "archived", bool, "Hide the sweep in the studio's list.", "--archive/--no-archive"
            ),
            STORE,
            JSON,
            BY,
        ),
        show="automl.cli.steering.show_marks",
        operations=(
            Operation(
                "mark_sweep",
                "/mark",
                "automl.workflows.steering.mark",
                "Star, tag, annotate or archive the sweep.",
            ),
            Operation(
                "mark_trial",
                "/trials/{trial}/mark",
                "automl.workflows.steering.mark",
                "Star, tag or annotate a trial.",
                without=("archived",),
            ),
        ),
        answer={
            "star": (bool, ""),
            "tags": (list[str], ""),
            "note": (str, ""),
            "archived": (bool, ""),
            "by": (str, "Who changed them last."),
            "when": (float | None, "Seconds since 1970 of that change."),
        },
    ),
)
