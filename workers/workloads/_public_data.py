"""Public data sets of the workloads: fetched with checksums, archives read."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final, cast

from search_spaces.errors import AutomlError, DataError
from search_spaces.plugins import nearest
from workers.files import sha256


@dataclass(frozen=True)
class PublicDataset:
    """Files that belong together.

    Args:
        summary: what it is, in a line.
        use: the settings that read it.
        files: by address the sha256 of the file or, of a tar archive, the members to write: the
            last part of the name, and the sha256.
    """

    summary: str
    use: str
    files: Mapping[str, str | Mapping[str, str]]


_MULTI30K: Final = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
)
_MULTI30K_FILES: Final = {
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
}


def _graph(name: str, summary: str, train: str, valid: str, test: str) -> PublicDataset:
    url = (
        "https://raw.githubusercontent.com/TimDettmers/ConvE/"
        f"f3c0eb286025410fa5b4c04696c918264163d0ca/{name}.tar.gz"
    )
    return PublicDataset(
        summary,
        "workload graph_embedding, data.name=triples",
        {url: {"train.txt": train, "valid.txt": valid, "test.txt": test}},
    )


DATASETS: Final[Mapping[str, PublicDataset]] = {
    "cifar10": PublicDataset(
        "CIFAR-10, binary version: 60,000 images in ten classes (170 MB)",
        "workload image_classification, data.name=cifar10",
        {
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz": (
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
            )
        },
    ),
    "imdb": PublicDataset(
        "Large Movie Review Dataset 1.0: 50,000 labelled reviews (84 MB)",
        "workload sentiment, data.name=imdb",
        {
            "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz": (
                "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"
            )
        },
    ),
    "resnet50": PublicDataset(
        "torchvision's weights of ResNet-50, ImageNet 1K version 1 (103 MB)",
        "workload feature_extraction, fixed.weights=DIR/resnet50-0676ba61.pth",
        {
            "https://download.pytorch.org/models/resnet50-0676ba61.pth": (
                "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a"
            )
        },
    ),
    "fb15k-237": _graph(
        "FB15k-237",
        "FB15k-237: 272,115 edges of Freebase",
        "6e4c2782169af21e9743f3b1d200886f5d595bf6bc504ec1351720949c5cdfae",
        "cf6309010852f6a8d47a45df830a426415d1ee6f7a3970a8376ff1fb81db4a5c",
        "5711cf41623ceb4eacc50eb6108a3ca6565c7492e3caaf82a3e355cc660d1574",
    ),
    "wn18rr": _graph(
        "WN18RR",
        "WN18RR: 86,835 edges of WordNet",
        "038612e783c215ee5f3ca9fbfca27b8d0739be1028fe4ee7c174aecf0b83d5df",
        "453ce7202afa58094a04d2b1560ee2b02660f1c260b32ce6651c8ccedd1028ab",
        "0383bceaaa1096cf3c03ec021ed0048068e2355dbfc0239b292cefdac821cec5",
    ),
    "umls": _graph(
        "umls",
        "umls: 5,216 edges of a medical ontology",
        "873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
        "025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
        "a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014",
    ),
    "multi30k": PublicDataset(
        "Multi30k task 1: 31,014 captions in English, German and French, and a test set (2 MB)",
        "workload translation, data.name=multi30k",
        {f"{_MULTI30K}/{name}": sha256 for name, sha256 in _MULTI30K_FILES.items()},
    ),
}


def fetch(
    name: str,
    folder: Path,
    progress: Callable[[str, int, int], None] = lambda file, done, total: None,
) -> list[Path]:
    """Fetch every file of a data set into a folder; files that are there are checked and kept.

    Args:
        name: of the data set.
        folder: to write to.
        progress: called with the file's name, the received bytes and all bytes (0 if unknown).

    Returns:
        The files that a workload reads.

    Raises:
        DataError: there is no such data set, or a file has the wrong hash.
        AutomlError: a file could not be fetched completely.
    """
    if name not in DATASETS:
        raise DataError(f"unknown data set {name!r}: {nearest(name, sorted(DATASETS))}")
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for url, expected in DATASETS[name].files.items():
        file = url.rpartition("/")[2]
        wanted = {file: expected} if isinstance(expected, str) else expected
        written += [folder / member for member in wanted]
        if wanted == {one: sha256(folder / one) for one in wanted if (folder / one).is_file()}:
            continue
        with TemporaryDirectory(dir=folder, prefix=".") as draft:
            _download(url, Path(draft, file), progress)
            for path, content in members(Path(draft, file)) if file not in wanted else ():
                Path(draft, path.rpartition("/")[2]).write_bytes(content)
            for member, digest in wanted.items():
                if not Path(draft, member).is_file() or sha256(Path(draft, member)) != digest:
                    raise DataError(f"{url}: {member} is missing, or its sha256 is not {digest}")
                Path(draft, member).replace(folder / member)
    return written


def _download(url: str, target: Path, progress: Callable[[str, int, int], None]) -> None:
    from http.client import HTTPException  # `automl status` needs none of these
    from urllib.request import Request, urlopen

    try:
        with (
            urlopen(Request(url, headers={"User-Agent": "automl"}), timeout=30.0) as response,
            target.open("wb") as file,
        ):
            total = int(response.headers.get("Content-Length") or 0)
            while block := response.read(1 << 18):
                file.write(block)
                progress(target.name, file.tell(), total)
            if file.tell() < total:
                raise OSError(f"the transfer broke off after {file.tell()} of {total} bytes")
    except (OSError, HTTPException) as error:  # HTTPError is an OSError
        raise AutomlError(f"{url}: {error or type(error).__name__}; try again") from error


def members(
    path: Path, wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[tuple[str, bytes]]:
    """Name and content of each wanted regular file of a tar archive, in its order.

    Nothing is written: a name that leads out of the archive does no harm, nor does a link.

    Args:
        path: of the archive: plain, gzip, bzip2 or xz.
        wanted: whether a member of that name is read.

    Raises:
        DataError: the archive is missing or damaged.
    """
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                if member.isfile() and wanted(member.name):
                    yield member.name, cast(IO[bytes], archive.extractfile(member)).read()
            while archive.fileobj is not None and archive.fileobj.read(1 << 20):
                pass  # read to the end, to find a wrong checksum or a missing end
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a readable tar archive: {error}") from error


def find(folder: Path, names: tuple[str, ...]) -> Path:
    """The first of `names` (files or folders) that is in `folder`, or `folder` if that is its name.

    Raises:
        DataError: there is none.
    """
    for path in (folder, *(folder / name for name in names)):
        if path.name in names and path.exists():
            return path
    raise DataError(
        f"{folder} holds none of {', '.join(names)}; data.dir must name the folder that does"
    )
