"""Words of the built-in corpus: small tables of English and German forms."""

from dataclasses import dataclass


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
