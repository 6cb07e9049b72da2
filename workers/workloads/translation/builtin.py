"""The built-in corpus: English-German sentences from a generator with a fixed seed.

Somebody does something, or has a number of things. Such a clause stands alone, joins another, or
becomes subordinate; then German puts the verb last.
"""

import random
from functools import lru_cache

NUM_PAIRS = 30_000
NUM_HELD_OUT = 1_000  # pairs of the validation split, and of the test split
Pair = tuple[str, str]


def _rows(table: str) -> list[list[str]]:
    """The fields of each line, split at " | " if the line has one, else at blanks."""
    return [line.split(" | " if "|" in line else None) for line in table.strip().splitlines()]


# Case and gender ("p" plural): the article, the ending of an adjective after it, the ending of
# "my", and the ending of an adjective after that; "_" is none.
_FORMS = {
    row[0]: [part.strip("_") for part in row[1:]]
    for row in _rows("""
nm der e _ er
nf die e e e
nn das e _ es
np die en e en
am den en en en
af die e e e
an das e _ es
ap die en e en
""")
}
_DETERMINERS = [
    ("the", ""),
    ("the", ""),
    ("my", "mein"),
    ("our", "unser"),
    ("her", "ihr"),
    ("a", "ein"),
]
# Singular and plural in English; gender, singular and plural in German.
_NOUNS = {
    "people": _rows("""
teacher teachers m Lehrer Lehrer
doctor doctors m Arzt Ärzte
father fathers m Vater Väter
brother brothers m Bruder Brüder
friend friends m Freund Freunde
cook cooks m Koch Köche
gardener gardeners m Gärtner Gärtner
painter painters m Maler Maler
man men m Mann Männer
son sons m Sohn Söhne
uncle uncles m Onkel Onkel
king kings m König Könige
judge judges m Richter Richter
driver drivers m Fahrer Fahrer
baker bakers m Bäcker Bäcker
guest guests m Gast Gäste
woman women f Frau Frauen
mother mothers f Mutter Mütter
sister sisters f Schwester Schwestern
daughter daughters f Tochter Töchter
queen queens f Königin Königinnen
aunt aunts f Tante Tanten
singer singers f Sängerin Sängerinnen
writer writers f Autorin Autorinnen
grandmother grandmothers f Großmutter Großmütter
child children n Kind Kinder
girl girls n Mädchen Mädchen
baby babies n Baby Babys
"""),
    "things": _rows("""
table tables m Tisch Tische
chair chairs m Stuhl Stühle
coat coats m Mantel Mäntel
hat hats m Hut Hüte
key keys m Schlüssel Schlüssel
letter letters m Brief Briefe
suitcase suitcases m Koffer Koffer
ring rings m Ring Ringe
carpet carpets m Teppich Teppiche
ball balls m Ball Bälle
lamp lamps f Lampe Lampen
clock clocks f Uhr Uhren
bag bags f Tasche Taschen
bottle bottles f Flasche Flaschen
flower flowers f Blume Blumen
map maps f Karte Karten
door doors f Tür Türen
shirt shirts n Hemd Hemden
newspaper newspapers f Zeitung Zeitungen
jacket jackets f Jacke Jacken
book books n Buch Bücher
picture pictures n Bild Bilder
bicycle bicycles n Fahrrad Fahrräder
bed beds n Bett Betten
window windows n Fenster Fenster
knife knives n Messer Messer
dress dresses n Kleid Kleider
glass glasses n Glas Gläser
gift gifts n Geschenk Geschenke
boat boats n Boot Boote
"""),
    "foods": _rows("""
apple apples m Apfel Äpfel
cake cakes m Kuchen Kuchen
salad salads m Salat Salate
pear pears f Birne Birnen
soup soups f Suppe Suppen
tomato tomatoes f Tomate Tomaten
carrot carrots f Karotte Karotten
egg eggs n Ei Eier
sausage sausages f Wurst Würste
"""),
    "animals": _rows("""
dog dogs m Hund Hunde
bird birds m Vogel Vögel
cat cats f Katze Katzen
cow cows f Kuh Kühe
mouse mice f Maus Mäuse
duck ducks f Ente Enten
horse horses n Pferd Pferde
pig pigs n Schwein Schweine
rabbit rabbits n Kaninchen Kaninchen
"""),
}
_ADJECTIVES = {  # English, and the German stem
    "people": _rows("""
old alt
young jung
friendly freundlich
clever klug
happy glücklich
sad traurig
quiet ruhig
loud laut
strong stark
weak schwach
rich reich
poor arm
"""),
    "things": _rows("""
old alt
new neu
small klein
big groß
red rot
blue blau
green grün
white weiß
beautiful schön
cheap billig
heavy schwer
dirty schmutzig
"""),
    "foods": _rows("""
small klein
big groß
cheap billig
fresh frisch
sweet süß
cold kalt
warm warm
good gut
"""),
    "animals": _rows("""
old alt
young jung
small klein
big groß
black schwarz
white weiß
brown braun
wild wild
"""),
}
# English base form, third person and past; German infinitive, third person and participle; what the
# object is; the separable prefix, which infinitive and participle include.
_VERBS = _rows("""
see sees saw sehen sieht gesehen people _
see sees saw sehen sieht gesehen things _
see sees saw sehen sieht gesehen animals _
know knows knew kennen kennt gekannt people _
visit visits visited besuchen besucht besucht people _
greet greets greeted grüßen grüßt gegrüßt people _
love loves loved lieben liebt geliebt people _
call calls called anrufen ruft angerufen people an
pick_up picks_up picked_up abholen holt abgeholt people ab
invite invites invited einladen lädt eingeladen people ein
buy buys bought kaufen kauft gekauft things _
buy buys bought kaufen kauft gekauft foods _
sell sells sold verkaufen verkauft verkauft things _
find finds found finden findet gefunden things _
lose loses lost verlieren verliert verloren things _
look_for looks_for looked_for suchen sucht gesucht things _
need needs needed brauchen braucht gebraucht things _
clean cleans cleaned putzen putzt geputzt things _
carry carries carried tragen trägt getragen things _
paint paints painted malen malt gemalt things _
forget forgets forgot vergessen vergisst vergessen things _
bring_along brings_along brought_along mitbringen bringt mitgebracht things mit
put_away puts_away put_away wegräumen räumt weggeräumt things weg
eat eats ate essen isst gegessen foods _
try tries tried probieren probiert probiert foods _
feed feeds fed füttern füttert gefüttert animals _
hear hears heard hören hört gehört animals _
""")
_NAMES = _rows("Anna Peter Maria Thomas Julia Paul Laura Felix Sophie Max")[0]
_PRONOUNS = [("he", "er", ""), ("she", "sie", ""), ("we", "wir", "p"), ("they", "sie", "p")]
_PLACES = _rows("""
in the garden | im Garten
in the kitchen | in der Küche
at the station | am Bahnhof
in the city | in der Stadt
at school | in der Schule
at the market | auf dem Markt
in the park | im Park
in the shop | im Laden
at home | zu Hause
in front of the house | vor dem Haus
behind the church | hinter der Kirche
at the lake | am See
""")
_TIMES = {  # tense -> adverbs that go with it
    "present": _rows("today heute\nnow jetzt"),
    "past": _rows("yesterday | gestern\nlast week | letzte Woche\nlast year | letztes Jahr"),
    "future": _rows("tomorrow | morgen\nnext week | nächste Woche\nsoon | bald"),
}
_SAYINGS = _rows("""
Anna says | Anna sagt
Peter thinks | Peter denkt
he knows | er weiß
she hopes | sie hofft
we know | wir wissen
they believe | sie glauben
my mother says | meine Mutter sagt
the teacher believes | der Lehrer glaubt
""")
_CONJUNCTIONS = _rows("because weil\nalthough obwohl\nwhile während\nbefore bevor\nif wenn")
_EN_SMALL, _DE_SMALL, _EN_TENS, _DE_TENS = _rows(
    "_ one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen\n"
    "_ ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
    "sechzehn siebzehn achtzehn neunzehn\n"
    "twenty thirty forty fifty sixty seventy eighty ninety\n"
    "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
)
_EN_SMALL += [ten + f"-{one}" * (one != "_") for ten in _EN_TENS for one in _EN_SMALL[:10]]
_DE_SMALL += [f"{one}und" * (one != "_") + ten for ten in _DE_TENS for one in _DE_SMALL[:10]]


