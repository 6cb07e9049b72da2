"""The verbs about this machine and what is installed on it: doctor, workloads, data sets."""

from __future__ import annotations

from pathlib import Path

from .common import draw, draw_table, emit, say


def doctor(store: str, as_json: bool) -> None:
    """Show what this machine can run."""
    from automl.workflows.doctor import examine

    findings = examine(store)
    return emit(findings.to_dict()) if as_json else draw(findings.render())


def workloads(as_json: bool) -> None:
    """List the workloads."""
    from workers.workloads import WORKLOADS

    known = [WORKLOADS.get(name) for name in WORKLOADS.names()]
    if as_json:
        objects = [{"name": w.name, "summary": w.summary, "goals": list(w.goals)} for w in known]
        return emit(objects)
    rows = [[w.name, ", ".join(w.goals), w.summary] for w in known]
    return draw_table(["workload", "goals", "summary"], rows)


def list_data(as_json: bool) -> None:
    """List the data sets that can be fetched."""
    from workers.data.datasets import DATASETS

    if as_json:
        sets = DATASETS.items()
        return emit([{"name": name, "summary": d.summary, "use": d.use} for name, d in sets])
    rows = [[name, dataset.summary, dataset.use] for name, dataset in DATASETS.items()]
    return draw_table(["name", "what it is", "for"], rows)


def fetch_data(name: str, folder: Path | None, as_json: bool) -> None:
    """Fetch a data set."""
    from workers.data.fetch import fetch

    target, announced = folder or Path("data") / name, [-1]

    def progress(file: str, done: int, total: int) -> None:
        step = done * 10 // total if total else done >> 24
        if step != announced[0] and not as_json:
            announced[0] = step
            of_total = f" of {total / 1e6:.1f}" if total else ""
            say(f"{file}: {done / 1e6:.1f} MB{of_total}", err=True)

    files = fetch(name, target, progress)
    if as_json:
        return emit({"name": name, "dir": str(target), "files": [str(path) for path in files]})
    return say(f"{name} is in {target}: {', '.join(path.name for path in files)}")
