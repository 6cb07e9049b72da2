"""Actions of agents: programs that run trials of a sweep without being started by it."""

from __future__ import annotations

from typing import Final

from automl.errors import FAILURE_KINDS

from .action import Action, Argument
from .arguments import JSON, STORE, SWEEP
from .headings import AGENTS as HEADING

_AGENT: Final = Argument(
    "agent",
    help="Who runs the trial.  [default: user and host]",
    flag="--agent",
    metavar="NAME",
    default="",
)

AGENTS: Final = (
    Action(
        "ask",
        HEADING,
        "Get a trial to run elsewhere.",
        """Get a trial of a sweep and run it in a program of your own, in any language, anywhere.

        A running sweep answers within a second; without one, this command suggests the trial
        itself. Report steps and the end of the trial with `automl tell`. If nothing comes before
        the lease is over, the trial is tried again.""",
        (
            "automl sweep mine.yaml --create",
            "automl ask mine --json",
            "automl ask mine --lease 2h --json | jq .params",
        ),
        (
            SWEEP,
            Argument(
                "lease",
                "duration",
                "Give the trial back after this time without a report, such as 90s or 2h.  "
                "[default: the sweep's timeout, else 60s]",
                "--lease",
                metavar="TIME",
            ),
            _AGENT,
            STORE,
            JSON,
        ),
        "automl.cli.agents.ask",
        "write",
        exits="Exit status: 3 if the sweep has no more trials to give.",
    ),
    Action(
        "tell",
        HEADING,
        "Report a step of a trial from `automl ask`, or its result.",
        """End a trial that `automl ask` has given: by its metrics, or by a failure.

        With --step, the trial goes on: the metrics are a report, which renews its lease. The
        metrics of a result are added to the reported ones. You may send the same result twice. A
        different one, or one after the lease, is refused.""",
        (
            "automl tell mine 3 --step 100 loss=0.5 || automl tell mine 3",
            "automl tell mine 3 --attempt 1 loss=0.12 seconds=81.5",
            'automl tell mine 3 --failed out_of_memory --message "asked for 12 GB"',
        ),
        (
            SWEEP,
            Argument("trial", int, "Its number.", metavar="TRIAL", min=0, required=True),
            Argument(
                "metrics",
                "metrics",
                "Numbers by name, or the value of the only goal.",
                metavar="[METRIC=VALUE]...",
                many=True,
            ),
            Argument("step", int, "Report the metrics at this step.", "--step", metavar="S"),
            Argument(
                "failed",
                tuple(FAILURE_KINDS),
                "The trial failed. If it was preempted, it is tried again; the suggester learns "
                "from the others.",
                "--failed",
                metavar="KIND",
            ),
            Argument(
                "message",
                help="Describes the failure to a person.",
                flag="--message",
                metavar="TEXT",
                default="",
            ),
            Argument(
                "attempt",
                int,
                "Attempt that `automl ask` has printed; refused if another one runs.",
                "--attempt",
                metavar="A",
                min=1,
                required="mcp",
            ),
            _AGENT,
            STORE,
            JSON,
        ),
        "automl.cli.agents.tell",
        "write",
        exits="Exit status: 10 if a trial that has reported should stop; then save a checkpoint if "
        "you can, and tell.",
    ),
    Action(
        "mcp",
        HEADING,
        "Serve a store to agents by the Model Context Protocol.",
        """Serve the sweeps of a store to an agent by the Model Context Protocol (MCP).

        The client starts this program and speaks to it by standard input and output. Its tools
        list and read sweeps; with --allow-write also ask and tell; with --allow-run too, ab. It
        needs automl-sweep[mcp].""",
        (
            "automl mcp --store runs",
            "automl mcp --allow-write --allow-run",
        ),
        (
            STORE,
            Argument(
                "allow_write",
                bool,
                "Let the client change sweeps: get trials and tell their results.",
                "--allow-write",
                default=False,
            ),
            Argument(
                "allow_run",
                bool,
                "Let the client run programs of its own on this machine (`ab`); it keeps their "
                "runs, so it needs --allow-write too.",
                "--allow-run",
                default=False,
            ),
        ),
        "automl.cli.mcp.mcp",
    ),
)
