"""What a trained workload leaves behind for use elsewhere: weights, ONNX that was checked, and a model card."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from .workload import Trainable, Workload

TOLERANCE = 1e-4


def export(
    workload: Workload, trial: Path, target: Path, metrics: Mapping[str, float], found_by: str = ""
) -> dict[str, str]:
    """Write the folder `target`: what the workload exports, its configuration and a model card.

    Args:
        trial: the folder in which the trial ran.
        metrics: of the trial, for the card; found_by: a sentence on how the configuration was found.

    Returns:
        Name of each file and what it holds.

    Raises:
        UsageError: the target holds files already, or the trial holds nothing that was trained.
    """
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty; name a new folder to export to")
    target.mkdir(parents=True, exist_ok=True)
    files = dict(workload.export(trial, target))
    configuration = {
        "workload": workload.name,
        "params": dict(workload.params),
        "fixed": dict(workload.fixed),
        "data": {key: value for key, value in workload.data.items() if key != "dir"},
        "seed": workload.seed,
    }
    (target / "config.json").write_text(json.dumps(configuration, indent=1, sort_keys=True) + "\n")
    files |= {"config.json": "the configuration", "README.md": "this card"}
    (target / "README.md").write_text(card(workload, files, metrics, found_by))
    return files


def card(
    workload: Workload, files: Mapping[str, str], metrics: Mapping[str, float], found_by: str
) -> str:
    """A model card as Markdown."""
    options = {**workload.defaults, **workload.fixed, **workload.params}
    lines = [
        f"# {workload.name}",
        "",
        f"{workload.summary}.",
        "",
        found_by or "Trained alone from the shell.",
        "",
    ]
    lines += ["## Files", "", *(f"- `{name}`: {what}" for name, what in sorted(files.items())), ""]
    lines += ["## Metrics", "", "| metric | value |", "|---|---|"]
    lines += [f"| {name} | {value:.6g} |" for name, value in sorted(metrics.items())]
    lines += ["", f"Data: `{workload.data.get('name', 'builtin')}`; seed {workload.seed}.", ""]
    lines += ["## Configuration", "", "| option | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in sorted(options.items())]
    return "\n".join(lines) + "\n"


def export_trained(workload: Trainable, trial: Path, target: Path) -> dict[str, str]:
    """Weights of the newest checkpoint of a trial, and the model as ONNX.

    Raises:
        UsageError: the trial has no sound checkpoint.
    """
    from safetensors.torch import save_file

    from .training import checkpoint

    found = checkpoint.load(trial)
    if found is None:
        raise UsageError(f"{trial} holds no checkpoint to export")
    model = workload.build_model()
    model.load_state_dict(
        workload.native(found.model), strict=False
    )  # tied tensors are there under one of their names
    save_file(
        {name: tensor.contiguous() for name, tensor in found.model.items()},
        target / "model.safetensors",
    )
    batch = next(iter(workload.train_batches(0)))
    inputs = workload.inputs({key: value[:2] for key, value in batch.items()})
    return {
        "model.safetensors": "the weights",
        **to_onnx(model.eval(), inputs, target / "model.onnx"),
    }


def to_onnx(model: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> dict[str, str]:
    """Write a model as ONNX with a free batch dimension, and check its outputs in onnxruntime.

    Args:
        inputs: example inputs, each with at least two rows.

    Returns:
        The file and what is known of it; nothing where the packages `onnx` and `onnxscript` are not installed.

    Raises:
        UsageError: onnxruntime computes something else than the model.
    """
    import torch

    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        return {}
    batch = torch.export.Dim("batch")
    with quiet(), torch.no_grad():
        shapes = tuple({0: batch} for _ in inputs)
        torch.onnx.export(
            model, inputs, str(path), dynamo=True, dynamic_shapes=shapes, external_data=False
        )
    difference = _difference(model, inputs, path)
    if difference is None:
        return {path.name: "the model as ONNX (not checked: onnxruntime is not installed)"}
    if not difference <= TOLERANCE:
        path.unlink()
        raise UsageError(
            f"onnxruntime computes something else than the model: outputs differ by {difference:.2g}"
        )
    return {
        path.name: f"the model as ONNX; in onnxruntime its outputs differ by at most {difference:.1g}"
    }


def _difference(model: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> float | None:
    """Largest difference of the outputs relative to their scale, for the inputs and for one more row."""
    import torch

    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names, worst = [i.name for i in session.get_inputs()], 0.0
    for rows in (inputs, tuple(torch.cat([x, x[:1]]) for x in inputs)):
        with torch.no_grad():
            expected = model(*rows)
        found = torch.from_numpy(
            session.run(None, dict(zip(names, [x.numpy() for x in rows], strict=True)))[0]
        )
        worst = max(
            worst, float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))
        )
    return worst


@contextmanager
def quiet() -> Iterator[None]:
    """The exporter tells much that nobody asked for."""
    import contextlib
    import io

    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def write_lines(path: Path, lines: Any) -> None:
    """A text file with an item a line."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
