"""Base class of workloads that declare their space as parameters and knobs."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from search_spaces import Parameter, Space
from search_spaces.hardware import Hardware
from search_spaces.knobs import DroppedValue
from workers.context import Context
from workers.workload import Workload

from ._background import BackgroundThread
from ._data import check_options
from ._knobs import Options, dropped_of, space_of

T = TypeVar("T")


class DeclarativeWorkload(Workload):
    """Base class of workloads that declare `own` parameters, `knobs` and `constraints`.

    The module `data.py` in the folder of the workload reads the data. It defines `check(data)`,
    which raises DataError without reading the data, and `load(data)`, which caches its result for
    all trials of the process. `constraints` are expressions between parameters.
    """

    constraints: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def own(cls, hardware: Hardware) -> Sequence[Parameter]:
        """The parameters that only this workload has."""

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
        return space_of(cls, hardware, cls.own(hardware), cls.knobs(hardware), cls.constraints)

    @classmethod
    def dropped(cls, hardware: Hardware) -> Sequence[DroppedValue]:
        """See `Workload`."""
        return dropped_of(cls, hardware, cls.knobs(hardware))

    @classmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """See `Workload`."""
        cls.reader().check(data)
        check_options(fixed, cls.defaults)

    def dataset(self) -> Any:
        """The data set that the `data` section describes."""
        return self.reader().load(self.data)

    def options(self, kind: type[T], **given: Any) -> T:
        """A dataclass of type `kind`; fields that are not given are options of the same name."""
        names = [field.name for field in fields(kind) if field.name not in given]  # type: ignore[arg-type]
        return kind(**{name: self.option(name) for name in names}, **given)

    def read(self, context: Context, load: Callable[[], Any] | None = None) -> None:
        """Load the data set while polling for stop requests.

        The process keeps the data for all trials, so its memory is not counted for this trial.

        Raises:
            Stopped: the attempt must stop.
            DataError: loading failed.
        """
        with BackgroundThread(context) as background:
            background(load or self.dataset)
        if context.memory is not None:
            context.memory.restart()
