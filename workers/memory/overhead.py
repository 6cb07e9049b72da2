"""Memory that a rank takes beside its tensors.

The terms of CPUs were measured by benchmarks/training/memory.py. Those of GPUs are documented or
guessed, and have not been measured yet: benchmarks/training/gpu.py compares them with a GPU.
"""

from typing import Final

from workers.device.gpu import CONTEXT_BYTES
from workers.parallel.mesh import AXES, Mesh

CPU_BYTES: Final = 20_000_000  # libraries and threads of the first update
CPU_HALF_BYTES: Final = 35_000_000  # oneDNN's kernels and reordered weights for half precisions
CPU_RANKS_BYTES: Final = 12_000_000  # the process group
CPU_SHARE: Final = 0.02  # free pieces in the allocator, as a share of the peak

# Workspace that NVIDIA advises for Hopper, the largest (cublasSetWorkspace, cuBLAS documentation).
CUBLAS_BYTES: Final = 32 << 20
# NCCL's buffer of a channel to a peer (NCCL_BUFFSIZE, https://docs.nvidia.com/deeplearning/nccl).
NCCL_BUFFER_BYTES: Final = 4 << 20
NCCL_CHANNELS: Final = 16  # of a communicator between GPUs that NVLink joins
NCCL_PEERS: Final = 2  # a ring has two neighbours
GPU_SHARE: Final = 0.1  # free pieces in the allocator, as a share of the peak


def cpu_bytes(peak: int, num_ranks: int, *, half: bool) -> int:
    """On a CPU, where it counts as memory of the trial.

    Args:
        peak: of the tensors.
        num_ranks: of the trial.
        half: whether products are computed in bf16 or fp16.
    """
    extra = CPU_BYTES + int(peak * CPU_SHARE)
    extra += CPU_RANKS_BYTES if num_ranks > 1 else 0
    return extra + (CPU_HALF_BYTES if half else 0)


def gpu_bytes(peak: int, mesh: Mesh) -> int:
    """On a GPU, where it does not count as memory of the trial, but has to fit.

    The CUDA context, the workspace of cuBLAS, the buffers of NCCL for each axis of the mesh, and
    pieces of memory that the allocator has reserved and cannot use.

    Args:
        peak: of the tensors.
        mesh: of the trial.
    """
    return CONTEXT_BYTES + CUBLAS_BYTES + _nccl_bytes(mesh) + int(peak * GPU_SHARE)


def _nccl_bytes(mesh: Mesh) -> int:
    degrees = [int(getattr(mesh, axis)) for axis in AXES]
    peers = sum(min(degree - 1, NCCL_PEERS) for degree in degrees)
    return peers * NCCL_CHANNELS * 2 * NCCL_BUFFER_BYTES  # to send and to receive
