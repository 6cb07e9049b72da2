"""Actions about this machine and what is installed on it: workloads, data sets, hardware."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .action import Action, Argument
from .arguments import JSON, STORE
from .headings import PREPARE


def _path(name: str, help: str, flag: str = "", *, required: bool = False) -> Argument:
    return Argument(name, "path", help, flag or f"--{name.replace('_', '-')}", required=required)


MACHINE: Final = (
    Action(
        "workloads",
        PREPARE,
        "List the workloads.",
        "List the workloads with their goals.",
        ("automl workloads",),
        (JSON,),
        "automl.cli.machine.workloads",
    ),
    Action(
        "data",
        PREPARE,
        "List, fetch and prepare data sets.",
        "List, fetch and prepare data sets.",
        ("automl data list", "automl data fetch imdb"),
    ),
    Action(
        "data list",
        PREPARE,
        "List the data sets that can be fetched.",
        "List the data sets that can be fetched, and the settings to use them.",
        ("automl data list --json",),
        (JSON,),
        "automl.cli.machine.list_data",
    ),
    Action(
        "data fetch",
        PREPARE,
        "Fetch a data set from its official source.",
        "Fetch a data set from its official source, check its checksum, resume broken transfers.",
        (
            "automl data fetch imdb",
            "automl sweep configs/sentiment.yaml data.name=imdb data.dir=data/imdb",
        ),
        (
            Argument("name", metavar="NAME", required=True),
            _path("folder", "Folder to write.  [default: data/NAME]", "--dir"),
            JSON,
        ),
        "automl.cli.machine.fetch_data",
    ),
    Action(
        "data prepare",
        PREPARE,
        "Encode a parallel corpus of any size on disk.",
        """Encode a parallel corpus into shards on disk, which training reads one by one.

        Pairs with an empty side or with more than --max-length tokens are skipped and counted.""",
        (
            "automl data prepare --source corpus.en.gz --target corpus.de.gz --dir data/corpus",
            "automl data prepare --from data/texts --pair en-de --pair de-en --dir data/both",
            "automl sweep configs/nmt.yaml data.name=prepared data.dir=data/corpus",
        ),
        (
            _path("source", "Text file with one sentence in each line, plain or .gz."),
            _path("target", "Translations of --source, line by line."),
            _path("valid_source", "Sentences of the validation split."),
            _path("valid_target", "Translations of --valid-source."),
            _path(
                "texts",
                "Folder with train.LANGUAGE and valid.LANGUAGE of the languages of --pair.",
                "--from",
            ),
            Argument(
                "pairs",
                help="Language pair such as en-de, with --from; may be repeated for one model of "
                "several.",
                flag="--pair",
                many=True,
            ),
            _path("folder", "New folder.", "--dir", required=True),
            Argument(
                "vocabulary_size",
                int,
                "Size of the vocabulary that both languages share.",
                "--vocabulary-size",
                default=8000,
            ),
            Argument(
                "kind", ("bpe", "unigram", "word"), "Kind of tokens.", "--kind", default="bpe"
            ),
            Argument(
                "max_length",
                int,
                "Longest sentence in tokens; longer ones are skipped.",
                "--max-length",
                default=128,
            ),
            Argument(
                "sample",
                int,
                "Number of pairs from which the vocabulary is learned.",
                "--sample",
                default=500_000,
            ),
            Argument(
                "shard_pairs",
                int,
                "Number of pairs in each shard.",
                "--shard-pairs",
                default=200_000,
            ),
            Argument(
                "seed", int, "Seed of the sample and of the order of pairs.", "--seed", default=0
            ),
            JSON,
        ),
        "automl.cli.machine.prepare_data",
    ),
    Action(
        "doctor",
        PREPARE,
        "Show what this machine can run.",
        "Show hardware, packages and backends, and what precisions and strategies need.",
        ("automl doctor",),
        (replace(STORE, help="Store to check for writing."), JSON),
        "automl.cli.machine.doctor",
    ),
)
