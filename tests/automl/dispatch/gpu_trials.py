"""An objective on a fake GPU; it is imported by name, and the GPU is there before it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import fake_gpu
import torch

from workers.context import Context

CUDA = fake_gpu.in_worker()


def behave(trial: Context) -> dict[str, float]:
    """Note the process and its number of compilers; "poison" ends as a failed assertion does."""
    assert CUDA is not None
    with (trial.folder / "seen").open("a") as file:
        file.write(f"{os.getpid()} {os.environ['TORCHINDUCTOR_COMPILE_THREADS']}\n")
    if trial.params["do"] == "poison":
        CUDA.error = "device-side assert triggered"
        torch.cuda.synchronize()
    if trial.params["do"] == "late":  # nobody waits for the kernel before the trial has ended
        CUDA.error = "device-side assert triggered"
    return {"loss": 1.0}
