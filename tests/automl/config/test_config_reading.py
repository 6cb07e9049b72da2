"""Every way in which `yaml.safe_load` surprises people (facts.md), and how the loader answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from automl.config import load
from automl.config.source import MAX_BYTES, MAX_DEPTH, WrittenConfig, plain_scalar
from automl.errors import ConfigError, UsageError
from search_spaces.hardware import Hardware


def read(text: str | bytes) -> tuple[object, str]:
    """The plain data and the message of everything that is wrong with it."""
    try:
        source = WrittenConfig.of_bytes(text.encode() if isinstance(text, str) else text, "f.yaml")
        source.raise_any()
    except ConfigError as error:
        return None, str(error)
    return source.data, ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-0.0", -0.0),
        ("12", 12),
        ("+7", 7),
        ("0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("Yes", "Yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2024-01-31", "2024-01-31"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("nan", "nan"),
        ("1e", "1e"),
        ("1.2.3", "1.2.3"),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_a_plain_scalar_follows_yaml_1_2(text: str, value: object) -> None:
    found = plain_scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "010",
        "-00",
        ".nan",
        ".NaN",
        ".inf",
        "-.INF",
        "+.inf",
        "1e999",
        "9" * 20,
        "9" * 5000,
        "-" + "9" * 19,
    ],
)
def test_an_ambiguous_or_endless_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"finite|leading zero|64 bits"):
        plain_scalar(text)


def test_a_quoted_scalar_is_text() -> None:
    assert read("{a: '010', b: \"1e-3\", c: '.nan', d: ''}")[0] == {
        "a": "010",
        "b": "1e-3",
        "c": ".nan",
        "d": "",
    }


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        (b"a: 1\nb: \xff\n", 2, "not UTF-8: byte 0xff"),
        ("a: 1".encode("utf-16"), 1, "not UTF-8"),
        (b"a: '" + b"x" * MAX_BYTES + b"'", 1, f"at most {MAX_BYTES} bytes"),
        ("", 1, "empty"),
        ("# nothing but a comment\n", 1, "empty"),
        ("a: 1\na: 2\n", 2, "a: this key is here twice, first on line 1"),
        ("b:\n  a: 1\n  'a': 2\n", 3, "b.a: this key is here twice, first on line 2"),
        ("a: 1\n---\nb: 2\n", 2, "one document"),
        ("a: &x 1\nb: *x\n", 2, "b: aliases are not allowed, got *x"),
        ("a: &x 1\n", 1, "a: anchors are not allowed, got &x"),
        ("a: !!python/object/apply:os.system [x]\n", 1, "a: tags are not allowed"),
        ("a: !!int '3'\n", 1, "tags are not allowed"),
        ("a: [1, 2\n", 2, "not YAML"),
        ("a: 'x\n", 2, "not YAML"),
        ("a: 1\n b: 2\n", 2, "not YAML"),
        ("a:\n\t- 1\n", 2, "not YAML"),
        ("a: 1\n  \x00", 2, "not YAML"),
        ('a: "\\UFFFFFFFF"\n', 1, "not YAML"),
        ('a: "\\uD800"\n', 1, "control characters"),
        ('a: "\\0"\n', 1, "control characters"),
        ("? [1, 2]\n: 3\n", 1, "a key must be a plain name"),
        ("{1: 2, '': 3}\n", 1, "a key must be a plain name"),
        ("a:\n- .nan\n- 010\n", 2, "a[0]: numbers must be finite"),
        ("- " * (MAX_DEPTH + 2) + "1", 1, "levels deep"),
        ("[" * 3000, 1, "levels deep"),
        ("{a: " * 3000, 1, "levels deep"),
        ("%TAG ! tag:x,2000:\n---\na: !b 1\n", 3, "tags are not allowed"),
        ("%YAML 3.0\n---\na: 1\n", 1, "not YAML"),
    ],
)
def test_a_trap_is_refused_with_its_line(text: str | bytes, line: int, rule: str) -> None:
    message = read(text)[1]
    assert f"f.yaml:{line}: " in message
    assert rule in message


def test_all_errors_are_told_at_once_in_the_order_of_the_file() -> None:
    message = read("z: .inf\ny: *q\nx: !t 1\nz: 1\n")[1]
    lines = message.splitlines()
    assert lines[0] == "4 errors in f.yaml:"
    assert [line.split(": ")[0].strip() for line in lines[1:]] == [
        "f.yaml:1",
        "f.yaml:2",
        "f.yaml:3",
        "f.yaml:4",
    ]


def test_a_file_with_a_byte_order_mark_is_read() -> None:
    assert read(b"\xef\xbb\xbfa: 1\n") == ({"a": 1}, "")


@pytest.mark.parametrize("name", ["absent.yaml", ".", "nul\0.yaml"])
def test_a_file_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        WrittenConfig.of_file(tmp_path / name)


def _encoded(parts: list[str]) -> bytes:
    return "".join(parts).encode("utf-8", "surrogatepass")


WORDS = (
    "name: x|space:|goals: |budget: |- |  |\n|: |[|]|{|}|auto|low: |1e-3|minimize loss|when: |"
    "choices: |&a|*a|!t |'|---"
)
PIECES = st.sampled_from(WORDS.split("|"))


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=40).map(_encoded),
    )
)
@example(b"\xef\xbb\xbf")
def test_whatever_a_file_holds_it_is_a_configuration_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(raw)
    told = _error(path)
    assert told is None or told.isprintable() or "\n" in told


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_whatever_an_override_holds_it_is_set_or_told(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "good.yaml"
    path.write_text("space: {x: {low: 0.0, high: 1.0}}\ngoals: minimize loss\n")
    told = _error(path, text)
    assert told is None or told.startswith("override ") or " errors in " in told


def _error(path: Path, *overrides: str) -> str | None:
    """What is wrong with a configuration; anything but a UsageError fails the test."""
    try:
        load(path, overrides, hardware=Hardware(2, 8 << 30), objective=True)
    except UsageError as error:
        return str(error)
    return None
