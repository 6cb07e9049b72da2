"""Actions of agents: programs that run trials of a sweep without being started by it."""

from __future__ import annotations

from typing import Final

from workers.failures import MAX_MESSAGE

from .action import Action, Argument, Operation
from .arguments import JSON, MAX_NAME, STORE, SWEEP
from .headings import AGENTS as HEADING

MAX_WAIT: Final = 60.0  # seconds

_TRIAL: Final = Argument("trial", int, "Its number.", metavar="TRIAL", min=0, required=True)
_METRICS: Final = Argument(
    "metrics",
    "metrics",
    "Numbers by name, or the value of the only goal; a result's are added to the reported ones.",
    metavar="METRIC=VALUE...",
    required=True,
    many=True,
)
_AGENT: Final = Argument(
    "agent",
    help="Who runs the trial.  [default: user and host]",
    flag="--agent",
    metavar="NAME",
    default="",
    max_length=MAX_NAME,
)
_ATTEMPT: Final = Argument(
    "attempt",
    int,
    "Attempt that `automl ask` has printed; refused if another one runs.",
    "--attempt",
    metavar="A",
    min=1,
    required="http",
)
_RESULT: Final = {
    "trial": (int, ""),
    "attempt": (int, ""),
    "state": (str, ""),
    "failure": (str | None, ""),
    "message": (str, ""),
    "same": (bool, "It was told before."),
}

AGENTS: Final = (
    Action(
        "ask",
        HEADING,
        "Get a trial to run elsewhere.",
        """Get a trial of a sweep and run it in a program of your own, in any language, anywhere.

        A running sweep answers within a second; without one, this command suggests the trial
        itself. Report steps with `automl report-step`, and end the trial with `automl tell` or
        `automl fail`. If neither comes before the lease is over, the trial is tried again.""",
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
            Argument(
                "wait",
                float,
                "Seconds to wait for an answer.",
                default=30.0,
                min=0,
                max=MAX_WAIT,
                on="http",
            ),
            _AGENT,
            STORE,
            JSON,
        ),
        show="automl.cli.agents.show_asked",
        operations=(
            Operation("ask", "/ask", "automl.workflows.agents.ask", "Get a trial to run."),
        ),
        role="agent",
        answer={
            "trial": (int | None, "Null if the sweep gives no more."),
            "reason": (str | None, "Why there is none."),
            "attempt": (int | None, ""),
            "params": (dict[str, object] | None, ""),
            "seed": (int | None, "For what is random in the run."),
            "lease_seconds": (float | None, ""),
            "resumed": (bool | None, "Whether an earlier attempt was begun."),
        },
        exits="Exit status: 3 if the sweep has no more trials to give.",
    ),
    Action(
        "report-step",
        HEADING,
        "Report a step of a trial from `automl ask`.",
        "Report metrics of a trial that `automl ask` has given, and renew its lease.",
        ("automl report-step mine 3 100 loss=0.5 || automl tell mine 3",),
        (
            SWEEP,
            _TRIAL,
            Argument("step", int, "Grows from report to report.", metavar="STEP", required=True),
            _METRICS,
            _ATTEMPT,
            _AGENT,
            STORE,
            JSON,
        ),
        show="automl.cli.agents.show_step",
        operations=(
            Operation(
                "report_step",
                "/trials/{trial}/report-step",
                "automl.workflows.agents.report_step",
                "Report metrics at a step, and renew the lease.",
            ),
        ),
        role="agent",
        answer={
            "trial": (int, ""),
            "attempt": (int, ""),
            "stop": (bool, "The trial should end; tell what there is."),
            "reason": (str | None, "Why it should end."),
        },
        exits="Exit status: 10 if the trial should stop; then save a checkpoint if you can, and "
        "tell.",
    ),
    Action(
        "tell",
        HEADING,
        "End a trial from `automl ask` with its result.",
        """End a trial that `automl ask` has given, with its metrics added to the reported ones.

        You may send the same result twice. A different one, or one after the lease, is refused.""",
        (
            "automl tell mine 3 loss=0.12",
            "automl tell mine 3 0.12",
            "automl tell mine 3 --attempt 1 loss=0.12 seconds=81.5",
        ),
        (SWEEP, _TRIAL, _METRICS, _ATTEMPT, _AGENT, STORE, JSON),
        show="automl.cli.agents.show_result",
        operations=(
            Operation(
                "tell",
                "/trials/{trial}/tell",
                "automl.workflows.agents.tell",
                "End a trial with its result. The same once more is accepted.",
            ),
        ),
        role="agent",
        answer=_RESULT,
    ),
    Action(
        "fail",
        HEADING,
        "End a trial from `automl ask` with a failure.",
        """End a trial that `automl ask` has given with a failure, from which the suggester learns.

        KIND is out_of_memory, non_finite, timeout, crashed, missing_metric, or preempted: the
        machine was taken away, and the trial is tried again.""",
        ('automl fail mine 3 out_of_memory --message "asked for 12 GB"',),
        (
            SWEEP,
            _TRIAL,
            Argument(
                "failure",
                "failure",
                "`preempted` is tried again; the suggester learns from the others.",
                metavar="KIND",
                required=True,
            ),
            Argument(
                "message",
                help="Describes the failure to a person.",
                flag="--message",
                metavar="TEXT",
                default="",
                max_length=MAX_MESSAGE,
            ),
            _ATTEMPT,
            _AGENT,
            STORE,
            JSON,
        ),
        show="automl.cli.agents.show_result",
        operations=(
            Operation(
                "fail",
                "/trials/{trial}/fail",
                "automl.workflows.agents.fail",
                "End a trial with a failure.",
            ),
        ),
        role="agent",
        answer=_RESULT,
    ),
    Action(
        "mcp",
        HEADING,
        "Serve a store to agents by the Model Context Protocol.",
        """Serve the sweeps of a store to an agent by the Model Context Protocol (MCP).

        The client starts this program and speaks to it by standard input and output. Its tools
        list and read sweeps and ask their surrogates; with --allow-write also ask, report_step,
        tell and fail; with --allow-run too, ab. It needs automl-sweep[mcp].""",
        (
            "automl mcp --store runs",
            "automl mcp --allow-write --allow-run",
        ),
        (
            STORE,
            Argument(
                "allow_write",
                bool,
                "Let the client change sweeps: get trials, report, tell and fail them.",
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
