"""Numbers, ordinals and clock times in English and German words."""


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
