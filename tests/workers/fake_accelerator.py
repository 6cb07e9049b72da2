"""A device of its own kind in a process without a GPU, and a program that trains on it.

Its tensors lie in main memory, but call themselves another device, and refuse to be mixed with the
CPU's as CUDA's do. `trained` runs trials on it in a new process, because torch takes one such
device for good.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

NAME = "fakegpu"
COPIES = ("aten::copy_", "aten::_to_copy")
INDEXED = ("aten::index.Tensor", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put")
SCALARS_TOO = ("aten::_fused_", "aten::_foreach_")  # their kernels take no number of the CPU


class FakeGpuTensor(torch.Tensor):
    """A tensor of the fake device; `raw` has its numbers, on the CPU."""

    raw: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride() if raw.layout is torch.strided else None,
            storage_offset=raw.storage_offset() if raw.layout is torch.strided else None,
            dtype=raw.dtype,
            layout=raw.layout,
            device=torch.device(NAME, 0),
        )
        made.raw = raw
        return made

    def __repr__(self, **given: Any) -> str:
        return f"FakeGpuTensor({self.raw})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @property
    def data(self) -> Any:
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, value: FakeGpuTensor) -> None:
        torch.Tensor.data.__set__(self, value)
        self.raw = value.raw

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if op.name() == "aten::_has_compatible_shallow_copy_type":
            return False
        refuse_mixtures(op, (args, kwargs))
        wanted = kwargs.get("device")
        raws = dict(kwargs)
        if wanted is not None and torch.device(wanted).type == NAME:
            raws["device"] = "cpu"
        raw_args, raws = pytree.tree_map_only(FakeGpuTensor, lambda t: t.raw, (args, raws))
        out = OWN.get(op.name(), op)(*raw_args, **raws)
        if wanted is not None and torch.device(wanted).type != NAME:
            return out
        with torch.inference_mode(False):  # a view of a weight cannot be an inference tensor
            out = pytree.tree_map_only(torch.Tensor, FakeGpuTensor, out)
        return return_and_correct_aliasing(op, args, kwargs, out)


def gru_cell(inputs: Any, hidden: Any, hx: Any, input_bias: Any = None, hidden_bias: Any = None):
    """The kernel of GPUs for a step of a GRU: the new state, and what backward needs."""
    inputs = inputs if input_bias is None else inputs + input_bias
    hidden = hidden if hidden_bias is None else hidden + hidden_bias
    (ir, i_keep, i_new), (hr, h_keep, h_new) = inputs.chunk(3, -1), hidden.chunk(3, -1)
    r, z = (ir + hr).sigmoid(), (i_keep + h_keep).sigmoid()
    new = (i_new + r * h_new).tanh()
    return new + z * (hx - new), torch.cat([r, z, new, hx, h_new], -1)


def gru_cell_backward(grad: Any, workspace: Any, has_bias: bool) -> Any:
    """The gradients of `gru_cell` for its arguments."""
    r, z, new, hx, h_new = workspace.chunk(5, -1)
    d_new = grad * (1 - z) * (1 - new * new)
    d_r, d_z = d_new * h_new * r * (1 - r), grad * (hx - new) * z * (1 - z)
    inputs, hidden = torch.cat([d_r, d_z, d_new], -1), torch.cat([d_r, d_z, d_new * r], -1)
    biases = (inputs.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return inputs, hidden, grad * z, *biases


def lstm_cell(inputs: Any, hidden: Any, cx: Any, input_bias: Any = None, hidden_bias: Any = None):
    """The kernel of GPUs for a step of an LSTM: both new states, and what backward needs."""
    gates = inputs + hidden
    gates = gates if input_bias is None else gates + input_bias + hidden_bias
    i, f, new, o = gates.chunk(4, -1)
    i, f, new, o = i.sigmoid(), f.sigmoid(), new.tanh(), o.sigmoid()
    cy = f * cx + i * new
    return o * cy.tanh(), cy, torch.cat([i, f, new, o], -1)


def lstm_cell_backward(
    grad_hy: Any, grad_cy: Any, cx: Any, cy: Any, workspace: Any, has_bias: bool
) -> Any:
    """The gradients of `lstm_cell` for its gates, its state and its bias."""
    i, f, new, o = workspace.chunk(4, -1)
    grad_hy = torch.zeros_like(cx) if grad_hy is None else grad_hy
    squashed = cy.tanh()
    d_c = grad_hy * o * (1 - squashed**2) + (0 if grad_cy is None else grad_cy)
    parts = [d_c * new * i * (1 - i), d_c * cx * f * (1 - f), d_c * i * (1 - new**2)]
    gates = torch.cat([*parts, grad_hy * squashed * o * (1 - o)], -1)
    return gates, d_c * f, gates.sum(0) if has_bias else None


OWN = {
    "aten::_thnn_fused_lstm_cell": lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "aten::_thnn_fused_gru_cell": gru_cell,
    "aten::_thnn_fused_gru_cell_backward": gru_cell_backward,
    # A collective call of this device is over when it returns.
    "_c10d_functional::_wrap_tensor_autograd": lambda t: torch.ops._c10d_functional.wait_tensor(t),
}


def refuse_mixtures(op: Any, given: Any) -> None:
    """Raise if tensors of the CPU are among the arguments and CUDA would not take them.

    CUDA's kernels take scalars, and indices, of the CPU.
    """
    name = op.name()
    strays = [
        tensor
        for tensor in pytree.tree_leaves(given)
        if isinstance(tensor, torch.Tensor) and not isinstance(tensor, FakeGpuTensor)
    ]
    if name == "aten::_foreach_mul_.Scalar":  # takes each tensor by itself if they are mixed
        return
    if name.startswith(COPIES) or name.startswith(INDEXED):
        return
    if not name.startswith(SCALARS_TOO):
        strays = [tensor for tensor in strays if tensor.ndim]
    if strays:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, {name} got one of "
            f"{strays[0].device} and shape {tuple(strays[0].shape)} beside those of {NAME}"
        )


def _empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **more: Any) -> Any:
    plain = memory_format or torch.contiguous_format
    return FakeGpuTensor(torch.empty(size, dtype=dtype, memory_format=plain, device="cpu"))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **more: Any) -> Any:
    return FakeGpuTensor(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:
    """`torch.tensor(number, device=...)` ends here; it steps over the class of the tensor."""
    raws = [t.raw if isinstance(t, FakeGpuTensor) else t for t in (source, target)]
    raws[1].copy_(raws[0])
    return target


def _in_half(op: Any) -> Any:
    """What autocast makes of an operation: its arguments become the half format."""

    def cast(*args: Any) -> Any:
        half = torch.get_autocast_dtype(NAME)
        with torch.autocast(NAME, enabled=False):
            return op(
                *pytree.tree_map_only(
                    torch.Tensor, lambda t: t.to(half) if t.dtype is torch.float32 else t, args
                )
            )

    return cast


class _Queue:
    """A stream or an event of a device that computes at once."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self.record = self.record_event = self.wait_event = self.wait_stream = lambda *given: self


