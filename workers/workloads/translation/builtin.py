"""The built-in corpus: English-German sentences from a small grammar with a fixed seed.

Clauses (with agreement, adjective endings, separable verbs), numbers to a million, clock times,
dates and prices are made as `Clause`s. A clause stands alone, joins another, or becomes
subordinate; then German puts the verb last.
"""

import random
from dataclasses import dataclass
from functools import lru_cache

from . import builtin_words as lex
from .builtin_words import (
    Noun,
    Verb,
    english_number,
    english_ordinal,
    english_time,
    german_number,
    german_ordinal,
    german_time,
)

NUM_PAIRS = 30_000
NUM_HELD_OUT = 1_000  # pairs of the validation split, and of the test split
Pair = tuple[str, str]

_ARTICLES = {  # case and gender ("p" plural) -> definite article
    "nom": {"m": "der", "f": "die", "n": "das", "p": "die"},
    "acc": {"m": "den", "f": "die", "n": "das", "p": "die"},
    "dat": {"m": "dem", "f": "der", "n": "dem", "p": "den"},
}
_EIN = {  # endings of ein, mein, kein
    "nom": {"m": "", "f": "e", "n": "", "p": "e"},
    "acc": {"m": "en", "f": "e", "n": "", "p": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "p": "en"},
}
_STRONG = {  # adjective endings without an article that shows the case
    "nom": {"m": "er", "f": "e", "n": "es", "p": "e"},
    "acc": {"m": "en", "f": "e", "n": "es", "p": "e"},
    "dat": {"m": "en", "f": "en", "n": "en", "p": "en"},
}
_SUBJECTS = [
    ("I", "ich", "1s"),
    ("he", "er", "3s"),
    ("she", "sie", "3s"),
    ("we", "wir", "p"),
    ("they", "sie", "p"),
]
_COUNTS = [
    (("have", "has"), ("habe", "hat", "haben")),
    (("count", "counts"), ("zähle", "zählt", "zählen")),
]
_PARTS_OF_DAY = [("", ""), ("", ""), ("in the morning", "morgens"), ("in the evening", "abends")]
_MODALS = [("must", "müssen", "muss"), ("can", "können", "kann"), ("should", "sollen", "soll")]


@dataclass(frozen=True)
class Clause:
    """A clause in both languages; German is split into subject, finite verb, middle and final.

    The main clause is "subject finite middle final". If another part comes first, verb and subject
    swap. In a subordinate clause the finite verb comes last, joined to its separable prefix.
    """

    en: str
    subject: str
    finite: str
    middle: str = ""
    final: str = ""
    prefix: str = ""

    def main(self) -> str:
        """The German main clause, verb second."""
        return _text(self.subject, self.finite, self.middle, self.final, self.prefix)

    def after(self) -> str:
        """The German main clause after a leading part: verb, subject, rest."""
        return _text(self.finite, self.subject, self.middle, self.final, self.prefix)

    def subordinate(self) -> str:
        """The German subordinate clause without its conjunction, verb last."""
        return _text(self.subject, self.middle, self.final, self.prefix + self.finite)


@dataclass(frozen=True)
class Phrase:
    """A noun phrase; `person` is "1s", "3s" or "p"."""

    en: str
    de: str
    person: str = "3s"


