"""Exporting a trained workload: its weights, an ONNX file, and a model card."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from .workload import Trainable, Workload


def export(
    workload: Workload, trial: Path, target: Path, metrics: Mapping[str, float], found_by: str = ""
) -> dict[str, str]:
    """Write the files of the workload, and a model card with its configuration, to a new folder.

    Args:
        workload: with the configuration of the trial.
        trial: the folder in which the trial ran.
        target: the folder to write to.
        metrics: of the trial, for the card.
        found_by: a sentence that says how the configuration was found.

    Returns:
        Name of each file and its content.

    Raises:
        UsageError: the target is not empty, or the trial has no weights.
    """
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty; name a new folder to export to")
    target.mkdir(parents=True, exist_ok=True)
    files = dict(workload.export(trial, target))
    files["README.md"] = "this card"
    options = {**workload.defaults, **workload.fixed, **workload.params}
    lines = [
        f"# {workload.name}",
        "",
        f"{workload.summary}.",
        "",
        found_by or "Trained alone from the shell.",
        "",
        "## Files",
        "",
        *(f"- `{name}`: {content}" for name, content in sorted(files.items())),
        "",
        "## Metrics at the end",
        "",
        "| metric | value |",
        "|---|---|",
        *(f"| {name} | {value:.6g} |" for name, value in sorted(metrics.items())),
        "",
        f"Data: `{workload.data.get('name', 'builtin')}`; seed {workload.seed}.",
        "",
        "## Configuration",
        "",
        "| option | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in sorted(options.items())),
    ]
    (target / "README.md").write_text("\n".join(lines) + "\n")
    return files


def export_trained(workload: Trainable, trial: Path, target: Path) -> dict[str, str]:
    """Write the weights of a trial's newest checkpoint, and the model as ONNX.

    Returns:
        Name of each file and its content.

    Raises:
        UsageError: the trial has no sound checkpoint.
    """
    from safetensors.torch import save_file

    from .training import checkpoint

    found = checkpoint.load(trial)
    if found is None:
        raise UsageError(f"{trial} has no checkpoint to export; train it first")
    model = workload.build_model()
    native = workload.native(found.model)
    model.load_state_dict(native, strict=False)  # tied tensors have only one of their names
    whole = {name: tensor.contiguous() for name, tensor in found.model.items()}
    save_file(whole, target / "model.safetensors")
    batch = next(iter(workload.train_batches(0)))
    inputs = workload.inputs({key: value[:2] for key, value in batch.items()})
    return {
        "model.safetensors": "the weights",
        **to_onnx(model.eval(), inputs, target / "model.onnx"),
    }


def to_onnx(model: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> dict[str, str]:
    """Write a model as ONNX with a free batch dimension.

    Args:
        model: in eval mode.
        inputs: example inputs, each with at least two rows.
        path: of the file.

    Returns:
        The file and its content; empty without the packages `onnx` and `onnxscript`.
    """
    import torch

    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        return {}
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch} for _ in inputs)
    with redirect_stdout(io.StringIO()), torch.no_grad():
        torch.onnx.export(
            model, inputs, str(path), dynamo=True, dynamic_shapes=shapes, external_data=False
        )
    return {path.name: "the model as ONNX"}


def write_lines(path: Path, lines: Any) -> None:
    """Write a text file with one item a line."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