def install() -> Any:
    """Make the device known to torch in this process, for good."""
    from torch.distributed.fsdp._fully_shard import _fsdp_init, _fsdp_param, _fsdp_param_group
    from torch.utils import backend_registration

    module: Any = backend_registration._DummyBackendModule()
    module.Stream = module.current_stream = module.Event = _Queue
    module.stream = lambda queue: nullcontext()
    module.get_rng_state = lambda device: torch.get_rng_state()
    module.set_rng_state = lambda state, device: torch.set_rng_state(state)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    backend_registration._setup_privateuseone_for_python_backend(NAME, module)
    # The tensors are objects of a class, so they take the places of parameters as wholes.
    _fsdp_init.is_traceable_wrapper_subclass = lambda tensor: True  # fully_shard moves it so
    free, allocate = _fsdp_param.free_storage, _fsdp_param.alloc_storage
    _fsdp_param.free_storage = lambda tensor: free(getattr(tensor, "raw", tensor))
    for module in (_fsdp_param, _fsdp_param_group):
        module.alloc_storage = lambda tensor: allocate(getattr(tensor, "raw", tensor))
    torch.__future__.set_swap_module_params_on_conversion(True)
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    key = "AutocastPrivateUse1"
    for name in ("linear", "matmul", "mm", "bmm", "addmm", "conv1d", "conv2d"):
        library.impl(name, _in_half(getattr(torch.ops.aten, name)), key)
    others = torch.library.Library("_", "IMPL", key)
    others.fallback(torch.library.fallthrough_kernel)
    return library, others