def _text(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _ending(kind: str, case: str, form: str) -> str:
    """Adjective ending after a word like "der", after a word like "ein", or without ("strong")."""
    if kind == "strong" or (kind == "ein" and form != "p" and not _EIN[case][form]):
        return _STRONG[case][form]
    if form == "p" or case == "dat" or (case == "acc" and form == "m"):
        return "en"
    return "e"


def _determiner(rng: random.Random, case: str, form: str) -> tuple[str, str, str]:
    """The English word, the German word, and the kind of adjective ending that follows."""
    plural = form == "p"
    kind = rng.choice(["the", "the", "a", "this", "my", "our", "her"])
    if kind == "the":
        return "the", _ARTICLES[case][form], "der"
    if kind == "this":
        endings = {"der": "er", "die": "e", "das": "es", "den": "en", "dem": "em"}
        return "these" if plural else "this", "dies" + endings[_ARTICLES[case][form]], "der"
    if kind == "a":
        return ("", "", "strong") if plural else ("a", "ein" + _EIN[case][form], "ein")
    ending = _EIN[case][form]
    return kind, {"my": "mein", "our": "unser", "her": "ihr"}[kind] + ending, "ein"


def noun_phrase(rng: random.Random, table: str, case: str) -> Phrase:
    """A noun of a table with determiner and, half of the time, an adjective."""
    noun: Noun = rng.choice(lex.TABLES[table])
    plural = rng.random() < 0.35
    form = "p" if plural else noun.gender
    en_det, de_det, kind = _determiner(rng, case, form)
    en_adjective = de_adjective = ""
    if rng.random() < 0.5:
        adjective = rng.choice(lex.ADJECTIVES[table])
        en_adjective = adjective.en
        de_adjective = adjective.de + _ending(kind, case, form)
    en_noun = noun.en_plural if plural else noun.en
    if en_det == "a" and (en_adjective or en_noun)[0] in "aeiou":
        en_det = "an"
    de_noun = noun.de_plural if plural else noun.de
    if plural and case == "dat" and de_noun[-1] not in "ns":
        de_noun += "n"
    return Phrase(
        _text(en_det, en_adjective, en_noun),
        _text(de_det, de_adjective, de_noun),
        "p" if plural else "3s",
    )


def _subject(rng: random.Random) -> Phrase:
    chance = rng.random()
    if chance < 0.3:
        return Phrase(*rng.choice(_SUBJECTS))
    if chance < 0.45:
        name = rng.choice(lex.NAMES)
        return Phrase(name, name)
    return noun_phrase(rng, "people", "nom")


def _finite(verb: Verb, person: str) -> str:
    """The German present tense without the separable prefix."""
    infinitive = verb.de.removeprefix(verb.prefix)
    if person == "p":
        return infinitive
    if person == "3s":
        return verb.de_third
    return infinitive[:-1] + ("" if infinitive.endswith("en") else "e")


def _by_person(person: str, forms: tuple[str, str, str]) -> str:
    return dict(zip(("1s", "3s", "p"), forms, strict=True))[person]


def _action(rng: random.Random) -> Clause:
    """Somebody does something to something, maybe with place and time."""
    subject = _subject(rng)
    verb = rng.choice(lex.VERBS)
    thing = noun_phrase(rng, verb.objects, "acc")
    en_place, de_place = rng.choice(lex.PLACES) if rng.random() < 0.3 else ("", "")
    tense = rng.choice(["present", "present", "past", "future", "modal"])
    en_adverb, de_adverb = rng.choice(lex.TIMES[tense]) if rng.random() < 0.3 else ("", "")
    takes_frequency = tense == "present" and not en_adverb and rng.random() < 0.3
    often, oft = rng.choice(lex.FREQUENCIES) if takes_frequency else ("", "")
    en_verb, finite, final = _conjugate(rng, verb, tense, subject.person)
    en = _text(subject.en, often, en_verb.replace("_", " "), thing.en, en_place, en_adverb)
    prefix = verb.prefix if tense == "present" else ""
    return Clause(
        en, subject.de, finite, _text(de_adverb or oft, thing.de, de_place), final, prefix
    )


def _conjugate(rng: random.Random, verb: Verb, tense: str, person: str) -> tuple[str, str, str]:
    """The English verb, the German finite verb, and the end of the German clause."""
    if tense == "present":
        return (verb.en_third if person == "3s" else verb.en), _finite(verb, person), ""
    if tense == "past":
        return verb.en_past, _by_person(person, ("habe", "hat", "haben")), verb.participle
    if tense == "future":
        return f"will {verb.en}", _by_person(person, ("werde", "wird", "werden")), verb.de
    modal, plural, singular = rng.choice(_MODALS)
    return f"{modal} {verb.en}", plural if person == "p" else singular, verb.de


def _number(rng: random.Random) -> int:
    """A number from 2 to a million; short numbers are as frequent as long ones."""
    digits = rng.choice([1, 2, 2, 3, 3, 4, 5, 6])
    largest = rng.random() < 0.01
    return 1_000_000 if largest else max(2, rng.randrange(10 ** (digits - 1), 10**digits))


def _counting(rng: random.Random) -> Clause:
    """Somebody has or counts a number of things."""
    subject = _subject(rng)
    n = _number(rng)
    table = rng.choice(["things", "animals", "foods"])
    noun = rng.choice(lex.TABLES[table])
    en = noun.en_plural
    de = noun.de_plural
    if rng.random() < 0.4:
        adjective = rng.choice(lex.ADJECTIVES[table])
        en = f"{adjective.en} {en}"
        de = f"{adjective.de}e {de}"
    en_verbs, de_verbs = rng.choice(_COUNTS)
    en_verb = en_verbs[subject.person == "3s"]
    return Clause(
        f"{subject.en} {en_verb} {english_number(n)} {en}",
        subject.de,
        _by_person(subject.person, de_verbs),
        f"{german_number(n, 'ein')} {de}",
    )


def _clock(rng: random.Random) -> Clause:
    """Something begins, leaves or closes at a time of day, maybe on a weekday."""
    en_event, de_event, kind = rng.choice(lex.EVENTS)
    en_verb, finite, prefix = rng.choice(lex.DEEDS[kind])
    hour = rng.randint(1, 12)
    minute = rng.randrange(0, 60, 5)
    en_day, de_day = rng.choice(lex.WEEKDAYS) if rng.random() < 0.4 else ("", "")
    en_part, de_part = rng.choice(_PARTS_OF_DAY)
    en = _text(
        en_event, en_verb, en_day and f"on {en_day}", "at", english_time(hour, minute), en_part
    )
    return Clause(
        en,
        de_event,
        finite,
        _text(de_day and f"am {de_day}", "um", german_time(hour, minute), de_part),
        "",
        prefix,
    )


def _date(rng: random.Random) -> Clause:
    """Something is on a date, or somebody was born on one."""
    day = rng.randint(1, 28)
    en_month, de_month = rng.choice(lex.MONTHS)
    en_date = f"the {english_ordinal(day)} of {en_month}"
    de_date = f"am {german_ordinal(day)} {de_month}"
    if rng.random() < 0.4:
        en_event, de_event, _ = rng.choice(lex.EVENTS[3:9])
        return Clause(f"{en_event} is on {en_date}", de_event, "ist", de_date)
    year = rng.randint(1900, 2029)
    name = rng.choice(lex.NAMES)
    en_who, de_who = rng.choice(
        [(name, name), ("he", "er"), ("she", "sie"), ("my friend", "mein Freund")]
    )
    return Clause(
        f"{en_who} was born on {en_date} {year}", de_who, "wurde", f"{de_date} {year}", "geboren"
    )


def _price(rng: random.Random) -> Clause:
    """Something has a price, in words or figures."""
    thing = noun_phrase(rng, rng.choice(["things", "foods", "animals"]), "nom")
    euros = _number(rng) % 5000 + 2
    cents = rng.choice([0, 0, rng.randint(2, 99)])
    if rng.random() < 0.4:
        en = f"€{euros}.{cents:02d}"
        de = f"{euros},{cents:02d} €"
    else:
        en = f"{english_number(euros)} euros"
        de = f"{german_number(euros, 'ein')} Euro"
        if cents:
            en = f"{en} and {english_number(cents)} cents"
            de = f"{de} und {german_number(cents, 'ein')} Cent"
    en_verb, de_verb = ("costs", "kostet") if thing.person == "3s" else ("cost", "kosten")
    return Clause(f"{thing.en} {en_verb} {en}", thing.de, de_verb, de)


def _sentence(rng: random.Random) -> Pair:
    """One clause, two joined clauses, or a clause inside another."""
    kinds = [_action, _action, _action, _action, _counting, _clock, _date, _price]
    first = rng.choice(kinds)(rng)
    form = rng.random()
    if form < 0.5:
        return _finish(first.en, first.main())
    if form < 0.7:
        en, de = rng.choice(lex.SAYINGS)
        return _finish(f"{en} that {first.en}", f"{de}, dass {first.subordinate()}")
    second = _action(rng)
    if form < 0.76:
        return _finish(f"{first.en} and {second.en}", f"{first.main()} und {second.main()}")
    en, de = rng.choice(lex.CONJUNCTIONS)
    if form < 0.9:
        return _finish(
            f"{first.en} {en} {second.en}", f"{first.main()}, {de} {second.subordinate()}"
        )
    return _finish(f"{en} {second.en}, {first.en}", f"{de} {second.subordinate()}, {first.after()}")


def _finish(en: str, de: str) -> Pair:
    return en[0].upper() + en[1:] + ".", de[0].upper() + de[1:] + "."


@lru_cache(maxsize=1)
def pairs() -> tuple[Pair, ...]:
    """All (English, German) pairs in a fixed random order; no source and no target repeats."""
    rng = random.Random(20_240_601)
    found: dict[str, str] = {}
    targets: set[str] = set()
    while len(found) < NUM_PAIRS:
        en, de = _sentence(rng)
        if en not in found and de not in targets:
            found[en] = de
            targets.add(de)
    return tuple(found.items())


def splits() -> dict[str, tuple[Pair, ...]]:
    """The pairs as `train` (28,000), `valid` and `test` (1,000 each), without common sentences."""
    everything = pairs()
    return {
        "valid": everything[:NUM_HELD_OUT],
        "test": everything[NUM_HELD_OUT : 2 * NUM_HELD_OUT],
        "train": everything[2 * NUM_HELD_OUT :],
    }
