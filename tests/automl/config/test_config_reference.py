"""The reference of the configuration has every key, and its examples are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.config.source import WrittenConfig
from automl.core.spec import KEYS
from scripts import docs_hook

FIELDS = docs_hook.all_keys()


@pytest.mark.parametrize("name", FIELDS)
def test_the_example_is_accepted(name: str) -> None:
    example = FIELDS[name].example
    section, _, key = name.partition(".")
    if section == "space" and key:
        document = f"space: {{lr: {{{example}}}}}"
    elif section == "workers" and key:
        document = f"workers: {{{'min: 2, max: 64'}}}"
        assert example in document
    else:
        document = f"{section}: {{{example}}}" if key else example
    source = WrittenConfig.of_bytes(document.encode(), "example.yaml")
    source.settings()
    assert source.errors == []
    assert set(source.data) == {section}
    assert example.startswith(f"{key or section}:")


def test_types_and_defaults_are_those_of_the_keys() -> None:
    shown = {name: (key.kind.words, docs_hook.default_of(key)) for name, key in FIELDS.items()}
    assert shown["workers"][0].endswith("of at least 1 and at most 10,000 or mapping")
    assert shown["workers.min"][1] == "required"
    assert shown["max_retries"] == ("whole number of at least 0", "`2`")
    assert shown["goals"][0] == "goal, or a list of these"
    assert shown["space.affects"][0] == "`quality`, `speed`, `memory`, or a list of these"
    assert shown["resources.memory"][0] == "size"


def test_the_reference_has_a_heading_for_each_key() -> None:
    text = docs_hook.settings()
    assert all(f"### `{name}`\n" in text for name in KEYS)
    assert "| `worker_time` | duration |" in text


def test_the_page_has_a_place_for_the_keys() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"
    assert "<!-- keys -->" in page.read_text(encoding="utf-8")
