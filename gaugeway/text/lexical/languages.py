"""Language data of the lexical analysis: one entry for each language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One language.

    `marks` are frequent words that give it away, `openers` words that open sentences and are no part of a name after
    them. `counts` are its number words from two on ("one" is an article or a
    pronoun too often), `tens` those a unit may follow ("twenty-one"). Where nouns are capitalised, a capital alone
    makes no name.
    """

    marks: frozenset[str]
    openers: frozenset[str] = frozenset()
    counts: dict[str, str] = field(default_factory=dict)
    tens: frozenset[str] = frozenset()
    nouns_capitalised: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _counts(units: str, tens: str = "", more: str = "") -> dict[str, str]:
    """Number words: `units` from two on, `tens` from 20 on, `more` as pairs of word and value."""
    counts = {word: str(value) for value, word in enumerate(units.split(), 2)}
    counts |= {word: str(10 * value) for value, word in enumerate(tens.split(), 2)}
    pairs = more.split()
    return counts | dict(zip(pairs[::2], pairs[1::2], strict=True))


_ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"

LANGUAGES: dict[str, Language] = {
    "en": Language(
        marks=_words(
            "the of and to is was that for are with from by this it be has have were which an at not will no not "
            "never none neither nor without cannot nobody nothing nowhere hardly"
        ),
        openers=_words(
            "the a an in on at by for from to of with as and but or so if when while after before since until during "
            "although because he she it they we you his her its their our your this that these those there here what "
            "who how which all some many most both each every no not only also then now however according under over "
            "about"
        ),
        counts=_counts(
            "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
            "eighteen nineteen",
            _ENGLISH_TENS,
            "dozen 12 twice 2",
        ),
        tens=_words(_ENGLISH_TENS),
    ),
    "de": Language(
        marks=_words(
            "der die das und ist nicht ein eine mit von zu den im auf für wird werden sich dem des auch wurde "
            "nicht kein keine keinen keinem keiner keines nie niemals niemand nichts nirgends ohne weder kaum"
        ),
        openers=_words(
            "der die das den dem des ein eine einen einem einer in im am an auf aus bei mit nach von vom vor zu zum "
            "zur für um und aber oder wenn als da weil er sie es wir ihr sein seine seinen ihre dieser diese dieses "
            "hier dort alle viele auch so nur nicht kein keine bis seit während unter über laut"
        ),
        counts=_counts(
            "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
            "achtzehn neunzehn",
            "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
            "zweimal 2 dreimal 3",
        ),
        nouns_capitalised=True,
    ),
    "fr": Language(
        marks=_words(
            "le la les des et est une dans pour que qui sur par avec au aux du il elle sont cette ce été ne n pas "
            "jamais aucun aucune sans ni rien personne guère nulle"
        ),
        openers=_words(
            "le la les un une des du de en dans à au aux par pour sur avec et mais ou si quand comme il elle on nous "
            "vous ils elles son sa ses leur leurs ce cette ces cet selon depuis pendant après avant sous tous toutes"
        ),
        counts=_counts(
            "deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
            "vingt trente quarante cinquante soixante",
        ),
    ),
    "es": Language(
        marks=_words(
            "el la los las y es una en para que por con del se al su fue son como está este lo no nunca jamás sin "
            "ningún ninguna ninguno nadie nada tampoco ni"
        ),
        openers=_words(
            "el la los las un una unos unas en a al de del por para con sobre y pero o si cuando como su sus este "
            "esta estos estas según desde durante después antes bajo todos todas no"
        ),
        counts=_counts(
            "dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete "
            "dieciocho diecinueve",
            "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
        ),
    ),
    "it": Language(
        marks=_words(
            "il lo gli e è di che una per con del della nel sono dei alla dal questo anche non mai senza nessuno "
            "nessuna niente nulla né"
        ),
    ),
    "pt": Language(
        marks=_words(
            "o os as e é uma em para que por com do da dos das no na foi são não ao não nunca jamais sem nem nenhum "
            "nenhuma ninguém nada"
        ),
    ),
    "nl": Language(
        marks=_words(
            "de het een en van is dat op te met voor zijn niet wordt door aan ook bij niet geen nooit zonder niemand "
            "niets noch nergens"
        ),
    ),
    "tr": Language(marks=_words("ve bir bu için ile olan olarak değil yok hiç hiçbir asla")),
    "ru": Language(marks=_words("и в на что по это как из для не нет ни без никогда")),
    "hi": Language(marks=_words("है की के में और का से को नहीं न मत कभी")),
    "ar": Language(marks=_words("في من على إلى أن عن هذا ليس ليست لا لم لن غير بدون")),
}

_EVERY = Language(
    marks=frozenset(),
    counts={word: value for language in reversed(LANGUAGES.values()) for word, value in language.counts.items()},
    tens=_words(_ENGLISH_TENS),
)


_VOTES: dict[str, tuple[str, ...]] = {
    word: tuple(name for name, language in LANGUAGES.items() if word in language.marks)
    for word in frozenset().union(*(language.marks for language in LANGUAGES.values()))
}


def language_of(words: Iterable[str]) -> Language:
    """The language most of the `words` (in lower case) speak for; without any sign, what all have in common.

    >>> language_of("die lampe ist am 6. mai nicht da".split()) is LANGUAGES["de"]
    True
    """
    votes = Counter(chain.from_iterable([_VOTES[word] for word in words if word in _VOTES]))
    return LANGUAGES[max(LANGUAGES, key=lambda name: votes.get(name, 0))] if votes else _EVERY
