"""The schema of a configuration as pydantic models, and its errors in plain words."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from automl.core import Budget, Goal, parse_duration
from automl.core.goals import parse_memory
from automl.core.names import check_name
from automl.core.ranks import read_ranks
from automl.core.resources import MAX_SLOTS, accelerator_rule, gpus_rule
from automl.core.worker_range import read_workers
from automl.errors import UsageError
from search_spaces.plugins import nearest
from workers.artifacts.location import read_location

from .nodes import ConfigProblems, Location, Node, shown


def whole(value: Any) -> Any:
    """An integer for a float such as 3.0; any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _seconds(value: Any) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return parse_duration(value)
    raise UsageError(f"a duration is like 90s, 10m or 1h30m, got {shown(value)}")


def _bytes(value: Any) -> int:
    """Bytes from a whole number, or from a text such as 500MB or 1.5GB (powers of 1000)."""
    if isinstance(value, str):
        value = parse_memory(value)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise UsageError(f"an amount of memory is like 500MB or 1.5GB, got {shown(value)}")


def _number(value: Any) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise UsageError(f"a number is needed, got {shown(value)}")


def _value(value: Any) -> Value:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return tuple(map(_value, value))
    raise UsageError(
        f"a number, text, true, false, null or a list of these is needed, got {shown(value)}"
    )


def _values(value: Any) -> tuple[Value, ...]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise UsageError("at least one value is needed, got an empty list")
    return tuple(_value(item) for item in values)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _plugin(value: Any) -> str | dict[str, Any]:
    if isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("name"), str)):
        return value
    raise UsageError(f"a name, or a mapping of name and options, is needed, got {shown(value)}")


def _ranks(value: Any) -> int | str:
    return read_ranks(whole(value))


def _section(value: Any) -> Any:
    return {} if value is None else value


def _space(value: Any) -> dict[str, Any] | None:
    if value == "auto" or (isinstance(value, dict) and value):
        return None if value == "auto" else value
    raise UsageError(
        f"auto, or a mapping of parameters to what may be tried, is needed, got {shown(value)}"
    )


Value = bool | int | float | str | tuple[Any, ...] | None
Number = Annotated[int | float, PlainValidator(_number)]
Count = Annotated[int, BeforeValidator(whole), Field(ge=1)]
Slots = Annotated[int, BeforeValidator(whole), Field(ge=1, le=MAX_SLOTS)]
Seconds = Annotated[float, PlainValidator(_seconds)]
Bytes = Annotated[int, PlainValidator(_bytes)]
Plugin = Annotated[str | dict[str, Any], PlainValidator(_plugin)]
ParsedGoal = Annotated[Goal, PlainValidator(Goal.parse)]


def _gpus(value: float) -> float:
    if rule := gpus_rule(value):
        raise ValueError(rule)
    return value


