"""Checkpoints that any strategy can read: whole fp32 tensors and a JSON manifest with hashes.

    <folder>/checkpoints/00000420/model.safetensors       parameters and buffers by name
    <folder>/checkpoints/00000420/optimizer.safetensors   state by "<parameter>|<key>"
    <folder>/checkpoints/00000420/manifest.json           progress, and sha256 of the files

A large model goes on in model-2.safetensors and so on, so that a rank which receives the tensors
of all ranks need not hold them all at a time.

A checkpoint is written to a temporary folder, flushed to disk and renamed, so that every checkpoint
is complete. The last two are kept. One that does not match its hashes is skipped for the one
before. Nothing is unpickled.

While a GPU trains, the tensors are copied to main memory and a thread writes them. A process that
is killed meanwhile leaves the checkpoint before.

If the trial is to end, `save` does not wait for the disk, which may take seconds. If the power
fails then, the hashes show the damage.
"""

import re
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import Optimizer

from search_spaces.hardware import memory_limit
from workers.context import Context
from workers.files import sealed
from workers.files.arrays import StoredArray, write_arrays
from workers.files.folder import Folder
from workers.parallel.base import Strategy
from workers.parallel.transfers import Part, local, own_part
from workers.protocol import CHECKPOINTS
from workers.ranks.process_group import value_of_rank_0
from workers.workload import Trainable

FORMAT = 1
_FILES = ("model.safetensors", "optimizer.safetensors")
_FILE = re.compile(r"(model|optimizer)(-[0-9]+)?\.safetensors")
_FILE_BYTES = 256 * 2**20  # a file ends once it has this many


@dataclass
class Checkpoint:
    """The state of a training run; its tensors are whole and on the CPU.

    Args:
        model: parameters and buffers by canonical name.
        optimizer: state tensors by key (such as "exp_avg") and parameter.
        progress: counters and settings, as JSON.
    """

    model: dict[str, Tensor]
    optimizer: dict[str, dict[str, Tensor]]
    progress: dict[str, Any] = field(default_factory=dict)


def save(
    folder: Path, update: int, checkpoint: Checkpoint, keep: int = 2, *, wait: bool = True
) -> Path:
    """Write a checkpoint, replace one of the same update, and delete all but the newest `keep`.

    Args:
        folder: the trial's folder.
        update: the number of updates so far; it names the checkpoint.
        checkpoint: the state.
        keep: how many checkpoints remain.
        wait: until the files are on disk.

    Raises:
        OSError: the folder cannot be written; earlier checkpoints remain.
    """
    draft = CheckpointDraft(folder, update)
    draft.add("model", checkpoint.model)
    draft.add("optimizer", flat(checkpoint.optimizer))
    return draft.finish(checkpoint.progress, keep, wait=wait)


