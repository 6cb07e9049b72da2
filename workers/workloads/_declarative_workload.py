"""Base classes of workloads, and how they read their data.

A workload has a space of parameters and knobs; most are trained by the trainer.
"""

import gzip
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from search_spaces import Parameter, Space
from search_spaces.errors import DataError, UsageError
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from search_spaces.knobs import KNOBS, DroppedValue
from search_spaces.knobs.base import KnobSpace
from search_spaces.plugins import nearest
from workers.context import Context
from workers.workload import Trainable, Workload

T = TypeVar("T")
IntArray = npt.NDArray[np.int64]
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


def folder_of(data: Mapping[str, Any]) -> Path:
    """The folder in `data.dir`.

    Raises:
        DataError: `data.dir` is missing or does not exist.
    """
    if not data.get("dir"):
        raise DataError(
            f"data set {data.get('name')!r} needs data.dir, the folder that holds its files"
        )
    folder = Path(str(data["dir"])).expanduser()
    if not folder.exists():
        raise DataError(f"data.dir {str(folder)!r} does not exist")
    return folder


def plain_or_gzipped(path: Path) -> Path:
    """The file, or the same name with .gz; raises DataError if neither exists."""
    for candidate in (path, path.with_name(f"{path.name}.gz")):
        if candidate.is_file():
            return candidate
    raise DataError(f"there is neither {path} nor {path.name}.gz")


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, plain or gzipped, without LF or CR LF.

    Raises:
        DataError: the file cannot be read or is not UTF-8; the message gives file and line.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    lines = []
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            lines.append(line.decode().removesuffix("\r"))
        except UnicodeDecodeError as error:
            bad = f"byte {line[error.start]:#04x} at position {error.start}"
            raise DataError(f"{path}:{number}: not UTF-8: {bad}") from None
    return lines


def files_of(source: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each wanted file of a folder, sorted by name, or of a tar archive."""
    from workers.workloads._public_data import members

    if not source.is_dir():
        yield from members(source, wanted)
        return
    for path in sorted(source.rglob("*")):
        name = f"{source.name}/{path.relative_to(source).as_posix()}"
        if wanted(name):
            yield name, path.read_bytes()


def check_data_name(data: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The name of the data set, by default "builtin"; raises DataError unless it is in `names`."""
    name = str(data.get("name", "builtin"))
    if name not in names:
        hint = nearest(name, list(names))
        raise DataError(f"data.name is one of {', '.join(names)}, got {name!r}: {hint}")
    return name


def check_options(fixed: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise UsageError if a fixed option has a different type than its default."""
    for name, default in known.items():
        value = fixed.get(name, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = number if isinstance(default, float) else isinstance(value, type(default))
        if default is not None and (
            not fits or (isinstance(value, bool) and not isinstance(default, bool))
        ):
            raise UsageError(f"fixed.{name} is of type {type(default).__name__}, got {value!r}")


def hold_out(count: int, fraction: float) -> tuple[IntArray, IntArray]:
    """Indices for training and for validation, the same in every trial.

    The second array is empty if `fraction` is 0.
    """
    order = np.random.default_rng(0x5EED).permutation(count)
    held = round(count * fraction)
    return np.sort(order[held:]), np.sort(order[:held])


def epoch_order(count: int, seed: int, epoch: int) -> IntArray:
    """A permutation of `count` items that depends on (seed, epoch) only."""
    return np.random.default_rng([seed, epoch, 0x0DE5]).permutation(count)
