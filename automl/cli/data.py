"""`automl data`: list, fetch and prepare data sets."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from .common import emit, json_option, say


@click.group("data", short_help="List, fetch and prepare data sets.")
def command() -> None:
    """List, fetch and prepare data sets.

    \b
    Examples:
      automl data list
      automl data fetch imdb
    """


@command.command("list", short_help="List the data sets that can be fetched.")
@json_option
def listing(as_json: bool) -> None:
    """List the data sets that can be fetched, and the settings to use them.

    \b
    Example:
      automl data list --json
    """
    from workers.data.datasets import DATASETS

    if as_json:
        emit([{"name": name, "summary": d.summary, "use": d.use} for name, d in DATASETS.items()])
        return
    from automl.report.console import console, table

    rows = [[name, dataset.summary, dataset.use] for name, dataset in DATASETS.items()]
    console().print(table(["name", "what it is", "for"], rows))


@command.command("fetch", short_help="Fetch a data set from its official source.")
@click.argument("name")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder to write.  [default: data/NAME]",
)
@json_option
def fetching(name: str, folder: Path | None, as_json: bool) -> None:
    """Fetch a data set from its official source, check its checksum, and resume broken transfers.

    \b
    Example:
      automl data fetch imdb
      automl sweep configs/sentiment.yaml data.name=imdb data.dir=data/imdb
    """
    from workers.data.fetch import fetch

    target = folder or Path("data") / name
    shown = [-1]

    def progress(file: str, done: int, total: int) -> None:
        step = done * 10 // total if total else done >> 24
        if step != shown[0] and not as_json:
            shown[0] = step
            say(
                f"{file}: {done / 1e6:.1f} MB" + (f" of {total / 1e6:.1f}" if total else ""),
                err=True,
            )

    files = fetch(name, target, progress)
    if as_json:
        emit({"name": name, "dir": str(target), "files": [str(path) for path in files]})
    else:
        say(f"{name} is in {target}: {', '.join(path.name for path in files)}")


@command.command("prepare", short_help="Encode a parallel corpus of any size on disk.")
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    help="Text file with one sentence in each line, plain or .gz.",
)
@click.option(
    "--target",
    type=click.Path(path_type=Path),
    help="Translations of --source, line by line.",
)
@click.option(
    "--valid-source", type=click.Path(path_type=Path), help="Sentences of the validation split."
)
@click.option(
    "--valid-target", type=click.Path(path_type=Path), help="Translations of --valid-source."
)
@click.option(
    "--from",
    "texts",
    type=click.Path(path_type=Path),
    help="Folder with train.LANGUAGE and valid.LANGUAGE of the languages of --pair.",
)
@click.option(
    "--pair",
    "pairs",
    multiple=True,
    help="Language pair such as en-de, with --from; may be repeated for one model of several.",
)
@click.option("--dir", "folder", required=True, type=click.Path(path_type=Path), help="New folder.")
@click.option(
    "--vocabulary-size",
    default=8000,
    show_default=True,
    help="Size of the vocabulary that both languages share.",
)
@click.option(
    "--kind",
    default="bpe",
    show_default=True,
    type=click.Choice(["bpe", "unigram", "word"]),
    help="Kind of tokens.",
)
@click.option(
    "--max-length",
    default=128,
    show_default=True,
    help="Longest sentence in tokens; longer ones are skipped.",
)
@click.option(
    "--sample",
    default=500_000,
    show_default=True,
    help="Number of pairs from which the vocabulary is learned.",
)
@click.option(
    "--shard-pairs", default=200_000, show_default=True, help="Number of pairs in each shard."
)
@click.option(
    "--seed", default=0, show_default=True, help="Seed of the sample and of the order of pairs."
)
@json_option
def preparing(
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
    """Encode a parallel corpus into shards on disk. Training reads them without loading them whole.

    Pairs with an empty side or with more than --max-length tokens are skipped and counted.

    \b
    Example:
      automl data prepare --source corpus.en.gz --target corpus.de.gz --dir data/corpus
      automl data prepare --from data/texts --pair en-de --pair de-en --dir data/both
      automl sweep configs/nmt.yaml data.name=prepared data.dir=data/corpus
    """
    from workers.workloads.translation.language_tags import pairs_of
    from workers.workloads.translation.shards import CorpusOptions, prepare
    from workers.workloads.translation.text_pairs import AlignedFiles, TextCorpus

    if (valid_source is None) != (valid_target is None):
        raise click.UsageError("--valid-source and --valid-target go together")
    if (source is None) != (target is None):
        raise click.UsageError("--source and --target go together")
    if (texts is None) != (not pairs):
        raise click.UsageError("--from and --pair go together")
    if (source is None) == (texts is None):
        raise click.UsageError("give --source and --target, or --from and --pair")
    valid: TextCorpus | None = None
    if texts is not None:
        text, valid = TextCorpus.in_folder(texts, pairs_of({"pairs": list(pairs)}))
    elif source is not None and target is not None:
        text = TextCorpus((AlignedFiles(source, target),))
    if valid_source is not None and valid_target is not None:
        if texts is not None:
            raise click.UsageError("--valid-source goes with --source; --from has its own files")
        valid = TextCorpus((AlignedFiles(valid_source, valid_target),))
    counts = prepare(text, folder, CorpusOptions(**recipe), valid)
    if as_json:
        emit({"dir": str(folder), **asdict(counts)})
        return
    say(
        f"{folder}: {counts.pairs} pairs in {len(counts.shards)} shards, "
        f"{counts.valid} for validation"
    )
    say(
        f"Skipped: {counts.empty} with an empty side and {counts.too_long} longer than "
        f"{recipe['max_length']} tokens."
    )
