"""Fetching public data sets from their makers, with checksums, and reading their archives."""

import hashlib
import os
import tarfile
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from search_spaces.errors import AutomlError, DataError
from search_spaces.plugins import nearest
from workers.files.folder import sha256


@dataclass(frozen=True)
class Source:
    """One file to fetch.

    Args:
        url: address of the file.
        sha256: of the file; "" if only the hashes of its members are known.
        unpack: the members of a tar archive to write: the last part of the name, and the sha256.
    """

    url: str
    sha256: str = ""
    unpack: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file's name."""
        return PurePosixPath(urlsplit(self.url).path).name


@dataclass(frozen=True)
class PublicDataset:
    """Files that belong together; `use` names the settings that read them."""

    summary: str
    use: str
    sources: tuple[Source, ...]


_CONVE: Final = (
    "https://raw.githubusercontent.com/TimDettmers/ConvE/f3c0eb286025410fa5b4c04696c918264163d0ca"
)
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


def _single(summary: str, use: str, url: str, sha256: str) -> PublicDataset:
    return PublicDataset(summary, use, (Source(url, sha256),))


def _graph(name: str, summary: str, train: str, valid: str, test: str) -> PublicDataset:
    unpack = {"train.txt": train, "valid.txt": valid, "test.txt": test}
    use = "workload graph_embedding, data.name=triples"
    return PublicDataset(summary, use, (Source(f"{_CONVE}/{name}.tar.gz", unpack=unpack),))


DATASETS: Final[Mapping[str, PublicDataset]] = {
    "cifar10": _single(
        "CIFAR-10, binary version: 60,000 images in ten classes (170 MB)",
        "workload image_classification, data.name=cifar10",
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    "imdb": _single(
        "Large Movie Review Dataset 1.0: 50,000 labelled reviews (84 MB)",
        "workload sentiment, data.name=imdb",
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    ),
    "resnet50": _single(
        "torchvision's weights of ResNet-50, ImageNet 1K version 1 (103 MB)",
        "workload feature_extraction, fixed.weights=DIR/resnet50-0676ba61.pth",
        "https://download.pytorch.org/models/resnet50-0676ba61.pth",
        "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
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
        tuple(Source(f"{_MULTI30K}/{name}", sha256) for name, sha256 in _MULTI30K_FILES.items()),
    ),
}


ATTEMPTS = 5
_BLOCK = 1 << 18
_TIMEOUT_SECONDS = 30.0
Progress = Callable[[str, int, int], None]


class FetchError(AutomlError):
    """A file could not be fetched."""


def fetch(
    name: str,
    folder: Path,
    progress: Progress = lambda file, done, total: None,
    datasets: Mapping[str, PublicDataset] | None = None,
) -> list[Path]:
    """Fetch every file of a data set into a folder; files that are there are checked and kept.

    Args:
        name: of the data set.
        folder: to write to.
        progress: called with the file's name, the received bytes and all bytes (0 if unknown).
        datasets: by default `DATASETS`.

    Returns:
        The files that a workload reads.

    Raises:
        DataError: there is no such data set, or a file has the wrong hash.
        FetchError: a file could not be fetched completely.
    """
    known = DATASETS if datasets is None else datasets
    if name not in known:
        raise DataError(f"unknown data set {name!r}: {nearest(name, sorted(known))}")
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for source in known[name].sources:
        targets = [folder / member for member in source.unpack] or [folder / source.name]
        if not _complete(source, targets):
            _fetch_one(source, folder, progress)
        written += targets
    return written


def _complete(source: Source, targets: list[Path]) -> bool:
    """Whether all files are there with the right hashes."""
    hashes = list(source.unpack.values()) or [source.sha256]
    pairs = zip(targets, hashes, strict=True)
    return all(path.is_file() and bool(wanted) and sha256(path) == wanted for path, wanted in pairs)


def _fetch_one(source: Source, folder: Path, progress: Progress) -> None:
    part = folder / f"{source.name}.part"
    try:
        download(source.url, part, progress)
        if source.sha256 and (found := sha256(part)) != source.sha256:
            raise DataError(
                f"{source.url} has the sha256 {found}, expected {source.sha256}; "
                "the file was deleted"
            )
        if source.unpack:
            _unpack(source, part, folder)
        else:
            part.replace(folder / source.name)
    finally:
        part.unlink(missing_ok=True)


def _unpack(source: Source, archive: Path, folder: Path) -> None:
    """Check all wanted members, then write each atomically."""
    found = {name.rsplit("/", 1)[-1]: content for name, content in members(archive)}
    for name, wanted in source.unpack.items():
        if name not in found or hashlib.sha256(found[name]).hexdigest() != wanted:
            raise DataError(
                f"{source.url}: member {name} is missing or has a wrong hash; the file was deleted"
            )
    for name in source.unpack:
        temporary = folder / f"{name}.{os.getpid()}"
        temporary.write_bytes(found[name])
        temporary.replace(folder / name)


def download(url: str, target: Path, progress: Progress) -> None:
    """Fetch a file; a server that fails for a moment is asked again.

    Raises:
        FetchError: the server refuses, or several tries have failed.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _transfer(url, target, progress)
            return
        except (OSError, HTTPException) as error:  # HTTPError is an OSError
            status = getattr(error, "code", 500)
            refused = status < 500 and status != 429
            if refused or attempt == ATTEMPTS:
                raise FetchError(f"{url}: {error or type(error).__name__}; try again") from error
        time.sleep(min(0.05 * 4**attempt, 10.0))


def _transfer(url: str, target: Path, progress: Progress) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "automl"})
    with (
        urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response,
        target.open("wb") as file,
    ):
        total = int(response.headers.get("Content-Length") or 0)
        have = 0
        while block := response.read(_BLOCK):
            have += file.write(block)
            progress(target.name.removesuffix(".part"), have, total)
    if have < total:
        raise OSError(f"the transfer broke off after {have} of {total} bytes")


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
                    file = archive.extractfile(member)
                    yield member.name, file.read() if file else b""
            while archive.fileobj is not None and archive.fileobj.read(1 << 20):
                pass  # read to the end, to find a wrong checksum or a missing end
    except FileNotFoundError as error:
        raise DataError(f"there is no archive {path}") from error
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a readable tar archive: {error}") from error


def find(folder: Path, names: tuple[str, ...]) -> Path:
    """The first of `names` (files or folders) that is in `folder`, or `folder` if that is its name.

    Raises:
        DataError: there is none.
    """
    if folder.name in names and folder.exists():
        return folder
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise DataError(
        f"{folder} holds none of {', '.join(names)}; data.dir must name the folder that does"
    )
