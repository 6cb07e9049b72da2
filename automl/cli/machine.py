"""The verbs about this machine and what is installed on it: doctor, workloads, data sets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

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


def prepare_data(
    source: Path | None,
    target: Path | None,
    valid_source: Path | None,
    valid_target: Path | None,
    texts: Path | None,
    pairs: tuple[str, ...],
    folder: Path,
    as_json: bool,
    **recipe: Any,
) -> None:
    """Encode a parallel corpus into shards on disk."""
    from workers.workloads.translation.language_tags import pairs_of
    from workers.workloads.translation.shards import CorpusOptions, prepare
    from workers.workloads.translation.text_pairs import AlignedFiles, TextCorpus

    together = {
        "--valid-source and --valid-target": (valid_source, valid_target),
        "--source and --target": (source, target),
        "--from and --pair": (texts, pairs or None),
    }
    for names, given in together.items():
        if given.count(None) == 1:
            raise click.UsageError(f"{names} go together")
    if (source is None) == (texts is None):
        raise click.UsageError("give --source and --target, or --from and --pair")
    if texts is not None and valid_source is not None:
        raise click.UsageError("--valid-source goes with --source; --from has its own files")
    valid: TextCorpus | None = None
    if texts is not None:
        text, valid = TextCorpus.in_folder(texts, pairs_of({"pairs": list(pairs)}))
    elif source is not None and target is not None:
        text = TextCorpus((AlignedFiles(source, target),))
        if valid_source is not None and valid_target is not None:
            valid = TextCorpus((AlignedFiles(valid_source, valid_target),))
    counts = prepare(text, folder, CorpusOptions(**recipe), valid)
    if as_json:
        return emit({"dir": str(folder), **asdict(counts)})
    return say(
        f"{folder}: {counts.pairs} pairs in {len(counts.shards)} shards, "
        f"{counts.valid} for validation\n"
        f"Skipped: {counts.empty} with an empty side and {counts.too_long} longer than "
        f"{recipe['max_length']} tokens."
    )