def number_words(n: int) -> Pair:
    """A number from 1 to 999,999 before a noun; 241 is "zweihunderteinundvierzig"."""
    for size, english, german in ((1000, "thousand", "tausend"), (100, "hundred", "hundert")):
        if n >= size:
            count, rest = number_words(n // size), number_words(n % size) if n % size else ("", "")
            return f"{count[0]} {english} {rest[0]}".strip(), f"{count[1]}{german}{rest[1]}"
    return _EN_SMALL[n], _DE_SMALL[n]


def _noun_phrase(rng: random.Random, table: str, case: str) -> tuple[str, str, str]:
    """A noun with determiner and, half of the time, an adjective; and "p" if it is a plural."""
    en, en_plural, gender, de, de_plural = rng.choice(_NOUNS[table])
    en_word, stem = rng.choice(_DETERMINERS)
    plural = rng.random() < 0.35 and en_word != "a"
    article, after_article, ending, after_ending = _FORMS[case + ("p" if plural else gender)]
    de_word, of_adjective = (stem + ending, after_ending) if stem else (article, after_article)
    en_noun, de_noun = (en_plural, de_plural) if plural else (en, de)
    if rng.random() < 0.5:
        english, german = rng.choice(_ADJECTIVES[table])
        en_noun, de_noun = f"{english} {en_noun}", f"{german}{of_adjective} {de_noun}"
    article_en = "an" if en_word == "a" and en_noun[0] in "aeiou" else en_word
    return f"{article_en} {en_noun}", f"{de_word} {de_noun}", "p" if plural else ""


def _clause(rng: random.Random) -> tuple[str, str, str, str, str, str]:
    """English; German subject, finite verb, middle, and what a main and a subordinate end in."""
    kind, name = rng.random(), rng.choice(_NAMES)
    who = (name, name, "") if kind < 0.2 else rng.choice(_PRONOUNS)
    subject, de_subject, plural = _noun_phrase(rng, "people", "n") if kind > 0.5 else who
    if rng.random() < 0.2:
        number = number_words(rng.randrange(2, 10 ** rng.randint(1, 6)))
        noun = rng.choice(_NOUNS["things"])
        has, hat = ("have", "haben") if plural else ("has", "hat")
        english = f"{subject} {has} {number[0]} {noun[1]}"
        return english, de_subject, hat, f"{number[1]} {noun[4]}", "", hat
    base, third, past, de, de_third, participle, table, prefix = rng.choice(_VERBS)
    prefix, tense = prefix.strip("_"), rng.choice(["present", "past", "future"])
    en_thing, de_thing, _ = _noun_phrase(rng, table, "a")
    extras = [rng.choice(_TIMES[tense])] if rng.random() < 0.3 else []
    extras += [rng.choice(_PLACES)] if rng.random() < 0.3 else []
    verb = {"present": base if plural else third, "past": past, "future": f"will {base}"}
    english = " ".join([subject, verb[tense].replace("_", " "), en_thing, *(e for e, _ in extras)])
    middle = " ".join([*(german for _, german in extras), de_thing])
    if tense == "present":
        present = de.removeprefix(prefix) if plural else de_third
        return english, de_subject, present, middle, prefix, prefix + present
    forms, end = (("haben", "hat"), participle) if tense == "past" else (("werden", "wird"), de)
    return english, de_subject, forms[not plural], middle, end, f"{end} {forms[not plural]}"


def _sentence(rng: random.Random) -> Pair:
    """One clause, two joined clauses, or a clause inside another."""
    en, subject, finite, middle, end, last = _clause(rng)
    main = f"{subject} {finite} {middle} {end}".strip()
    subordinate = f"{subject} {middle} {last}"
    form = rng.random()
    if form < 0.2:
        english, german = rng.choice(_SAYINGS)
        en, main = f"{english} that {en}", f"{german}, dass {subordinate}"
    elif form < 0.5:
        (english, german), first = rng.choice(_CONJUNCTIONS), _clause(rng)
        de = f"{first[1]} {first[2]} {first[3]} {first[4]}".strip()
        if form > 0.3:
            en, main = f"{first[0]} {english} {en}", f"{de}, {german} {subordinate}"
        else:
            inverted = f"{first[2]} {first[1]} {first[3]} {first[4]}".strip()
            en, main = f"{english} {en}, {first[0]}", f"{german} {subordinate}, {inverted}"
    return f"{en[0].upper()}{en[1:]}.", f"{main[0].upper()}{main[1:]}."


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
