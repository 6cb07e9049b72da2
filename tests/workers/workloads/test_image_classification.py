from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.func import functional_call

from search_spaces.errors import DataError
from workers.workloads.image_classification import ImageClassification, data
from workers.workloads.image_classification.data import (
    AUGMENTATIONS,
    Images,
    augment,
    from_records,
    generated,
    read_folders,
)
from workers.workloads.image_classification.model import (
    ImageModel,
    ImageModelOptions,
    scaled,
    stages,
)


def to_records(part: Images) -> bytes:
    flat = part.pixels.reshape(len(part.labels), -1)
    return np.column_stack([part.labels, flat]).astype(np.uint8).tobytes()


def test_reads_cifar(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "data_batch_1.bin").write_bytes(to_records(generated(20, 0)))
    (folder / "test_batch.bin").write_bytes(to_records(generated(10, 1)))
    (folder / "readme.html").write_bytes(b"<p>")
    found = data.load({"name": "cifar10", "dir": str(tmp_path)})
    np.testing.assert_array_equal(found.train.pixels, generated(20, 0).pixels)
    np.testing.assert_array_equal(found.train.labels, generated(20, 0).labels)
    assert len(found.test.labels) == 10


def test_reads_the_real_subset(data_dir: Path) -> None:
    found = data.load({"name": "cifar10", "dir": str(data_dir / "cifar10")})
    assert np.bincount(found.train.labels).tolist() == [1000] * 10
    np.testing.assert_allclose(
        found.train.pixels.mean((0, 2, 3)) / 255, [0.4910, 0.4814, 0.4457], atol=1e-3
    )


@pytest.mark.parametrize("content", [b"", b"x" * 3072, bytes([10]) + b"x" * 3072])
def test_malformed_records(content: bytes) -> None:
    with pytest.raises(DataError):
        from_records(content, "test")


def test_folders_of_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for split in ("train", "test"):
        for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
            (tmp_path / split / name).mkdir(parents=True)
            image.new("RGB", (50, 40), colour).save(tmp_path / split / name / "a.png")
    train, test, classes = read_folders(tmp_path, 32)
    assert classes == ("blue", "red")
    assert train.pixels.shape == (2, 3, 32, 32)
    assert train.pixels[1, :, 5, 5].tolist() == [255, 0, 0]
    assert test.labels.tolist() == [0, 1]
    (tmp_path / "test/red/b.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"b\.png"):
        read_folders(tmp_path, 16)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentation_keeps_shape_and_is_repeatable(name: str) -> None:
    pixels = generated(40, 0).pixels
    first, second = (augment(pixels, name, np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (first.shape, first.dtype) == (pixels.shape, np.uint8)
    assert (first == pixels).all() == (name == "none")


@pytest.mark.parametrize("num_stages", [1, 2, 3])
def test_stages_compute_the_same(num_stages: int) -> None:
    model = ImageModel(ImageModelOptions(filters=4, dense_units=8)).eval()
    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    hidden: tuple[torch.Tensor, ...] = ()
    for stage in stages(model, num_stages):
        hidden = (stage(*hidden, images=pixels),)
    torch.testing.assert_close(hidden[0], model(scaled(pixels)))


def test_gradient_penalty_has_the_second_order_gradient() -> None:
    fixed = {"gradient_penalty": 0.7, "filters": 2, "dense_units": 4}
    workload = ImageClassification({}, {"train": 40, "test": 10}, fixed)
    model = workload.build_model().double().eval()
    part = {key: value[:3] for key, value in next(iter(workload.train_batches(0))).items()}
    workload.inputs = lambda batch: (batch["images"].double() / 255,)  # type: ignore[method-assign]

    def loss(weight: torch.Tensor) -> torch.Tensor:
        replaced = {"head.output.weight": weight}
        return workload.loss(lambda images: functional_call(model, replaced, images), part)

    # Against finite differences of the penalised loss.
    assert torch.autograd.gradcheck(loss, (model.head.output.weight,))
