"""One HTML file of the pieces in `assets`, which the studio serves as modules."""

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Final

MODULES: Final = (
    "format.js",
    "dom.js",
    "scales.js",
    "save.js",
    "marks.js",
    "chart.js",
    "selection.js",
    "filter.js",
    "parallel.js",
    "figure.js",
    "report.js",
)  # each after those that it imports
_IMPORT: Final = re.compile(r'^import (\{[^\n}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(
    r"^export (?=(?:const|class|function|async function) (\w+))", re.MULTILINE
)


def page(title: str, body: Sequence[str], opening: Sequence[str] = ()) -> str:
    """The file.

    Args:
        title, body: as HTML.
        opening: what comes before the body: the header and the contents; none if the page is a
            part of another one.
    """
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "title": title,
        "kind": "whole" if opening else "bare",
        "css": asset("theme.css") + asset("report.css"),
        "js": script,
        "opening": "\n".join(opening),
        "body": "\n".join(body),
        "digest": digest,
    }
    return Template(asset("report.html")).substitute(parts)


def asset(name: str) -> str:
    """The text of a file in `assets`."""
    return (resources.files("automl.report") / "assets" / name).read_text(encoding="utf-8")


def _script() -> str:
    """The modules as one script, because a file that is opened from a disk cannot import."""
    text = "".join(map(_scope, MODULES))
    return f'"use strict";\n(() => {{\n{text}}})();'.replace("</script", "<\\/script")


def _scope(name: str) -> str:
    """A module as an object of what it exports, so that names of modules do not meet."""
    text = asset(name)
    names = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = \2_js;", text))
    return f"const {name.replace('.', '_')} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();\n"
