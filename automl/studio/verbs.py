"""What can be done over HTTP: each verb with its path, role, body and answer.

The table is the one schema: bodies are checked by it, and the OpenAPI document is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from automl.errors import FAILURE_KINDS

from .tokens import Role

MOST_TEXT: Final = 10_000  # characters of a message
MOST_METRICS: Final = 2000  # in one body
MOST_WAIT: Final = 60.0  # seconds

Metric = Annotated[float, Field(allow_inf_nan=False)] | Literal["nan", "inf", "-inf"]
Value = bool | int | float | str | None
Choice = Value | list[Value]
Name = Annotated[str, Field(max_length=200)]
Tag = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^\S+$")]
Seconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Attempt = Annotated[int, Field(ge=1, le=2**31)]
Metrics = Annotated[dict[Name, Metric], Field(max_length=MOST_METRICS)]


class Body(BaseModel):
    """A body: no other fields, no conversion of texts to numbers."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AgentBody(Body):
    """A body of an agent."""

    agent: Name = Field("", description="Who runs the trial; by default the address of the client.")


class AskBody(AgentBody):
    """A trial is wanted."""

    lease: Seconds | None = Field(
        None,
        description="Seconds that the trial is the agent's after each sign of life; by default the "
        "sweep's timeout, else 60.",
    )
    wait: float = Field(30.0, ge=0, le=MOST_WAIT, description="Seconds to wait for an answer.")


class AttemptBody(AgentBody):
    """A body about a trial that an agent runs."""

    attempt: Attempt | None = Field(
        None, description="As `ask` has answered it: refuse if another attempt runs."
    )


class StepBody(AttemptBody):
    """Metrics at a step."""

    step: int = Field(ge=-(2**62), le=2**62, description="Grows from report to report.")
    metrics: Metrics


class TellBody(AttemptBody):
    """The result of a trial."""

    metrics: Metrics = Field(description="They are added to the reported ones.")


class FailBody(AttemptBody):
    """A trial has failed."""

    failure: Literal[tuple(FAILURE_KINDS)] = Field(  # type: ignore[valid-type]
        description="`preempted` is tried again; the suggester learns from the others."
    )
    message: str = Field("", max_length=MOST_TEXT, description="For people.")


class ActBody(Body):
    """A body of an operator."""

    by: Name = Field("", description="Who acts; by default the user who runs the studio.")


class BudgetBody(ActBody):
    """Limits that are named change, null removes one; the others stay."""

    trials: Annotated[int, Field(ge=1, le=2**31)] | None = None
    time: Seconds | None = Field(None, description="Seconds, including earlier runs.")
    worker_time: Seconds | None = Field(None, description="Seconds of all workers.")
    target: float | None = Field(None, allow_inf_nan=False, description="Value of the first goal.")
    gain: float | None = Field(None, allow_inf_nan=False, description="Least expected gain.")


class RangeBody(Body):
    """A range of numbers; without an end, the parameter's own."""

    low: float | None = Field(None, allow_inf_nan=False)
    high: float | None = Field(None, allow_inf_nan=False)


class ChoicesBody(Body):
    """Some choices of a parameter."""

    choices: list[Choice] = Field(min_length=1, max_length=10_000)


class PinBody(ActBody):
    """Parameters are pinned, narrowed, or get their whole range again."""

    limits: dict[Name, RangeBody | ChoicesBody | Choice] = Field(
        default_factory=dict, description="By parameter: a value, a range, or choices."
    )
    release: list[Name] = Field(default_factory=list, description="Parameters without a limit.")


class EnqueueBody(ActBody):
    """A configuration to try next."""

    params: dict[Name, Choice] = Field(
        description="By parameter; others have their value of the best trial so far, or their "
        "default."
    )


class MarkBody(ActBody):
    """Marks that are named change; the others stay."""

    star: bool | None = None
    add_tags: list[Tag] = Field(default_factory=list, max_length=100)
    remove_tags: list[Tag] = Field(default_factory=list, max_length=100)
    note: str | None = Field(None, max_length=4000, description='"" removes the note.')


class SweepMarkBody(MarkBody):
    """Marks of a sweep."""

    archived: bool | None = Field(None, description="Whether the list of sweeps leaves it out.")


class Answer(BaseModel):
    """An answer; later versions may add fields."""

    model_config = ConfigDict(extra="allow")


