from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from search_spaces.errors import DataError
from workers.workloads.image_classification import ImageClassification, data
from workers.workloads.image_classification.augment import AUGMENTATIONS, augment
from workers.workloads.image_classification.formats import (
    Images,
    from_records,
    read_folders,
)
from workers.workloads.image_classification.generated import images
from workers.workloads.image_classification.model import (
    ImageModel,
    ImageModelOptions,
    scaled,
    stages,
)


def batch(count: int, seed: int = 0) -> Images:
    pixels, labels = images(count, seed)
    return Images(pixels, labels.astype(np.int64))


def to_records(part: Images) -> bytes:
    """Binary records of CIFAR-10: a label byte, then 1,024 bytes per colour."""
    flat = part.pixels.reshape(len(part.labels), -1)
    return np.concatenate([part.labels[:, None].astype(np.uint8), flat], axis=1).tobytes()


def write_binary(root: Path, archive: bool) -> None:
    files = {
        "data_batch_1.bin": to_records(batch(20)),
        "test_batch.bin": to_records(batch(10, 1)),
        "readme.html": b"<p>",
    }
    write(root, "cifar-10-batches-bin", "cifar-10-binary.tar.gz", files, archive)


def write(root: Path, folder: str, name: str, files: dict[str, bytes], archive: bool) -> None:
    if not archive:
        (root / folder).mkdir()
        for file, content in files.items():
            (root / folder / file).write_bytes(content)
        return
    with tarfile.open(root / name, "w:gz") as tar:
        for file, content in files.items():
            info = tarfile.TarInfo(f"{folder}/{file}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("archive", [False, True])
def test_reads_cifar(tmp_path: Path, archive: bool) -> None:
    write_binary(tmp_path, archive)
    found = data.load({"name": "cifar10", "dir": str(tmp_path)})
    expected = batch(20)
    np.testing.assert_array_equal(found.train.pixels, expected.pixels)
    np.testing.assert_array_equal(found.train.labels, expected.labels)
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
        read_folders(tmp_path, 32)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentation_keeps_shape_and_is_repeatable(name: str) -> None:
    pixels = images(40, 0)[0]
    first, second = (augment(pixels, name, np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.shape == pixels.shape
    assert first.dtype == np.uint8
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
    """Against finite differences of the penalised loss by one weight."""
    workload = ImageClassification(
        {}, {"train": 40, "test": 10}, {"gradient_penalty": 0.7, "filters": 2, "dense_units": 4}
    )
    model = workload.build_model().double().eval()
    part = {key: value[:3] for key, value in next(iter(workload.train_batches(0))).items()}
    workload.inputs = lambda batch: (batch["images"].double() / 255,)  # type: ignore[method-assign]
    workload.criterion = lambda output, batch: torch.nn.functional.cross_entropy(
        output, batch["label"], reduction="sum"
    )  # type: ignore[method-assign]
    weight = model.head.dense.weight
    workload.loss(model, part).backward()
    row, column = divmod(int(weight.grad.abs().argmax()), weight.shape[1])
    with torch.no_grad():
        weight[row, column] += 1e-5
    above = workload.loss(model, part)
    with torch.no_grad():
        weight[row, column] -= 2e-5
    slope = (above - workload.loss(model, part)) / 2e-5
    torch.testing.assert_close(slope.detach(), weight.grad[row, column], rtol=1e-4, atol=1e-6)