class Section(BaseModel):
    """A strict section: text is not a number, a number is not text, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class BudgetSection(Section):
    """`budget:`, see `automl.core.spec.Budget`."""

    trials: Count | None = None
    time: Seconds | None = None
    worker_time: Seconds | None = None
    target: float | None = None
    gain: Annotated[float, Field(gt=0)] | None = None


class ResourcesSection(Section):
    """`resources:`, see `automl.core.spec.Resources`; `gpus` depends on the machine by default."""

    cpus: Slots = 1
    gpus: Annotated[float, Field(ge=0), AfterValidator(_gpus)] | None = None
    memory: Bytes | None = None
    accelerator: str = ""

    @model_validator(mode="after")
    def _has_gpus(self) -> ResourcesSection:
        if rule := accelerator_rule(self.accelerator, self.gpus):
            raise UsageError(rule)
        return self


class WorkersSection(Section):
    """`workers:` as a range, see `automl.core.worker_range.WorkerRange`."""

    min: Slots
    max: Slots

    @model_validator(mode="after")
    def _in_order(self) -> WorkersSection:
        read_workers(self.model_dump())
        return self


Workers = Annotated[
    Annotated[Slots, Tag("number")] | Annotated[WorkersSection, Tag("range")],
    Discriminator(lambda value: "range" if isinstance(value, dict) else "number"),
]


class Entry(Section):
    """One parameter under `space:`. Missing keys come from the declaration of the workload."""

    low: Number | None = None
    high: Number | None = None
    log: bool | None = None
    step: Number | None = None
    type: Literal["float", "int", "choice"] | None = None
    choices: Annotated[tuple[Value, ...], PlainValidator(_values)] | None = None
    ordered: bool | None = None
    when: dict[str, Annotated[tuple[Value, ...], PlainValidator(_values)]] | None = None
    affects: (
        Annotated[list[Literal["quality", "speed", "memory"]], BeforeValidator(_listed)] | None
    ) = None
    default: Annotated[Value, PlainValidator(_value)] | None = None


ENTRY_RULE = "a list of choices or {low, high, log, type, when, affects, default}"


class Document(Section):
    """The whole file. `space` entries and names of plugins are checked later."""

    name: Annotated[str, AfterValidator(check_name)] | None = None
    workload: str | None = None
    data: Annotated[dict[str, Any], BeforeValidator(_section)] = Field(default_factory=dict)
    fixed: Annotated[dict[str, Any], BeforeValidator(_section)] = Field(default_factory=dict)
    space: Annotated[dict[str, Any] | None, PlainValidator(_space)] = None
    goals: Annotated[list[ParsedGoal], BeforeValidator(_listed), Field(min_length=1)] | None = None
    constraints: Annotated[list[str], BeforeValidator(_listed)] = Field(default_factory=list)
    beliefs: Annotated[dict[str, Any], BeforeValidator(_section)] = Field(default_factory=dict)
    budget: Annotated[BudgetSection, BeforeValidator(_section)] = Field(
        default_factory=BudgetSection
    )
    suggester: Plugin = "bayes"
    stopper: Plugin = "none"
    max_steps: Count | None = None
    max_retries: Annotated[int, BeforeValidator(whole), Field(ge=0)] = 2
    resumable: bool | None = None
    ranks: Annotated[int | str, PlainValidator(_ranks)] = 1
    reports: Annotated[dict[str, str], BeforeValidator(_section)] = Field(default_factory=dict)
    stop_grace: Seconds = 10.0
    workers: Workers | None = None
    resources: Annotated[ResourcesSection, BeforeValidator(_section)] = Field(
        default_factory=ResourcesSection
    )
    store: Annotated[str, Field(min_length=1)] | None = None
    artifacts: Annotated[str, AfterValidator(read_location)] = ""
    seed: Annotated[int, BeforeValidator(whole), Field(ge=0, lt=2**32)] = 0
    timeout: Seconds | None = None
    trackers: Annotated[list[str], BeforeValidator(_listed)] = Field(default_factory=list)
    prior: Annotated[list[str], BeforeValidator(_listed)] = Field(default_factory=list)

    @property
    def most_workers(self) -> int | None:
        """The most slots; None for as many as there is room for."""
        return self.workers if isinstance(self.workers, int | None) else self.workers.max

    def settings(self) -> dict[str, Any]:
        """The arguments of `SweepSpec` that need no further checks."""
        return {
            "budget": Budget(**self.budget.model_dump()),
            "workers": self.most_workers,
            "min_workers": None if isinstance(self.workers, int | None) else self.workers.min,
            "max_steps": self.max_steps,
            "max_retries": self.max_retries,
            "ranks": self.ranks,
            "seed": self.seed,
            "timeout": self.timeout,
            "trackers": tuple(self.trackers),
            "reports": self.reports,
            "stop_grace": self.stop_grace,
            "artifacts": self.artifacts,
        }


def validate(root: Node, problems: ConfigProblems) -> Document:
    """The document. Errors go to `problems`, and a wrong key gets its default."""
    data = root.plain()
    if not isinstance(data, dict):
        problems.at(root, (), f"a configuration is a mapping of keys to values, got {shown(data)}")
        return Document()
    try:
        return Document.model_validate(data)
    except ValidationError as error:
        wrong = add_errors(error, root, (), Document, problems)
        # Without the wrong keys, so that later checks see the others.
        right = {key: value for key, value in data.items() if key not in wrong}
        return Document.model_validate(right)


def add_errors(
    error: ValidationError,
    root: Node,
    location: Location,
    model: type[BaseModel],
    problems: ConfigProblems,
) -> set[str | int]:
    """Add each error below a location of the tree; return the first keys of their paths."""
    for details in error.errors():
        # pydantic adds parts of its own (the member of a union), which are not in the tree.
        path = (*location, *details["loc"])
        depth = len(root.locate(path)) - 1
        path, text = path[: max(depth, len(location))], _text(details, model)
        if details["type"] == "extra_forbidden":  # even if the value has errors of its own
            problems.at(root.locate(path)[-1], path, text)
        else:
            problems.under(root, path, text)
    return {details["loc"][0] for details in error.errors() if details["loc"]}


def _text(details: ErrorDetails, model: type[BaseModel]) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key; {nearest(str(details['loc'][-1]), _keys(model, details['loc'][:-1]))}"
    if kind == "value_error":
        return str(context["error"])
    rule = _RULES.get(kind, details["msg"]).format(**context)
    if kind == "literal_error" and isinstance(value, str):
        close = difflib.get_close_matches(value, re.findall(r"'(.*?)'", context["expected"]), n=1)
        return f"{rule} is needed, got {value!r}" + (
            f"; did you mean {close[0]!r}?" if close else ""
        )
    return f"{rule} is needed, got {shown(value)}"


def _keys(model: type[BaseModel], location: Location) -> list[str]:
    """The known keys at a location of a model."""
    if location[:2] == ("workers", "range"):
        return sorted(WorkersSection.model_fields)
    for part in location:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            break
        model = annotation
    return sorted(model.model_fields)


_RULES = {
    "missing": "a mapping of min and max",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of names to values",
    "list_type": "a list",
    "too_short": "at least one item",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than_equal": "{le:g} or less",
    "less_than": "less than {lt:g}",
    "literal_error": "one of {expected}",
}
