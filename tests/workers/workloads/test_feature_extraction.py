from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from search_spaces.errors import DataError, UsageError
from workers.workloads.feature_extraction import FeatureExtraction
from workers.workloads.feature_extraction.extractor import (
    ExtractorOptions,
    prepare,
)
from workers.workloads.feature_extraction.resnet import ResNet50, build, fold_batch_norm

IMAGES = torch.randn(3, 3, 48, 48, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model() -> ResNet50:
    return build(0)


def test_parameters_have_the_published_names_and_number(model: ResNet50) -> None:
    state = model.state_dict()
    assert (
        sum(p.numel() for p in model.parameters()) == 23_508_032
    )  # 25,557,032 less the classifier's 2,049,000
    assert state["layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    assert state["layer4.2.conv3.weight"].shape == (2048, 512, 1, 1)
    assert state["layer3.5.bn2.running_var"].shape == (256,)
    assert "layer2.1.downsample.0.weight" not in state
    assert model(IMAGES).shape == (3, 2048)


def test_folding_norms_keeps_the_features(model: ResNet50) -> None:
    folded = fold_batch_norm(model)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.modules())
    torch.testing.assert_close(folded(IMAGES), model(IMAGES), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "recipe",
    [
        ExtractorOptions(memory_format="channels_last"),
        ExtractorOptions(fold=True, graph="traced"),
        ExtractorOptions("bf16", "channels_last", True, "traced"),
        ExtractorOptions("bf16"),
        ExtractorOptions(quantization="int8"),
    ],
)
def test_recipes_keep_the_features(recipe: ExtractorOptions) -> None:
    with torch.inference_mode():
        extract = prepare(build(0), recipe, IMAGES, IMAGES)
        found, expected = extract(IMAGES), build(0)(IMAGES)
    assert found.dtype == torch.float32
    assert torch.cosine_similarity(found, expected).min() > (
        0.99 if recipe.quantization == "int8" else 0.9995
    )


def saved(model: ResNet50, path: Path, extra: dict[str, torch.Tensor] | None = None) -> Path:
    state = {
        **model.state_dict(),
        "fc.weight": torch.zeros(1000, 2048),
        "fc.bias": torch.zeros(1000),
        **(extra or {}),
    }
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


@pytest.mark.parametrize("name", ["r.safetensors", "r.pth"])
def test_weights_of_a_file(tmp_path: Path, name: str) -> None:
    other = build(5)
    loaded = build(0, str(saved(other, tmp_path / name)))
    with torch.inference_mode():
        torch.testing.assert_close(loaded(IMAGES), other(IMAGES))


def test_wrong_files_are_refused(tmp_path: Path, model: ResNet50) -> None:
    with pytest.raises(DataError, match="no weights"):
        build(0, str(tmp_path / "none.pth"))
    with pytest.raises(DataError, match="not of ResNet-50: it has layer9"):
        build(0, str(saved(model, tmp_path / "a.pth", {"layer9": torch.zeros(1)})))
    with pytest.raises(DataError, match="shape"):
        build(0, str(saved(model, tmp_path / "b.safetensors", {"conv1.weight": torch.zeros(1)})))
    torch.save({"conv1.weight": model.conv1.weight}, tmp_path / "c.pth")
    with pytest.raises(DataError, match="it has no"):
        build(0, str(tmp_path / "c.pth"))
    (tmp_path / "d.safetensors").write_bytes(b"x" * 100)
    (tmp_path / "e.pth").write_bytes(b"x" * 100)
    for name in ("d.safetensors", "e.pth"):
        with pytest.raises(DataError, match="cannot be read"):
            build(0, str(tmp_path / name))
    with pytest.raises(UsageError, match="is not a file"):
        FeatureExtraction.check({}, {"weights": str(tmp_path / "none.pth")})


class MaliciousWeights:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.target,)


def test_a_file_of_weights_runs_nothing(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    torch.save({"conv1.weight": MaliciousWeights(target)}, tmp_path / "evil.pth")
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(MaliciousWeights(target)))
    for name in ("evil.pth", "plain.pth"):
        with pytest.raises(DataError):
            build(0, str(tmp_path / name))
    assert not target.exists()
