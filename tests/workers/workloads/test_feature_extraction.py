from __future__ import annotations

import copy
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
    ResNet50,
    build,
    fold_batch_norm,
    prepare,
)

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
def test_recipes_keep_the_features(model: ResNet50, recipe: ExtractorOptions) -> None:
    with torch.inference_mode():
        extract = prepare(copy.deepcopy(model), recipe, IMAGES, IMAGES)
        found, expected = extract(IMAGES), model(IMAGES)
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
def test_weights_of_a_file(tmp_path: Path, name: str, model: ResNet50) -> None:
    loaded = build(5, str(saved(model, tmp_path / name)))
    torch.testing.assert_close(loaded(IMAGES), model(IMAGES))


class MaliciousWeights:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.target,)


def test_wrong_files_are_refused_and_run_nothing(tmp_path: Path, model: ResNet50) -> None:
    folder, touched = tmp_path / "files", tmp_path / "touched"
    folder.mkdir()
    saved(model, folder / "unknown.pth", {"layer9": torch.zeros(1)})
    saved(model, folder / "shape.safetensors", {"conv1.weight": torch.zeros(1)})
    torch.save({"conv1.weight": model.conv1.weight}, folder / "part.pth")
    torch.save({"conv1.weight": MaliciousWeights(touched)}, folder / "evil.pth")
    (folder / "plain.pth").write_bytes(pickle.dumps(MaliciousWeights(touched)))
    (folder / "damaged.safetensors").write_bytes(b"x" * 100)
    (folder / "damaged.pth").write_bytes(b"x" * 100)
    for path in (*folder.iterdir(), folder / "none.pth"):
        with pytest.raises(DataError, match=f"{path} cannot be read as weights of ResNet-50"):
            build(0, str(path))
    assert not touched.exists()
    with pytest.raises(UsageError, match="is not a file"):
        FeatureExtraction.check({}, {"weights": str(tmp_path / "none.pth")})
