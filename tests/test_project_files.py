"""The files beside the code: citation, hooks before a commit, continuous integration."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml
from sources import ROOT

import automl
from scripts import release

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_has_the_required_keys_and_the_version_of_the_package() -> None:
    citation = read("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["title"] == PROJECT["name"]
    assert str(citation["version"]) == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["type"] == "software"
    for author in citation["authors"]:
        assert {"name"} <= set(author) or {"family-names", "given-names"} <= set(author)


def test_the_version_is_one() -> None:
    """Of pyproject.toml, CITATION.cff, CHANGELOG.md and the installed package."""
    assert release.version() == PROJECT["version"]
    assert automl.__version__ == PROJECT["version"], "install the checkout again: make dev"


def test_the_changelog_keeps_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    dated = [
        re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})", head) for head in heads[1:]
    ]
    found = [tuple(map(int, match.groups()[:3])) for match in dated if match]
    assert len(found) == len(heads) - 1
    assert found == sorted(found, reverse=True)
    assert [match[4] for match in dated if match] == sorted(
        (match[4] for match in dated if match), reverse=True
    )
    kinds = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= set(kinds)


def test_the_hooks_run_the_programs_of_make_lint_and_download_nothing() -> None:
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")[2]
    repositories = read(".pre-commit-config.yaml")["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    for hook in repositories[0]["hooks"]:
        assert hook["language"] == "system"
        program = hook["entry"].split(" --")[0].removeprefix(".venv/bin/")
        assert f"$(BIN)/{program}" in lint


def test_the_workflow_runs_the_same_script_on_the_tested_version() -> None:
    steps = read(".github/workflows/ci.yml")["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    versions = [step["with"]["python-version"] for step in steps if "python" in str(step)]
    assert versions == ["3.11"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100
