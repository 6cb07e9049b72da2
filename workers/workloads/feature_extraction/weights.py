"""Weights of ResNet-50 from a local file, read without executing any code in it."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from search_spaces.errors import DataError

from .resnet import ResNet50

_UNUSED = ("fc.weight", "fc.bias")


def build(seed: int, path: str = "") -> ResNet50:
    """The model in eval mode, with the weights of a file, or random weights from the seed.

    Raises:
        DataError: the file is missing, damaged, or of another model.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ResNet50()
        if not path:
            _random_statistics(model)
    if path:
        _load(model, Path(path).expanduser())
    return model.eval().requires_grad_(False)


def _random_statistics(model: ResNet50) -> None:
    """Random means and variances, so that folding the norms changes the convolutions."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0.0, 0.1)  # type: ignore[union-attr]
            module.running_var.uniform_(0.8, 1.2)  # type: ignore[union-attr]


def _load(model: ResNet50, path: Path) -> None:
    state = {name: tensor for name, tensor in read(path).items() if name not in _UNUSED}
    needed = {
        name: t.shape
        for name, t in model.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    for name, shape in needed.items():
        if name not in state:
            raise DataError(f"{path} is not of ResNet-50: it has no {name}")
        if state[name].shape != shape:
            raise DataError(
                f"{path}: {name} has the shape {tuple(state[name].shape)}, "
                f"ResNet-50 needs {tuple(shape)}"
            )
    unknown = sorted(set(state) - set(model.state_dict()))
    if unknown:
        raise DataError(f"{path} is not of ResNet-50: it has {unknown[0]}")
    model.load_state_dict(state, strict=False)


def read(path: Path) -> dict[str, Tensor]:
    """Tensors by name from a safetensors file, or from a state dict saved by torch.

    Raises:
        DataError: the file is missing, damaged, or holds more than tensors.
    """
    if not path.is_file():
        raise DataError(f"there are no weights at {path}")
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (KeyboardInterrupt, SystemExit):
        raise
    except (SafetensorError, Exception) as error:
        raise DataError(
            f"{path} cannot be read as weights: {type(error).__name__}: {str(error)[:200]}"
        ) from error
    except BaseException as error:  # a malicious file can make torch raise other exceptions
        raise DataError(f"{path} cannot be read as weights: {type(error).__name__}") from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(f"{path} does not hold a state dict of tensors")
    return state
