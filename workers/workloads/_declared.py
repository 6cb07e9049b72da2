"""What workloads share that are made of declared knobs, options in dataclasses, and a data set read by a module."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from search_spaces import Space
from search_spaces.hardware import Hardware
from search_spaces.knobs import Dropped
from search_spaces.parameters import Parameter
from workers.workload import Workload

from ._aside import Aside
from ._data import check_options
from ._knobs import Options, dropped_of, space_of

if TYPE_CHECKING:
    from workers.context import Context

T = TypeVar("T")


class Declared(Workload):
    """A workload that declares `own` parameters and `knobs`, and whose data `data.py` in its folder checks and loads.

    That module has `check(data)`, which raises DataError and reads nothing, and `load(data)`, which keeps what it read
    for the trials of the process. `constraints` are expressions between parameters.
    """

    constraints: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def own(cls, hardware: Hardware) -> Sequence[Parameter]:
        """The parameters of its own."""

    @classmethod
    @abstractmethod
    def knobs(cls, hardware: Hardware) -> Options:
        """The ready-made knobs of the space, with their options."""

    @classmethod
    def reader(cls) -> Any:
        """The module that reads the data."""
        return import_module(".data", cls.__module__)

    @classmethod
    def space(cls, hardware: Hardware) -> Space:
        """See `Workload`."""
        return space_of(hardware, cls.own(hardware), cls.knobs(hardware), cls.constraints)

    @classmethod
    def dropped(cls, hardware: Hardware) -> Sequence[Dropped]:
        """See `Workload`."""
        return dropped_of(hardware, cls.knobs(hardware))

    @classmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """See `Workload`."""
        cls.reader().check(data)
        check_options(fixed, cls.defaults)

    def dataset(self) -> Any:
        """What the `data` section names."""
        return self.reader().load(self.data)

    def options(self, kind: type[T], **given: Any) -> T:
        """A dataclass whose fields are options of these names, but for those that are given."""
        names = [field.name for field in fields(kind) if field.name not in given]  # type: ignore[arg-type]
        return kind(**{name: self.option(name) for name in names}, **given)

    def read(self, context: Context, load: Callable[[], Any] | None = None) -> None:
        """Load the data set while looking for a request to end; its memory is no trial's, the process keeps it for all.

        Raises:
            Stopped: there was one; DataError: whatever loading raises.
        """
        with Aside(context) as aside:
            aside(load or self.dataset)
        if context.memory is not None:
            context.memory.restart()
