"""Words of the built-in corpus: small tables of English and German forms."""

from dataclasses import dataclass


def _words(text: str) -> list[str]:
    return text.split()


_EN_SMALL = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_EN_TENS = _words("_ _ twenty thirty forty fifty sixty seventy eighty ninety")
_DE_SMALL = _words(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
    "fünfzehn sechzehn siebzehn achtzehn neunzehn"
)
_DE_TENS = _words("_ _ zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
_EN_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
    "twenty": "twentieth",
    "thirty": "thirtieth",
}
_DE_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}


def english_number(n: int) -> str:
    """The number, 0 to 1,000,000, in English; 241,006 is "two hundred forty-one thousand six"."""
    if n == 1_000_000:
        return "one million"
    if n >= 1000:
        return _with_rest(english_number(n // 1000) + " thousand", n % 1000)
    if n >= 100:
        return _with_rest(_EN_SMALL[n // 100] + " hundred", n % 100)
    if n >= 20:
        return _EN_TENS[n // 10] + (f"-{_EN_SMALL[n % 10]}" if n % 10 else "")
    return _EN_SMALL[n]


def _with_rest(text: str, rest: int) -> str:
    return f"{text} {english_number(rest)}" if rest else text


def german_number(n: int, one: str = "eins") -> str:
    """The number, 0 to 1,000,000, in German; 241,006 is "zweihunderteinundvierzigtausendsechs".

    Args:
        one: the form of a final one: "eins" alone, "ein" or "eine" before a noun.
    """
    if n == 1_000_000:
        return "eine Million"
    for size, word in ((1000, "tausend"), (100, "hundert")):
        if n >= size:
            rest = german_number(n % size, one) if n % size else ""
            return german_number(n // size, "ein") + word + rest
    if n >= 20:
        return (german_number(n % 10, "ein") + "und" if n % 10 else "") + _DE_TENS[n // 10]
    return one if n == 1 else _DE_SMALL[n]


def english_ordinal(day: int) -> str:
    """The ordinal of a day, 1 to 31, such as "twenty-third"."""
    tens, dash, last = english_number(day).rpartition("-")
    return tens + dash + _EN_ORDINALS.get(last, last + "th")


def german_ordinal(day: int) -> str:
    """The ordinal of a day, 1 to 31, in the dative, such as "dreiundzwanzigsten"."""
    stem = _DE_ORDINALS.get(day) or german_number(day) + ("t" if day < 20 else "st")
    return stem + "en"


def english_time(hour: int, minute: int) -> str:
    """A time on the twelve-hour clock, such as "twenty past three".

    Args:
        hour: 1 to 12.
        minute: a multiple of 5.
    """
    name = english_number(hour)
    if minute == 0:
        return f"{name} o'clock"
    words = {15: "quarter", 30: "half"}
    if minute <= 30:
        return f"{words.get(minute) or english_number(minute)} past {name}"
    remaining = words.get(60 - minute) or english_number(60 - minute)
    return f"{remaining} to {english_number(hour % 12 + 1)}"


def german_time(hour: int, minute: int) -> str:
    """The same in German, which relates half hours to the next hour: "fünf vor halb vier"."""
    this = german_number(hour)
    following = german_number(hour % 12 + 1)
    if minute == 0:
        return f"{german_number(hour, 'ein')} Uhr"
    if 25 <= minute <= 35:
        return {25: "fünf vor ", 30: "", 35: "fünf nach "}[minute] + f"halb {following}"
    if minute < 25:
        return ("Viertel" if minute == 15 else german_number(minute)) + f" nach {this}"
    return ("Viertel" if minute == 45 else german_number(60 - minute)) + f" vor {following}"


@dataclass(frozen=True)
class Noun:
    """A noun and its plural in both languages; the German gender is "m", "f" or "n"."""

    en: str
    en_plural: str
    gender: str
    de: str
    de_plural: str


@dataclass(frozen=True)
class Adjective:
    """An adjective; `de` is the stem that endings are added to."""

    en: str
    de: str


@dataclass(frozen=True)
class Verb:
    """A transitive verb; `objects` is the table of nouns that fit as its objects.

    English has base form, third person and past; German has infinitive, third person and
    participle. `prefix` is the separable prefix; infinitive and participle include it.
    """

    en: str
    en_third: str
    en_past: str
    de: str
    de_third: str
    participle: str
    objects: str
    prefix: str = ""


def _rows(table: str) -> list[list[str]]:
    """The fields of each line, split at " | " if the line has one, else at blanks."""
    lines = table.strip().splitlines()
    return [line.split(" | ") if " | " in line else line.split() for line in lines]


PEOPLE = [
    Noun(*row)
    for row in _rows("""
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
""")
]

THINGS = [
    Noun(*row)
    for row in _rows("""
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
""")
]

FOODS = [
    Noun(*row)
    for row in _rows("""
apple apples m Apfel Äpfel
cake cakes m Kuchen Kuchen
salad salads m Salat Salate
pear pears f Birne Birnen
soup soups f Suppe Suppen
tomato tomatoes f Tomate Tomaten
carrot carrots f Karotte Karotten
egg eggs n Ei Eier
sausage sausages f Wurst Würste
""")
]

ANIMALS = [
    Noun(*row)
    for row in _rows("""
dog dogs m Hund Hunde
bird birds m Vogel Vögel
cat cats f Katze Katzen
cow cows f Kuh Kühe
mouse mice f Maus Mäuse
duck ducks f Ente Enten
horse horses n Pferd Pferde
pig pigs n Schwein Schweine
rabbit rabbits n Kaninchen Kaninchen
""")
]

TABLES = {"people": PEOPLE, "things": THINGS, "foods": FOODS, "animals": ANIMALS}

_FIT = {
    "people": "old young tall friendly clever tired happy sad quiet loud strong weak rich poor "
    "famous",
    "things": "old new small big red blue green black white beautiful expensive cheap heavy light "
    "dirty",
    "foods": "small big red green cheap expensive fresh sweet cold warm good",
    "animals": "old young small big black white brown loud quiet wild beautiful",
}
_STEMS = {
    row[0]: row[1]
    for row in _rows("""
old alt
young jung
tall groß
friendly freundlich
clever klug
tired müd
happy glücklich
sad traurig
quiet ruhig
loud laut
strong stark
weak schwach
rich reich
poor arm
famous berühmt
new neu
small klein
big groß
red rot
blue blau
green grün
black schwarz
white weiß
brown braun
beautiful schön
expensive teur
cheap billig
heavy schwer
light leicht
dirty schmutzig
fresh frisch
sweet süß
cold kalt
warm warm
good gut
wild wild
""")
}
ADJECTIVES = {
    kind: [Adjective(word, _STEMS[word]) for word in words.split()] for kind, words in _FIT.items()
}

VERBS = [
    Verb(*row)
    for row in _rows("""
see sees saw sehen sieht gesehen people
see sees saw sehen sieht gesehen things
see sees saw sehen sieht gesehen animals
know knows knew kennen kennt gekannt people
visit visits visited besuchen besucht besucht people
greet greets greeted grüßen grüßt gegrüßt people
love loves loved lieben liebt geliebt people
call calls called anrufen ruft angerufen people an
pick_up picks_up picked_up abholen holt abgeholt people ab
invite invites invited einladen lädt eingeladen people ein
buy buys bought kaufen kauft gekauft things
buy buys bought kaufen kauft gekauft foods
sell sells sold verkaufen verkauft verkauft things
find finds found finden findet gefunden things
lose loses lost verlieren verliert verloren things
look_for looks_for looked_for suchen sucht gesucht things
need needs needed brauchen braucht gebraucht things
clean cleans cleaned putzen putzt geputzt things
carry carries carried tragen trägt getragen things
paint paints painted malen malt gemalt things
forget forgets forgot vergessen vergisst vergessen things
bring_along brings_along brought_along mitbringen bringt mitgebracht things mit
put_away puts_away put_away wegräumen räumt weggeräumt things weg
eat eats ate essen isst gegessen foods
try tries tried probieren probiert probiert foods
feed feeds fed füttern füttert gefüttert animals
hear hears heard hören hört gehört animals
""")
]

NAMES = ["Anna", "Peter", "Maria", "Thomas", "Julia", "Paul", "Laura", "Felix", "Sophie", "Max"]

PLACES = _rows("""
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

FREQUENCIES = [("often", "oft"), ("always", "immer"), ("never", "nie"), ("rarely", "selten")]
TIMES = {  # tense -> adverbs that go with it
    "present": [("today", "heute"), ("now", "jetzt")],
    "past": [
        ("yesterday", "gestern"),
        ("last week", "letzte Woche"),
        ("last year", "letztes Jahr"),
    ],
    "future": [("tomorrow", "morgen"), ("next week", "nächste Woche"), ("soon", "bald")],
    "modal": [("today", "heute"), ("tomorrow", "morgen")],
}

EVENTS = _rows("""
the train | der Zug | travel
the bus | der Bus | travel
the ship | das Schiff | travel
the film | der Film | happen
the concert | das Konzert | happen
the lesson | der Unterricht | happen
the meeting | die Sitzung | happen
the party | das Fest | happen
the exam | die Prüfung | happen
the shop | der Laden | open
the museum | das Museum | open
the bank | die Bank | open
""")
DEEDS = {  # kind of event -> English verb, German finite verb, separable prefix
    "travel": [("leaves", "fährt", "ab"), ("arrives", "kommt", "an"), ("stops", "hält", "an")],
    "happen": [
        ("begins", "fängt", "an"),
        ("ends", "hört", "auf"),
        ("takes place", "findet", "statt"),
    ],
    "open": [("opens", "macht", "auf"), ("closes", "macht", "zu")],
}
SAYINGS = [  # subject and verb in English and German, followed by "that ..."
    ("Anna says", "Anna sagt"),
    ("Peter thinks", "Peter denkt"),
    ("he knows", "er weiß"),
    ("she hopes", "sie hofft"),
    ("we know", "wir wissen"),
    ("they believe", "sie glauben"),
    ("I hear", "ich höre"),
    ("Max forgot", "Max hat vergessen"),
    ("my mother says", "meine Mutter sagt"),
    ("the teacher believes", "der Lehrer glaubt"),
]
CONJUNCTIONS = [
    ("because", "weil"),
    ("although", "obwohl"),
    ("while", "während"),
    ("before", "bevor"),
    ("if", "wenn"),
]
WEEKDAYS = _rows("""
Monday Montag
Tuesday Dienstag
Wednesday Mittwoch
Thursday Donnerstag
Friday Freitag
Saturday Samstag
Sunday Sonntag
""")
MONTHS = _rows("""
January Januar
February Februar
March März
April April
May Mai
June Juni
July Juli
August August
September September
October Oktober
November November
December Dezember
""")