def trained(
    folder: Path, cases: Sequence[dict[str, Any]], fault: str = "", ranks: int = 1
) -> list[dict[str, Any]]:
    """Run each case on the device, in new processes.

    Args:
        folder: for the trials.
        cases: `workload`, `params`, `fixed` and `data` of a trial, and whether to `resume` it.
        fault: a statement that is run first, for tests of this file.
        ranks: processes that train each case together; they meet at gloo.

    Returns:
        For each case and rank: `failure`, `message`, `traceback`, `updates`, `losses`, and
        `strays`, the names of weights and states that lie elsewhere.
    """
    folder.mkdir(exist_ok=True)
    errors = [folder / f"errors-{rank}" for rank in range(ranks)]  # a pipe could fill up
    started = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder), fault, str(rank), str(ranks)],
            stdin=subprocess.PIPE,
            stderr=errors[rank].open("w"),
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        for rank in range(ranks)
    ]
    try:
        for process in started:
            assert process.stdin is not None
            process.stdin.write(json.dumps(cases))
            process.stdin.close()
        for process in started:
            assert process.wait() == 0, "\n".join(path.read_text()[-4000:] for path in errors)
    finally:
        for process in started:
            process.kill()
    found = [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(ranks)]
    return [one for same in zip(*found, strict=True) for one in same]


def _one(
    folder: Path, case: dict[str, Any], strays: list[str], rank: int, ranks: int
) -> dict[str, Any]:
    from toy import objective

    from workers.context import Context
    from workers.protocol import Assignment
    from workers.run import run

    strays.clear()
    fixed = {**case.get("fixed", {}), "max_epochs": 4}
    reports: list[Any] = []
    attempts = (False, True) if case.get("resume") else (False,)
    for attempt, resume in enumerate(attempts):
        assignment = Assignment(
            "s",
            0,
            1 + attempt,
            case["params"],
            case["workload"],
            str(folder),
            case.get("data", {}),
            {**fixed, "max_updates": 2 + 2 * attempt, "passes": 1},
            seed=3,
            resume=resume,
            num_ranks=ranks,
        )
        context = Context(
            assignment,
            send=reports.append,
            rank=rank,
            world_size=ranks,
            rendezvous=f"file://{folder}-{attempt}" if ranks > 1 else "",
            device=f"{NAME}:0",
        )
        outcome = run(context, None if case["workload"] else objective)
    return {
        "failure": outcome.failure,
        "message": outcome.message,
        "traceback": outcome.details.get("traceback"),
        "updates": outcome.metrics.get("updates"),
        "losses": [r.metrics["train_loss"] for r in reports if "train_loss" in r.metrics],
        "strays": list(strays),
    }


def _watch(strays: list[str]) -> None:
    """Note the weights and states of optimizers that are not on the device after a training."""
    from workers.training import optimizers
    from workers.training.trainer import Trainer

    optimizers.reading_waits = lambda device: device.type == NAME
    close = Trainer.close

    def watched(self: Trainer, failed: bool) -> None:
        state = self.optimizer.state
        for name, parameter in self.strategy.parameters().items():
            held = {"weight": parameter, "gradient": parameter.grad, **state.get(parameter, {})}
            strays.extend(
                f"{key} of {name}"
                for key, value in held.items()
                if isinstance(value, torch.Tensor) and value.ndim and value.device.type != NAME
            )
        close(self, failed)

    Trainer.close = watched


def main() -> None:
    folder, fault, rank, ranks = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
    kept = SimpleNamespace(library=install(), strays=[])
    torch.set_num_threads(1)
    _watch(kept.strays)
    exec(fault, {})
    cases = json.loads(sys.stdin.read())
    found = [
        _one(folder / str(index), case, kept.strays, rank, ranks)
        for index, case in enumerate(cases)
    ]
    (folder / f"found-{rank}.json").write_text(json.dumps(found))
    os._exit(0)  # the threads of this device cannot be ended


if __name__ == "__main__":
    main()
