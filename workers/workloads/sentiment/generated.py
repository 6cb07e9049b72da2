"""Generated film reviews: opinions with negation, so that the order of words matters."""

import numpy as np

_ASPECTS = (
    "plot",
    "acting",
    "music",
    "script",
    "dialogue",
    "ending",
    "camera",
    "cast",
    "pace",
    "humour",
    "story",
)
_GOOD = (
    "wonderful",
    "brilliant",
    "moving",
    "charming",
    "clever",
    "superb",
    "gripping",
    "fresh",
    "elegant",
    "warm",
)
_BAD = (
    "dreadful",
    "boring",
    "clumsy",
    "dull",
    "awful",
    "shallow",
    "lazy",
    "noisy",
    "tedious",
    "hollow",
    "stale",
)
_ADVERBS = ["", "", "really ", "quite ", "very ", "truly ", "rather "]
_NEGATIONS = ["not ", "never ", "hardly ", "far from "]
_FILLERS = (
    "we saw it on a rainy afternoon",
    "the film runs for almost two hours",
    "my brother had told me about it",
    "it was made in a small town by the sea",
    "the hall was half empty",
    "there is a second part in the making",
    "it is based on a book from the last century",
    "the lead had played in three films before",
)


def _clause(rng: np.random.Generator, positive: bool) -> str:
    negated = rng.random() < 0.4
    words = _GOOD if positive != negated else _BAD
    adjective = words[rng.integers(len(words))]
    aspect = _ASPECTS[rng.integers(len(_ASPECTS))]
    negation = _NEGATIONS[rng.integers(len(_NEGATIONS))] if negated else ""
    return f"the {aspect} was {negation}{_ADVERBS[rng.integers(len(_ADVERBS))]}{adjective}"


def _review(rng: np.random.Generator, positive: bool) -> str:
    count = 2 * int(rng.integers(1, 4)) + 1
    agreeing = count // 2 + 1 + int(rng.integers(0, count // 2 + 1))
    clauses = [_clause(rng, positive == (i < agreeing)) for i in range(count)]
    clauses += [_FILLERS[i] for i in rng.integers(0, len(_FILLERS), int(rng.integers(1, 5)))]
    rng.shuffle(clauses)
    return ". ".join(text.capitalize() for text in clauses) + "."


def reviews(count: int, seed: int) -> tuple[list[str], list[int]]:
    """`count` texts and their labels (1 if most opinions of the text are good), half of each.

    About two of five opinions are negated ("not really wonderful"), and up to half of the opinions
    contradict the label.
    """
    rng = np.random.default_rng([seed, 0x7E47])
    labels = [int(i % 2) for i in range(count)]
    return [_review(rng, label == 1) for label in labels], labels
