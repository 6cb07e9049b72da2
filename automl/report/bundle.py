"""One HTML file of the pieces in `assets`, which the studio serves as modules."""

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Final

from automl.errors import UsageError

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


def page(
    title: str, body: Sequence[str], navigation: str = "", *, bare: bool = False, ax: bool = False
) -> str:
    """The file.

    Args:
        title, body, navigation: as HTML.
        bare: whether it is a part of another page.
        ax: whether figures need plotly, which is then a part of the file.

    Raises:
        UsageError: plotly is needed and not installed.
    """
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "title": title,
        "kind": "bare" if bare else "whole",
        "css": asset("theme.css") + asset("report.css"),
        "js": script,
        "navigation": navigation,
        "body": "\n".join(body),
        "plotly": f"<script>{plotly_js()}</script>" if ax else "",
        # plotly makes functions of text and styles; our own scripts do not need that.
        "scripts": "'unsafe-inline' 'unsafe-eval'" if ax else f"'sha256-{digest}'",
    }
    return Template(asset("report.html")).substitute(parts)


def asset(name: str) -> str:
    """The text of a file in `assets`."""
    return (resources.files("automl.report") / "assets" / name).read_text(encoding="utf-8")


def plotly_js() -> str:
    """The JavaScript of plotly.

    Raises:
        UsageError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise UsageError("plots by Ax need plotly: install automl[report]") from error
    # A closing tag inside the script would end it.
    return str(get_plotlyjs()).replace("</script", "<\\/script")


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
