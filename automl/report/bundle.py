"""One HTML file of the pieces in `assets`, which the studio serves as modules."""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any, Final

from automl.core.plain_data import compact_json

MODULES: Final = (
    "format.js",
    "dom.js",
    "scales.js",
    "marks.js",
    "chart.js",
    "filter.js",
    "api.js",
    "parts.js",
    "table.js",
    "rows.js",
    "actions.js",
    "answer.js",
    "progress.js",
    "trials.js",
    "log.js",
    "trial.js",
    "explore.js",
    "sweep.js",
    "report.js",
)  # each after those that it imports
_IMPORT: Final = re.compile(r'^import (\{[^\n}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(
    r"^export (?=(?:const|class|function|async function) (\w+))", re.MULTILINE
)


def page(title: str, data: Mapping[str, Any], kind: str = "whole") -> str:
    """The file.

    Args:
        title: as HTML.
        data: what the page shows.
        kind: "bare" for a page that is a part of another one.
    """
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    inside = compact_json(data).replace("<", "\\u003c")
    parts = {"title": title, "kind": kind, "css": asset("style.css"), "js": script}
    return Template(asset("report.html")).substitute(parts, data=inside, digest=digest)


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
