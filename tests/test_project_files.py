"""The files beside the code: citation, hooks before a commit, continuous integration."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import PAGES, shown
from sources import MODULES, ROOT

import automl
from scripts import release

CODE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
MAX_WORDS = 1500  # of a page, outside of its code
PHONE = 66  # characters of a row that a phone shows in one line, with its bars
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_has_the_required_keys_and_the_version_of_the_package() -> None:
    citation = read("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["title"] == PROJECT["name"].removesuffix("-sweep")
    assert str(citation["version"]) == automl.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["type"] == "software"
    for author in citation["authors"]:
        assert {"name"} <= set(author) or {"family-names", "given-names"} <= set(author)


def test_the_version_is_one() -> None:
    """It stands in the code, and pyproject.toml, CITATION.cff and CHANGELOG.md follow."""
    assert release.version() == automl.__version__
    assert PROJECT["dynamic"] == ["version"]


def test_nothing_sends_a_reader_to_the_other_automl() -> None:
    """Our distribution is automl-sweep; `pip install automl` gives a project of others."""
    assert PROJECT["name"] == "automl-sweep"
    other = re.compile(
        r"pip3? install (?:-\S+ +)*['\"]?automl(?![-\w/.])|(?<![-/\w.])automl\[[a-z]"
    )
    assert other.search("pip install -U automl")
    assert other.search("install automl[report]")
    assert not other.search("pip install 'automl-sweep[report]'")
    names = [name for name in release.tracked() if name != "tests/test_project_files.py"]
    texts = {name: (ROOT / name).read_bytes().decode(errors="replace") for name in names}
    assert len(texts) > 1000
    assert [name for name, text in texts.items() if other.search(text)] == []


def test_every_extra_in_a_message_exists() -> None:
    extras = set(PROJECT["optional-dependencies"])
    for module in MODULES.values():
        text = module.read_text(encoding="utf-8")
        named = re.findall(r"automl-sweep\[([a-z0-9-]+)\]", text)
        given = re.findall(r'needs\([^()\n]*, [^,()\n]+, "([a-z0-9-]+)"\)', text)
        assert {*named, *given} <= extras, module


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


@pytest.mark.parametrize(
    "page", [page for page in PAGES if shown(page).startswith("docs/")], ids=shown
)
def test_a_page_is_short_and_in_the_navigation(page: Any) -> None:
    words = len(CODE.sub("", page.read_text(encoding="utf-8")).split())
    assert words <= MAX_WORDS
    assert f": {page.relative_to(ROOT / 'docs')}\n" in text_of("mkdocs.yml")


def test_the_tables_of_the_first_page_fit_a_phone() -> None:
    rows = re.findall(r"^\|.*$", text_of("README.md"), re.MULTILINE)
    assert rows
    assert [row for row in rows if len(row) > PHONE] == []


def test_the_list_for_language_models_leads_to_pages() -> None:
    docs = ROOT / "docs"
    found = re.findall(r"\]\(([^)]+)/\)", text_of("docs/llms.txt"))
    assert len(found) > 20
    assert [
        name
        for name in found
        if not ((docs / f"{name}.md").is_file() or (docs / name / "index.md").is_file())
    ] == []


@pytest.mark.parametrize(
    "page",
    [
        "concepts/which-value-counts.md",
        "guides/reproduce.md",
        "guides/reproduce.md#keep-my-own-best-model",
        "guides/ending.md",
        "guides/ending.md#the-time-limit-of-a-trial",
        "guides/coming-from.md#optuna",
        "guides/coming-from.md#wb-sweeps",
        "start/script.md",
        "guides/ray.md",
        "guides/agents.md",
    ],
)
def test_the_front_page_answers_in_one_click(page: str) -> None:
    assert f"]({page})" in text_of("docs/index.md")


def test_placeholders_say_that_they_are() -> None:
    """An address that nobody has is marked on its own page."""
    owners = [
        line for line in text_of(".github/CODEOWNERS").splitlines() if line and line[0] != "#"
    ]
    assert owners
    assert all(" @PLACEHOLDER-" in line for line in owners)
    says_so = re.compile(r"(?<![-@])\bplaceholders?\b(?!-)", re.IGNORECASE)
    for name in (".github/CODEOWNERS", "CODE_OF_CONDUCT.md", "docs/project/support.md"):
        assert says_so.search(text_of(name)), name


def test_the_forms_of_issues_have_labels_that_exist() -> None:
    known = {label["name"] for label in read(".github/labels.yml")}
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    used = set()
    for form in (read(str(path.relative_to(ROOT))) for path in forms if path.stem != "config"):
        assert {"name", "description", "body"} <= set(form)
        used |= set(form["labels"])
    assert used <= known
    assert "good first issue" in known


def test_the_night_measures_scripts_that_exist() -> None:
    job = read(".github/workflows/nightly.yml")["jobs"]["benchmarks"]
    scripts = job["env"]["QUICK"].split()
    assert len(scripts) > 2
    for name in (*scripts, "benchmarks/two_commits.py"):
        assert (ROOT / name).is_file(), name
    assert all(
        '"--quick"' in text_of(name) or "benchmark_parser(" in text_of(name) for name in scripts
    )


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    recipe = read("conda/recipe.yaml")
    other_names = {
        "torch": "pytorch",
        "ray[default]": "ray-default",
    }

    def split(line: str) -> tuple[str, str]:
        name, bounds = re.fullmatch(r"([\w-]+(?:\[\w+\])?) ?(.*)", line).groups()
        return other_names.get(name, name), bounds

    needed = {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}
    assert set(map(split, recipe["requirements"]["run"])) == set(map(split, needed))
    assert recipe["context"]["version"] == automl.__version__
    assert recipe["package"]["name"] == PROJECT["name"]
    (program,) = PROJECT["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(program)]
    assert recipe["about"]["license"] == PROJECT["license"]


def test_a_tag_is_published_by_trusted_publishing_after_the_whole_check() -> None:
    flow = read(".github/workflows/publish.yml")
    assert flow[True]["push"] == {"tags": ["v*"]}  # `on` is a truth value of YAML
    build, publish = flow["jobs"]["build"], flow["jobs"]["publish"]
    lines = [step["run"] for step in build["steps"] if "run" in step]
    assert 'python scripts/release.py --keep --tag "$GITHUB_REF_NAME"' in lines
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert "permissions" not in build
    assert flow["permissions"] == {"contents": "read"}
    assert not re.search(
        r"password|secrets", text_of(".github/workflows/publish.yml").split("jobs")[1]
    )


def test_a_wrong_tag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(release.Wrong, match=r"the tag is v9\.9\.9, the version"):
        release.check(tmp_path, quick=True, tag="v9.9.9")