def flat(optimizer: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The state of an optimizer by "<parameter>|<key>"."""
    return {f"{name}|{key}": t for key, tensors in optimizer.items() for name, t in tensors.items()}


class CheckpointDraft:
    """A checkpoint that is written part by part.

    Args:
        folder: the trial's folder.
        update: the number of updates so far; it names the checkpoint.

    Raises:
        OSError: the folder cannot be written; earlier checkpoints remain.
    """

    def __init__(self, folder: Path, update: int) -> None:
        self._draft = sealed.Draft(Folder(folder, CHECKPOINTS), update)
        self._update = update
        self._waiting: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}}

    def add(self, kind: str, tensors: Mapping[str, Tensor]) -> None:
        """Add tensors of kind "model" or "optimizer"; they are written once they fill a file."""
        waiting = self._waiting[kind]
        waiting.update(tensors)
        if sum(tensor.nbytes for tensor in waiting.values()) >= _FILE_BYTES:
            self._write(kind)

    def finish(self, progress: Mapping[str, Any], keep: int = 2, *, wait: bool = True) -> Path:
        """Make this the newest checkpoint; the arguments are those of `save`."""
        for kind, waiting in self._waiting.items():
            if waiting or f"{kind}.safetensors" not in self._draft.names:
                self._write(kind)
        facts = {"format": FORMAT, "update": self._update, "progress": progress}
        return self._draft.finish(facts, keep=keep, wait=wait)

    def _write(self, kind: str) -> None:
        number = sum(name.startswith(kind) for name in self._draft.names) + 1
        name = f"{kind}-{number}.safetensors" if number > 1 else f"{kind}.safetensors"
        self._draft.write(name, partial(write_tensors, tensors=self._waiting[kind]))
        self._waiting[kind].clear()


def load(folder: Path, damaged: list[str] | None = None) -> Checkpoint | None:
    """The newest checkpoint of the trial that matches its hashes; None if there is none.

    Args:
        folder: the trial's folder.
        damaged: receives the names of newer checkpoints that are damaged.
    """
    for files in sealed.newest_first(Folder(folder, CHECKPOINTS)):
        manifest = _verified(files)
        tensors = None
        if manifest is not None:
            with suppress(OSError, SafetensorError):
                tensors = [_load(files, manifest, kind) for kind in ("model", "optimizer")]
        if manifest is None or tensors is None:
            if damaged is not None:
                damaged.append(files.path.name)
            continue
        model, moments = tensors
        optimizer: dict[str, dict[str, Tensor]] = {}
        for name, tensor in moments.items():
            parameter, _, key = name.rpartition("|")
            optimizer.setdefault(key, {})[parameter] = tensor
        return Checkpoint(model, optimizer, manifest["progress"])
    return None


def write_tensors(file: IO[bytes], tensors: Mapping[str, Tensor]) -> str:
    """Write a safetensors file one tensor at a time, without a copy of all; return its sha256."""
    arrays = {name: StoredArray.of_tensor(tensor) for name, tensor in tensors.items()}
    return write_arrays(file, arrays)


def _load(files: Folder, manifest: Mapping[str, Any], kind: str) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name in manifest["files"]:
        if name.startswith(kind):
            tensors |= load_file(files.file(name))
    return tensors


def _verified(files: Folder) -> dict[str, Any] | None:
    """The manifest if the format and all hashes are right, else None."""
    manifest = sealed.verified(files, FORMAT, *_FILES)
    if manifest is None or not isinstance(manifest.get("progress"), dict):
        return None
    return manifest if all(map(_FILE.fullmatch, manifest["files"])) else None


class CheckpointSnapshot:
    """The parts of a checkpoint in main memory, for a thread that writes them.

    Args:
        live: addresses of the memory that the training goes on to change; what lies there is
            copied.
    """

    def __init__(self, live: Set[int]) -> None:
        self._live = live
        self.parts: list[tuple[str, dict[str, Tensor]]] = []

    def add(self, kind: str, tensors: Mapping[str, Tensor]) -> None:
        """Add tensors of kind "model" or "optimizer"."""
        self.parts.append((kind, {name: self._kept(t) for name, t in tensors.items()}))

    def _kept(self, tensor: Tensor) -> Tensor:
        shared = tensor.untyped_storage().data_ptr() in self._live
        return tensor.clone() if shared else tensor


def writes_beside(device: torch.device) -> bool:
    """Whether checkpoints are written while the training goes on.

    Beside a GPU main memory and cores are free. On CPUs the copy would count as the trial's memory.
    """
    return device.type == "cuda"


class Saver:
    """Writes and reads checkpoints on rank 0, as folders may not be shared; all ranks take part.

    Args:
        workload: translates the names of its parameters (`canonical`, `native`).
        context: names the trial's folder.
        strategy: gathers and scatters the tensors of the model.
        optimizer: whose state is saved and overwritten.
        parts: of the model; rank 0 holds one of them at a time.
    """

    def __init__(
        self,
        workload: Trainable,
        context: Context,
        strategy: Strategy,
        optimizer: Optimizer,
        parts: Sequence[Part],
    ) -> None:
        self.workload = workload
        self.context = context
        self.strategy = strategy
        self.optimizer = optimizer
        self.parts = parts
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def save(self, update: int, progress: Mapping[str, Any], *, wait: bool, beside: bool) -> None:
        """Write a checkpoint of this update; see `checkpoint.save`.

        Args:
            update, progress, wait: see `checkpoint.save`.
            beside: whether a thread writes it while the training goes on, if it `writes_beside`.
        """
        self.finish()
        leads = self.context.rank == 0
        if leads and beside and writes_beside(self.strategy.device) and self._has_room():
            snapshot = CheckpointSnapshot(self._live_storages())
            self._collect(snapshot)
            self._writing = self._thread.submit(self._write, snapshot, update, progress, wait=wait)
            return
        draft = CheckpointDraft(self.context.folder, update) if leads else None
        self._collect(draft)
        if draft:
            draft.finish(progress, wait=wait)
            self.context.checkpointed()

    def finish(self) -> None:
        """Wait for the checkpoint that is being written.

        Raises:
            OSError: it could not be written; earlier checkpoints remain.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _collect(self, draft: CheckpointDraft | CheckpointSnapshot | None) -> None:
        """Add the parts of the model and of the optimizer's state, one after the other."""
        canonical = self.workload.canonical
        for part in self.parts:
            state = self.strategy.state(part)
            if draft:
                draft.add("model", canonical(state))
        for part in self.parts:
            moments = self.strategy.optimizer_state(self.optimizer, part)
            if draft:
                found = {key: canonical(tensors) for key, tensors in moments.items()}
                draft.add("optimizer", flat(found))

    def _write(
        self,
        snapshot: CheckpointSnapshot,
        update: int,
        progress: Mapping[str, Any],
        *,
        wait: bool,
    ) -> None:
        draft = CheckpointDraft(self.context.folder, update)
        for kind, tensors in snapshot.parts:
            draft.add(kind, tensors)
        draft.finish(progress, wait=wait)
        self.context.checkpointed()

    def _live_tensors(self) -> list[Tensor]:
        """What the next update changes."""
        states = own_part(self.optimizer).state.values()
        moments = (value for state in states for value in state.values())
        return [
            *self.strategy.parameters().values(),
            *self.strategy.buffers().values(),
            *(value for value in moments if isinstance(value, Tensor)),
        ]

    def _live_storages(self) -> set[int]:
        return {local(t).untyped_storage().data_ptr() for t in self._live_tensors()}

    def _has_room(self) -> bool:
        """Whether this machine's memory holds a copy of the model and its state twice."""
        held = sum(tensor.nbytes for tensor in self._live_tensors())  # of the whole, if sharded
        ranks = self.context.world_size if self.strategy.apart or self.strategy.shares_state else 1
        own = memory_limit() - psutil.Process().memory_info().rss  # in a container less is free
        return min(psutil.virtual_memory().available, own) > 2 * held * ranks

    def load(self) -> Mapping[str, Any] | None:
        """Load the newest sound checkpoint and return its progress; None if there is none."""
        damaged: list[str] = []
        leads = self.context.rank == 0
        found = load(self.context.folder, damaged) if leads else None
        if damaged:
            self.context.details["damaged_checkpoints"] = damaged
        progress: Mapping[str, Any] | None = value_of_rank_0(found.progress if found else None)
        if progress is None:
            return None
        native = self.workload.native
        self.strategy.load(native(found.model) if found else {})
        moments = {k: native(tensors) for k, tensors in found.optimizer.items()} if found else {}
        self.strategy.load_optimizer_state(self.optimizer, moments)
        return progress
