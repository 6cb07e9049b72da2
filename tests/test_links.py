"""Every link of a page leads to a file of the repository, and its anchor to a heading."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from pages import PAGES, shown
from sources import ROOT

from scripts.docs_hook import fill

CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
OBJECT = re.compile(r"^::: (\S+)", re.MULTILINE)  # of mkdocstrings: the name is the anchor
SITE = ROOT / "docs"


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_lead_somewhere(page: Path) -> None:
    text = CODE.sub("", fill(page.read_text(encoding="utf-8")))
    broken = []
    for name, anchor in LINK.findall(text):
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and not leads(anchor, target)):
            broken.append(f"{name}#{anchor}")
        elif page.is_relative_to(SITE) and not target.is_relative_to(SITE):
            broken.append(f"{name} (not part of the site: name the file without a link)")
    assert broken == []


def leads(anchor: str, page: Path) -> bool:
    """Whether a page has a heading, or an object of the Python reference, of that anchor."""
    headings, objects = anchors(page)
    return anchor in headings or any(anchor.startswith(name) for name in objects)


@cache
def anchors(page: Path) -> tuple[frozenset[str], tuple[str, ...]]:
    """The anchors of the headings of a page, and the objects that mkdocstrings shows on it."""
    text = CODE.sub("", fill(page.read_text(encoding="utf-8")))
    count: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(text):
        name = slug(heading)
        found.add(f"{name}_{count[name]}" if count[name] else name)
        count[name] += 1
    return frozenset(found), tuple(OBJECT.findall(text))


def slug(heading: str) -> str:
    """The anchor of a heading, as the site and most forges make it."""
    plain = re.sub(r"\]\([^)]*\)|[`*\[\]]", "", heading)
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    kept = re.sub(r"[^\w\s-]", "", ascii_only).strip().lower()
    return re.sub(r"[\s-]+", "-", kept)


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Is it more than `noise`?", "is-it-more-than-noise"),
        ("A [link](to.md) - here", "a-link-here"),
    ],
)
def test_anchors_are_those_of_the_site(heading: str, anchor: str) -> None:
    assert slug(heading) == anchor
