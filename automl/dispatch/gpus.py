"""The GPUs that this process may use, and the processes of others that use them.

`nvidia-smi` knows both. A machine without it has no GPUs to share.
"""

from dataclasses import dataclass

import psutil

from workers.device.gpu import SMI_SECONDS, query
from workers.runtime.devices import named_gpus


@dataclass(frozen=True)
class SharedGpu:
    """A GPU that this process may use.

    Args:
        uuid: its name, such as "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".
        users: the processes of others that use it, each as text.
    """

    uuid: str
    users: tuple[str, ...] = ()


def shared_gpus() -> list[SharedGpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` allows, in its order; none without nvidia-smi.

    For the names see `named_gpus`. As in CUDA, a name of no GPU hides those after it. A part of a
    GPU ("MIG-...") is taken as it is.
    """
    rows = query("--query-gpu=index,uuid,memory.total")
    indices = {row[0]: row[1] for row in rows if len(row) == 3}
    if not indices:
        return []
    chosen = _chosen(indices)
    users = gpu_users() if chosen else {}
    return [SharedGpu(uuid, tuple(users.get(uuid, ()))) for uuid in chosen]


def _chosen(indices: dict[str, str]) -> list[str]:
    named = named_gpus()
    if named is None:
        return list(indices.values())
    found: list[str] = []
    for name in named:
        uuid = indices.get(name, name if name.startswith("MIG-") else "")
        if name.startswith("GPU-"):
            uuid = next((one for one in indices.values() if one.startswith(name)), "")
        if not uuid:
            break
        if uuid not in found:
            found.append(uuid)
    return found


def gpu_users(timeout: float = SMI_SECONDS) -> dict[str, list[str]]:
    """The processes of others by the UUID of the GPU that they use.

    Args:
        timeout: seconds after which none are known.
    """
    own = _own_processes()
    found: dict[str, list[str]] = {}
    for row in query("--query-compute-apps=gpu_uuid,pid,used_memory", timeout):
        if len(row) == 3 and row[1].isdigit() and int(row[1]) not in own:
            used = f" with {row[2]} MiB" if row[2].isdigit() else ""
            found.setdefault(row[0], []).append(f"{_process(int(row[1]))}{used}")
    return found


def _own_processes() -> set[int]:
    """This process and those that it has started."""
    this = psutil.Process()
    try:
        return {this.pid, *(child.pid for child in this.children(recursive=True))}
    except psutil.Error:
        return {this.pid}


def _process(pid: int) -> str:
    try:
        return f"process {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"process {pid}"
