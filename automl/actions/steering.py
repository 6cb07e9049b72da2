"""Actions of people on a sweep or a trial, also while it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .action import Action, Argument
from .arguments import STORE, SWEEP, SWEEP_OR_NEWEST, TRIAL
from .headings import EVERY_DAY, STEER

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
            SWEEP_OR_NEWEST,
            replace(TRIAL, help="Stop only this trial; the sweep goes on.", required=False),
            STORE,
        ),
        "automl.cli.steering.stop",
        "write",
    ),
    Action(
        "pause",
        STEER,
        "Pause a running trial.",
        """Pause a trial at its next report. It goes on after `automl resume SWEEP --trial N`.

        Only a trial that goes on from a checkpoint can pause. Ctrl-C pauses the whole sweep.""",
        ("automl pause nmt 12",),
        (SWEEP, replace(TRIAL, flag=""), STORE),
        "automl.cli.steering.pause",
        "write",
    ),
    Action(
        "enqueue",
        STEER,
        "Give the sweep a configuration to try next, or a trial to try again.",
        """Add a configuration that the sweep trains next: now if it runs, otherwise after a resume.

        A parameter that is not named has its value of the best trial so far, or its default.""",
        (
            "automl enqueue nmt learning_rate=3e-3 width=96",
            "automl enqueue nmt --trial 12",
        ),
        (
            SWEEP,
            Argument("settings", metavar="[KEY=VALUE]...", many=True),
            replace(
                TRIAL,
                help="Try the configuration of this finished trial again, as a new trial.",
                required=False,
            ),
            STORE,
        ),
        "automl.cli.steering.enqueue",
    ),
    Action(
        "set",
        STEER,
        "Change the budget, the workers or the space of a sweep, also while it runs.",
        """Change a sweep: its budget, its number of workers, or what is tried of a parameter.

        A running sweep follows at once, another one after a resume. `null` removes a limit of the
        budget. A parameter takes a value, [LOW, HIGH] or a list of choices within its space, from
        the next suggestion on; `auto` is its whole range again. Earlier trials still count. The
        workers of a running sweep change only on Ray; those that are too many end after their
        trials.""",
        (
            "automl set nmt budget.trials=60 budget.time=3h",
            "automl set nmt workers=8",
            "automl set nmt 'workers={min: 2, max: 64}'",
            "automl set nmt space.precision=fp32 space.learning_rate=[1e-4,1e-3]",
            "automl set nmt space.attention_layout=[packed,separate] space.width=auto",
        ),
        (SWEEP, Argument("settings", metavar="KEY=VALUE...", required=True, many=True), STORE),
        "automl.cli.steering.set_",
    ),
)
