"""The text of `sockeye.py`."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

SPLITS = {"train": "train", "val": "valid", "test_2016_flickr": "test"}


def prepare(folder: Path, text: Path) -> None:
    """Write the text in lower case, with blanks between words and marks."""
    text.mkdir(parents=True, exist_ok=True)
    for stem, split in SPLITS.items():
        for language in ("en", "de"):
            packed = folder / f"{stem}.{language}.gz"
            raw = (
                gzip.decompress(packed.read_bytes())
                if packed.exists()
                else (folder / packed.stem).read_bytes()
            )
            lines = raw.decode().lower().removesuffix("\n").split("\n")
            words = [" ".join(re.findall(r"\w+|[^\w\s]", line)) for line in lines]
            (text / f"{split}.{language}").write_text("".join(line + "\n" for line in words))
