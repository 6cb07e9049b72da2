from __future__ import annotations

import json
import os
from dataclasses import asdict, replace

import pytest

from search_spaces.hardware import Gpu, Hardware, _gpu_precisions, detect

A100 = Gpu("A100", 40 * 2**30, (8, 0), True)
T4 = Gpu("T4", 16 * 2**30, (7, 5), False)


def test_this_machine() -> None:
    found = detect()
    assert 1 <= found.num_cpus <= (os.cpu_count() or 1)
    assert found.memory_bytes > 2**28, found.host
    assert {"fp32", "gloo"} <= {*found.precisions, *found.backends}
    assert not any(map(found.lacks, {*found.precisions, *found.backends, *found.slow}))


def test_json_gives_it_back() -> None:
    for hardware in (
        detect(),
        Hardware(4, 2**34, (A100, T4), ("fp32", "fp16"), ("gloo", "nccl"), "here", {"fp16": "x"}),
    ):
        assert Hardware.from_dict(json.loads(json.dumps(asdict(hardware)))) == hardware


@pytest.mark.parametrize(
    ("hardware", "name", "said"),
    [
        (
            Hardware(2, 2**33),
            "tf32",
            "needs a CUDA GPU of capability 8.0 or later; this machine has no CUDA GPU",
        ),
        (Hardware(2, 2**33, (T4,), ("fp32", "fp16")), "tf32", "here: T4 (7.5)"),
        (
            Hardware(2, 2**33, (T4,), ("fp32", "fp16")),
            "bf16",
            "a CUDA GPU that computes in bfloat16",
        ),
        (Hardware(2, 2**33), "fp16", "that torch can autocast to float16"),
        (Hardware(2, 2**33), "int3", "what is not known"),
        (Hardware(2, 2**33), "nccl", "needs torch built with NCCL and a CUDA GPU; here: gloo"),
        (Hardware(2, 2**33), "mpi", "needs torch built with MPI; here: gloo"),
    ],
)
def test_why_something_is_missing(hardware: Hardware, name: str, said: str) -> None:
    assert said in hardware.lacks(name)


@pytest.mark.parametrize(
    ("gpus", "cuda", "precisions"),
    [
        ((A100,), True, ("fp32", "tf32", "bf16", "fp16")),
        ((T4,), True, ("fp32", "fp16")),
        ((A100, T4), True, ("fp32", "fp16")),  # a trial may land on either
        ((A100,), False, ("fp32", "bf16", "fp16")),
        ((Gpu("K80", 2**33, (3, 7), False),), True, ("fp32",)),
    ],
)
def test_what_every_gpu_can_do(
    gpus: tuple[Gpu, ...], cuda: bool, precisions: tuple[str, ...]
) -> None:
    assert _gpu_precisions(gpus, cuda) == precisions


def test_trials_see_what_their_slots_have() -> None:
    gpus = Hardware(8, 2**34, (A100,) * 4, ("fp32", "tf32", "bf16", "fp16"), ("gloo", "nccl"))
    assert gpus.in_slots(1, 1.0, None).num_slots == 4
    assert gpus.in_slots(4, 1.0, None).num_slots == 2
    assert gpus.in_slots(1, 0.5, 8).num_slots == 1, "ranks do not share a GPU"
    slices = replace(gpus, gpus=(replace(A100, name="NVIDIA A100-SXM4-80GB MIG 1g.10gb"),) * 7)
    assert slices.in_slots(1, 1.0, None).num_slots == 1, "NCCL joins no slices of a GPU"
    on_cores = gpus.in_slots(2, 0.0, None)
    assert (on_cores.gpus, on_cores.num_slots, on_cores.backends) == ((), 4, ("gloo",))
    assert on_cores.lacks("tf32")
    assert Hardware(2, 2**33).in_slots(1, 0.0, 6).num_slots == 6, (
        "a cluster has more than this machine"
    )
