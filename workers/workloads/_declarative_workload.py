"""Base classes of workloads: a space of parameters and knobs, and training by the trainer."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from search_spaces import Parameter, Space
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from search_spaces.knobs import KNOBS, DroppedValue
from search_spaces.knobs.base import KnobSpace
from workers.context import Context
from workers.workload import Trainable, Workload

from ._data import check_options

T = TypeVar("T")
Options = dict[str, dict[str, Any]]  # adjustments of knobs, by the names of the knobs
# A recorded CUDA graph reuses the memory of its outputs, which a further microbatch still needs.
_OF_GRAPHS = (
    "compile in ('off', 'default') or accumulation == 1",
    "compile in ('off', 'default') or parallelism not in ('pipeline', 'data_pipeline')",
)


class DeclarativeWorkload(Workload):
    """Base class of workloads that declare `own` parameters, `knobs` and `constraints`.

    The module `data.py` in the folder of the workload reads the data. It defines `check(data)`,
    which raises DataError without reading the data, and `load(data)`, which caches its result for
    all trials of the process. `constraints` are expressions between parameters; one is left out if
    this hardware lacks a parameter of it. `reads` names options of knobs that the workload reads
    itself and that are tuned only if a configuration names them.
    """

    constraints: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def own(cls, hardware: Hardware) -> Sequence[Parameter]:
        """The parameters that only this workload has; by default none."""
        return ()

    @classmethod
    @abstractmethod
    def knobs(cls, hardware: Hardware) -> Options:
        """The shared knobs of the space, with their options."""

    @classmethod
    def reader(cls) -> Any:
        """The module that reads the data."""
        return import_module(".data", cls.__module__)

    @classmethod
    def space(cls, hardware: Hardware) -> Space:
        """See `Workload`."""
        found = cls._resolved(hardware)
        parameters = [*cls.own(hardware), *(p for one in found for p in one.parameters)]
        names = {parameter.name for parameter in parameters}
        wanted = (*cls.constraints, *(_OF_GRAPHS if hardware.gpus else ()))
        kept = [text for text in wanted if names.issuperset(Expression(text).names)]
        return Space(
            *parameters, constraints=(*(text for one in found for text in one.constraints), *kept)
        )

    @classmethod
    def dropped(cls, hardware: Hardware) -> Sequence[DroppedValue]:
        """See `Workload`."""
        return [value for one in cls._resolved(hardware) for value in one.dropped]

    @classmethod
    def on_request(cls, hardware: Hardware) -> KnobSpace:
        """See `Workload`: the options that every training reads, and those of `reads`."""
        tuned = cls.space(hardware).parameters
        whole = KnobSpace(constraints=list(_OF_GRAPHS if hardware.gpus else ()))
        for knob in (KNOBS.get(name) for name in KNOBS.names()):
            options = knob.on_request if issubclass(cls, Trainable) else ()
            names = {option.name for option in options}
            names |= {option.name for option in knob.options if option.name in cls.reads}
            if not names - tuned.keys():
                continue
            found = knob().resolve(hardware, {"defaults": cls.defaults})
            whole.parameters += [
                p for p in found.parameters if p.name in names and p.name not in tuned
            ]
            whole.dropped += [value for value in found.dropped if value.parameter in names]
            whole.constraints += dict.fromkeys([*found.constraints, *knob.constraints])
        return whole

    @classmethod
    def _resolved(cls, hardware: Hardware) -> list[KnobSpace]:
        """The knobs on this hardware; automatic ones are added if the trainer trains this class."""
        knobs = cls.knobs(hardware)
        if issubclass(cls, Trainable):
            automatic = (name for name in KNOBS.names() if KNOBS.get(name).automatic)
            knobs = {**knobs, **{name: {} for name in automatic if name not in knobs}}
        found = []
        for name, adjustments in knobs.items():
            general: dict[str, Any] = {"defaults": cls.defaults}
            if name == "parallelism" and "strategies" not in adjustments:
                from workers.parallel import requirements

                general["strategies"] = requirements()
            found.append(KNOBS.get(name)().resolve(hardware, {**general, **adjustments}))
        return found

    @classmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """See `Workload`."""
        cls.reader().check(data)
        check_options(fixed, cls.defaults)

    def dataset(self) -> Any:
        """The data set that the `data` section describes."""
        return self.reader().load(self.data)

    def load_data(self) -> None:
        """See `Workload`."""
        self.dataset()

    def options(self, kind: type[T], **given: Any) -> T:
        """A dataclass of type `kind`; fields that are not given are options of the same name."""
        names = [field.name for field in fields(kind) if field.name not in given]  # type: ignore[arg-type]
        return kind(**{name: self.option(name) for name in names}, **given)

    def read(self, context: Context) -> None:
        """Load the data; all trials share them, so their memory is not counted for this trial."""
        self.load_data()
        if context.memory is not None:
            context.memory.restart()


class TrainedWorkload(Trainable):
    """Base class of workloads trained by gradient descent; implement the abstract methods."""

    def run(self, context: Context) -> Mapping[str, float]:
        """Train with `workers.training.trainer.train`."""
        from workers.training.trainer import train

        return train(self, context)

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """Write the weights of the newest checkpoint, and the model as ONNX if possible."""
        from workers.export import export_trained

        return export_trained(self, trial, target)