class AskAnswer(Answer):
    """A trial to run; `trial` is null if the sweep gives no more."""

    trial: int | None
    reason: str = ""
    attempt: int | None = None
    params: dict[str, Any] | None = None
    lease_seconds: float | None = None
    resumed: bool | None = Field(None, description="Whether an earlier attempt was begun.")


class StepAnswer(Answer):
    """Whether the trial should go on."""

    trial: int
    attempt: int
    stop: bool = Field(description="The trial should end; tell what there is.")
    reason: str | None = None


class TellAnswer(Answer):
    """What has become of the trial."""

    trial: int
    attempt: int
    state: str
    failure: str | None
    message: str
    same: bool = Field(description="It was told before.")


class DoneAnswer(Answer):
    """What happens, in words."""

    done: str


class EnqueueAnswer(DoneAnswer):
    """The configuration, and the number of the trial that waits; null if the sweep runs."""

    params: dict[str, Any]
    trial: int | None


class PinAnswer(DoneAnswer):
    """The limits that hold now."""

    limits: dict[str, dict[str, Any]]


class MarksAnswer(Answer):
    """The marks now; `when` in seconds since 1970."""

    star: bool
    tags: list[str]
    note: str
    archived: bool
    by: str
    when: float | None


@dataclass(frozen=True)
class HttpVerb:
    """Something that can be done.

    Args:
        name: of the function in `action_process`.
        path: below `/api/sweeps/{sweep}`.
        roles: who may do it.
        body, answer: their schemas.
        words: what it does, in a sentence.
    """

    name: str
    path: str
    roles: frozenset[Role]
    body: type[Body]
    answer: type[Answer]
    words: str

    @property
    def route(self) -> str:
        """The whole path."""
        return f"/api/sweeps/{{sweep}}{self.path}"


_AGENT: Final = frozenset({Role.AGENT})
_OPERATOR: Final = frozenset({Role.OPERATOR})
_TRIAL: Final = "/trials/{trial}"
VERBS: Final = (
    HttpVerb("ask", "/ask", _AGENT, AskBody, AskAnswer, "Get a trial to run."),
    HttpVerb(
        "report_step",
        f"{_TRIAL}/report-step",
        _AGENT,
        StepBody,
        StepAnswer,
        "Report metrics at a step, and renew the lease.",
    ),
    HttpVerb(
        "tell",
        f"{_TRIAL}/tell",
        _AGENT,
        TellBody,
        TellAnswer,
        "End a trial with its result. The same once more is accepted.",
    ),
    HttpVerb("fail", f"{_TRIAL}/fail", _AGENT, FailBody, TellAnswer, "End a trial with a failure."),
    HttpVerb("stop_sweep", "/stop", _OPERATOR, ActBody, DoneAnswer, "End the sweep."),
    HttpVerb("set_budget", "/budget", _OPERATOR, BudgetBody, DoneAnswer, "Change the budget."),
    HttpVerb(
        "pin",
        "/pin",
        _OPERATOR,
        PinBody,
        PinAnswer,
        "Pin or narrow parameters, or release them, from the next suggestion on.",
    ),
    HttpVerb(
        "enqueue",
        "/enqueue",
        _OPERATOR,
        EnqueueBody,
        EnqueueAnswer,
        "Give the sweep a configuration to try next.",
    ),
    HttpVerb(
        "mark_sweep",
        "/mark",
        _OPERATOR,
        SweepMarkBody,
        MarksAnswer,
        "Star, tag, annotate or archive the sweep.",
    ),
    HttpVerb(
        "mark_trial",
        f"{_TRIAL}/mark",
        _OPERATOR,
        MarkBody,
        MarksAnswer,
        "Star, tag or annotate a trial.",
    ),
    HttpVerb(
        "stop_trial",
        f"{_TRIAL}/stop",
        _OPERATOR,
        ActBody,
        DoneAnswer,
        "End a trial at its next report; its result counts.",
    ),
    HttpVerb(
        "pause_trial",
        f"{_TRIAL}/pause",
        _OPERATOR,
        ActBody,
        DoneAnswer,
        "Pause a running trial at its next report.",
    ),
    HttpVerb(
        "resume_trial",
        f"{_TRIAL}/resume",
        _OPERATOR,
        ActBody,
        DoneAnswer,
        "Let a paused trial go on before any new one.",
    ),
    HttpVerb(
        "retry_trial",
        f"{_TRIAL}/retry",
        _OPERATOR,
        ActBody,
        DoneAnswer,
        "Try the configuration of a finished trial again, as a new trial.",
    ),
)
