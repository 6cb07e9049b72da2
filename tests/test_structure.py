"""Rules of the layout: few modules at the top, one name a class, no circles."""

from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter

import pytest
from pages import shown
from sources import MODULES, PACKAGES, ROOT, imports, public_classes, room

LOOSE_MODULES = {"automl": 8, "workers": 7}
MAX_LINES = 700


@pytest.mark.parametrize(("package", "most"), LOOSE_MODULES.items())
def test_few_modules_stand_at_the_top(package: str, most: int) -> None:
    loose = sorted({path.name for path in (ROOT / package).glob("*.py")} - {"__init__.py"})
    assert len(loose) <= most, f"{package}/ has {loose}: move modules into folders"


def test_a_public_class_name_stands_once() -> None:
    counts = Counter(name for path in MODULES.values() for name in public_classes(path))
    assert [name for name, count in counts.items() if count > 1] == []


def test_no_file_is_long() -> None:
    lengths = {shown(path): len(path.read_text().splitlines()) for path in MODULES.values()}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_import_each_other_without_circles(package: str) -> None:
    """Imports inside functions count too."""
    graph = defaultdict(set)
    examples = {}
    for module in MODULES:
        for target in imports(module, everywhere=True):
            pair = room(module), room(target)
            inside = all(name.startswith(f"{package}.") for name in pair)
            if inside and pair[0] != pair[1]:
                graph[pair[0]].add(pair[1])
                examples[pair] = f"{module} imports {target}"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
        pairs = zip(circle[1:], circle, strict=False)
        pytest.fail("folders import each other: " + "; ".join(examples[pair] for pair in pairs))
