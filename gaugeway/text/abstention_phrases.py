"""How answers decline, by language: patterns for a clause of an answer, in lower case and without quotations.

`declines` match at the start of a clause, or after openings such as "unfortunately"; `anywhere` are searched in it.
`polite` match clauses that say nothing of their own beside a refusal: apologies, offers of help, what the documents are
about instead, where else to look. `turns` are where a sentence turns to another statement ("..., but ...").
"""

from __future__ import annotations

import re
from functools import cached_property

from gaugeway.text.abstention_short import SHORT
from gaugeway.text.abstention_words import WORDS

_NEVER = "(?!)"
_COMMA = "[,\u3001\u060c]"
_WORD_END = r"(?:\b|(?<=[\u0900-\u097f\u3040-\u9fff\uac00-\ud7a3]))"


class Phrases:
    """The patterns of one language, compiled with their first use: that takes 10 ms."""

    def __init__(
        self, *, language: str, before: str, declines: str, polite: str, turns: str, anywhere: str = _NEVER
    ) -> None:
        self._before, self._declines, self._polite = before, f"{declines.strip()}\n{SHORT[language]}", polite
        self._turns, self._anywhere = turns, anywhere
        self._words = WORDS.get(language)

    @cached_property
    def declines(self) -> re.Pattern[str]:
        """Matches a clause that declines; up to two phrases that begin with `before` may stand in front."""
        opening = f"(?:{self._before}){_WORD_END}"
        openings = f"(?:{opening}[^,\u3001\u060c]{{0,90}}{_COMMA} ?){{0,2}}(?:{opening} (?:that )?)?"
        return re.compile(f"{openings}(?:{_any_of(self._declines)})")

    @cached_property
    def opening(self) -> re.Pattern[str]:
        """Matches how a clause may begin before it declines."""
        return re.compile(f"(?:{self._before}){_WORD_END}")

    @cached_property
    def lacking(self) -> re.Pattern[str]:
        """Found in a clause that says what the passages lack."""
        return re.compile(self._words.pattern() if self._words is not None else _NEVER)

    @cached_property
    def joins(self) -> re.Pattern[str]:
        """Matches what goes on with the question behind the comma of such a clause."""
        return re.compile(rf"(?:{self._words.joins})\b" if self._words is not None and self._words.joins else "")

    @cached_property
    def anywhere(self) -> re.Pattern[str]:
        """Found in a clause that declines."""
        return re.compile(_any_of(self._anywhere))

    @cached_property
    def polite(self) -> re.Pattern[str]:
        """Matches a clause that says nothing of its own."""
        return re.compile(_any_of(self._polite))

    @cached_property
    def turns(self) -> re.Pattern[str]:
        """Found between two clauses."""
        return re.compile(self._turns)


def _any_of(lines: str) -> str:
    """Return the pattern for any of some patterns, one a line."""
    return "|".join(line.strip() for line in lines.splitlines() if line.strip())


_EN_INFO = (
    r"(?:\w+ ){0,4}(?:information|info|answers?|mention|details|data|context|knowledge|references? (?:to|of|for)"
    r"|documentation|documents?|passages?|sources?|guidance|specifics|anything|access)\b"
)
_EN_DOCS = (
    r"(?:(?:the|these|this|those|any of the|my|your|our|all of the) )?(?:\w+ ){0,3}"
    r"(?:documents?|context|contexts|passages?|sources?|excerpts?|knowledge base|documentation|materials?|search results"
    r"|snippets?|articles?|texts?|information)"
    r"(?: (?:provided|given|above|available|supplied|retrieved|shared|at hand|here|i have|i was given"
    r"|you (?:provided|shared|gave me|gave|have provided)|that (?:was|were|is|are) (?:provided|given|available)))?"
)
_EN_IN = rf"(?:in|within|among) {_EN_DOCS}"
_EN_NOT = (
    r"(?:do(?:es)? not|don't|doesn't|did not|didn't)(?: (?:actually|explicitly|directly|specifically|clearly|seem to))?"
)
_EN_CANNOT = (
    r"(?:cannot|can't|can not|could not|couldn't|am unable to|'m unable to|are unable to|am not able to|'m not able to"
    r"|was unable to|wasn't able to|was not able to|won't be able to|will not be able to|am not allowed to)"
    r"(?: (?:currently|really|reliably|accurately|definitively|confidently|directly|help but))?"
)

ENGLISH = Phrases(
    language="en",
    before=r"based on|according to|from|given|in|within|after|unfortunately|regrettably|sorry|i(?: am|\'m) (?:sorry|afraid)|at (?:this|the) (?:time|moment)|currently|honestly|as an? |to be honest|well|hmm|i apologi[sz]e|with the|looking|apologies",
    declines=rf"""
        (?:i|we) (?:\w+ )?(?:do not|don't) (?:\w+ )?know(?! of\b| about you\b)
        (?:i|we) (?:\w+ )?(?:(?:do not|don't) (?:\w+ )?(?:have|see|find)|currently have no|have no) {_EN_INFO}
        (?:i|we) have (?:no|insufficient|not enough) (?:{_EN_INFO}|idea|record of)
        (?:i|we) (?:did not|didn't|have not|haven't|could not|couldn't) (?:find|found|see|seen|locate|located) {_EN_INFO}
        (?:i(?: am|'m)|we(?: are|'re)) not (?:entirely |completely |really )?(?:sure|certain)\b
        (?:i|we|i'm|we're|i am) ?{_EN_CANNOT} (?:answer|determine|say|comply|fulfil|fulfill|assist|respond|confirm|verify)\b
        (?:i|we|i'm|we're|i am) ?{_EN_CANNOT} tell (?:you )?(?:\w+ )?(?:whether|if|what|how|which|who|when|where|why|from)
        (?:i|we|i'm|we're|i am) ?{_EN_CANNOT} (?:help|do|discuss|talk about|share|disclose|reveal) (?:\w+ )?(?:with )?(?:that|this|it|your request|confidential)\b
        (?:i|we|i'm|we're|i am) ?{_EN_CANNOT} help(?: you)?(?: with (?:that|this|your)\b.*)?$
        (?:i|we|i'm|we're|i am) ?{_EN_CANNOT} (?:find|locate|see|provide|give|offer|share|access)(?: you(?: with)?)? {_EN_INFO}
        (?:i|we|i'm|we're|i am) ?{_EN_CANNOT} (?:provide|give|offer)(?: you(?: with)?)? (?:\w+ ){{0,3}}(?:advice|instructions|assistance|opinions?)\b
        there(?: is|'s| was| are|(?: is|'s| are)n't| is not| are not) (?:no|not enough|enough|any|insufficient|not sufficient|not any) (?:\w+ )?(?:(?:information|context|details)(?: (?:about|on|regarding|concerning|for|to|of|related|that|available|provided|given|here|{_EN_IN})\b|$)|mention of|answer to|answer in|data (?:on|about|for)\b|documentation (?:on|about|for)\b)
        (?:no|insufficient|not enough) (?:\w+ ){{0,2}}(?:information|mention|details)(?: (?:about|on|regarding|concerning|of) [^,]{{1,60}}?)? (?:(?:is|was|were|are|could be|can be|has been) )?(?:\w+ly )?(?:found|available|provided|given|included|contained|mentioned|present|listed|retrieved)\b(?! (?:to|by|with)\b)
        (?:no|insufficient|not enough) (?:\w+ ){{0,2}}(?:information|mention|details) (?:about|on|regarding|concerning|of) (?:(?!(?:is|are|was|were|will|can|may|must|has|have|do|does|gets?|appears?|needs?|goes|leaves?)\b)[^\s,]+ ?){{1,10}}$
        (?:no|insufficient|not enough) (?:\w+ ){{0,2}}(?:answer|documents?|passages?|sources?|results) (?:\w+ ){{0,6}}(?:found|available in|provided in|given in)\b
        none of {_EN_DOCS} (?:mentions?|contains?|includes?|says?|states?|specif(?:y|ies)|provides?|address(?:es)?|discuss(?:es)?|covers?)\b
        (?:it|that|this|(?:that|this|the|your) question|the answer|answering this) (?:is|falls|lies|would be) (?:\w+ )?(?:outside|beyond|out of) (?:of )?(?:the |my |our )?(?:\w+ )?(?:scope|knowledge|documents|context|expertise)
        it is (?:not possible|impossible) to (?:answer|determine|say|tell|know)\b
        (?:unable|not able) to (?:answer|determine|find (?:an answer|this|that|any information))\b
        (?:as an ai\b.{{0,40}} )?i (?:must|have to|need to|will have to) (?:respectfully )?(?:decline|refuse)\b
        i (?:won't|will not) (?:be able to )?(?:help|assist|answer|do that|provide that)\b
    """,
    anywhere=rf"""
        \b(?:cannot|can't|could not|couldn't) be (?:\w+ly )?(?:found|determined|answered|inferred|derived|established|confirmed) (?:\w+ )?(?:from|in|based on|with|using|within) {_EN_DOCS}
    """,
    polite=r"""
        (?:i(?: am|'m) )?(?:so |very |really |truly )?(?:sorry|afraid)\b[^,]{0,60}$
        (?:my )?apolog(?:ies|ize|ise)\b[^,]{0,60}$
        i apolog(?:ize|ise)\b[^,]{0,60}$
        (?:unfortunately|regrettably|hi|hello|hi there|thanks?(?: you)? for (?:your|asking)[^,]{0,60})$
        (?:please|kindly|feel free|you (?:can|could|may|might|should)|i(?:'d| would)? (?:suggest|recommend|advise)|it (?:would|might|may) be (?:best|worth|helpful)|try|consider|for (?:more|further|that|this)\b[^,]{0,60}, (?:please|you)|to (?:find|get|learn)\b[^,]{0,60}, (?:please|you)) (?:\w+ )?(?:want to |like to |wish to |try )?(?:check|checking|contact|contacting|consult|consulting|refer|reach|reaching|ask|asking|visit|look|looking|see|provide|share|let|try|rephrase|clarify|search|speak|get in touch|give|rewording|rephrasing|verify)
        (?:if|should) you (?:\w+ )?(?:have|need|provide|share|give|tell|can|could|would|want|require|like)\b
        (?:is there|can i|could you|would you|do you|how else|what else|may i|let me know|i(?:'d| would) be (?:happy|glad)|i(?:'m| am) (?:happy|here|glad) to|happy to)\b
        (?:it|they|(?:the|these|this) (?:\w+ ){0,3}(?:documents?|context|passages?|sources?|excerpts?|articles?|texts?|information)(?: provided| given)?) (?:only|mainly|just|primarily|instead) (?:\w+ )?(?:discuss|discusses|mention|mentions|cover|covers|describe|describes|contain|contains|talks? about|focus|focuses|deals? with|refers? to)\b
        (?:it|they|(?:the|these|this) (?:\w+ ){0,3}(?:documents?|context|passages?|sources?|excerpts?|articles?|texts?|information)(?: provided| given)?) (?:focus|focuses) on\b
    """,
    turns=r"[;:\u2014\u2013]| - |,? \b(?:but|however|although|though|so|therefore|yet|nevertheless|instead|which means|because)\b,?"
    r"|, (?=(?:it|this|that|they|there|you|we|he|she) (?!(?:is|was|are|were) not|(?:does|do|did) not)[a-z'])",
)

_DE_DOCS = (
    r"(?:den|der|dem|die|das|diesen|diesem|dieser|unseren|meinen|ihren|deinen) (?:\w+ ){0,3}"
    r"(?:dokumente?n?|kontext|textstellen|passagen|quellen|unterlagen|auszügen?|auszüge|wissensdatenbank|dokumentation"
    r"|informationen|texte?n?|artikeln?|suchergebnissen?|suchergebnisse)"
)
_DE_INFO = (
    r"(?:\w+ ){0,3}(?:informationen?|angaben?|antwort|auskunft|details|hinweise?|daten|erwähnung|näheres)"
    r"(?! (?:mehr )?(?:nötig|erforderlich|notwendig))"
)

GERMAN = Phrases(
    language="de",
    before=r"leider|auf (?:der )?grundlage|auf basis|basierend|laut|gemäß|nach|anhand|tut mir leid|es tut mir leid|entschuldigung|ehrlich gesagt|aktuell|derzeit|bedauerlicherweise|in den|mit den|aus den",
    declines=rf"""
        (?:ich|wir) (?:wei(?:ß|ss)|wissen) (?:\w+ ){{0,3}}nicht\b
        (?:das )?(?:wei(?:ß|ss)|wissen) (?:ich|wir) (?:\w+ ){{0,2}}nicht\b
        (?:leider |dazu |darüber |hierzu |da |das |diese frage |ihre frage |deine frage ){{0,3}}(?:kann|können|konnte|konnten|darf) (?:ich|wir|ihnen|dir) (?:[^,]{{0,60}} )?(?:nicht (?:\w+ )?(?:beantworten|sagen|helfen|weiterhelfen|bestimmen|beurteilen|feststellen|finden|bestätigen)|keine? (?:\w+ ){{0,2}}(?:auskunft|antwort|angaben?|informationen|aussage)(?: \w+)*)
        (?:ich|wir) (?:kann|können|konnte|konnten|darf|habe|haben) (?:[^,]{{0,60}} )?(?:nicht (?:\w+ )?(?:beantworten|sagen|helfen|weiterhelfen|bestimmen|beurteilen|feststellen|bestätigen)\b|keine? {_DE_INFO})
        (?:dazu |darüber |hierzu |leider ){{0,2}}(?:habe|haben|finde|finden|liegen|liegt|gibt es|lassen sich|enthalten) (?:ich |wir |mir |uns |dazu |darüber |hierzu |davon |in {_DE_DOCS} |{_DE_DOCS} ){{0,3}}(?:leider )?keine? {_DE_INFO}
        es (?:gibt|liegen|liegt) (?:mir |uns |hier |leider |in {_DE_DOCS} ){{0,3}}keine? {_DE_INFO}
        (?:in|aus|laut) {_DE_DOCS} (?:\w+ )?(?:steht|stehen|geht|wird|werden|findet|finden|gibt|ist|sind|lässt|lassen) (?:[^,]{{0,80}} )?(?:nicht (?:\w+ )?(?:hervor|erwähnt|genannt|angegeben|beschrieben|enthalten|beantworten|entnehmen|behandelt|beantwortet)|nichts\b|keine? {_DE_INFO})
        (?:ich|wir) (?:bin|sind) (?:mir |uns )?(?:leider )?nicht (?:ganz )?sicher\b
        (?:das|dies|diese frage|ihre frage) liegt außerhalb\b
        (?:keine|nicht genügend|unzureichende) (?:\w+ )?(?:informationen|angaben|antwort) (?:\w+ )?(?:gefunden|verfügbar|vorhanden|zu|über|darüber|dazu)\b
        (?:bei )?(?:dabei|damit|dieser anfrage) kann ich (?:\w+ ){{0,2}}nicht (?:weiter)?helfen
        (?:ich|das) muss ich? ?(?:leider )?ablehnen
    """,
    anywhere=rf"""
        \b(?:wird|werden|ist|sind|steht|geht|lässt sich) (?:\w+ )?(?:in|aus|mit|anhand) {_DE_DOCS} (?:\w+ )?nicht (?:\w+ )?(?:erwähnt|genannt|angegeben|beschrieben|enthalten|beantworten|beantwortet|behandelt|hervor|zu finden|entnehmen)
    """,
    polite=r"""
        (?:es )?tut mir (?:sehr |wirklich )?leid\b[^,]{0,40}$
        (?:leider|entschuldigung|entschuldigen sie|verzeihung|hallo|guten tag|ich bitte um entschuldigung|bedauerlicherweise)$
        (?:bitte|gerne?|falls|wenn|sollten) (?:\w+ )?(?:sie|du|ihr|wenden|wende|kontaktieren|fragen|prüfen|schauen|geben|teilen|versuchen|stellen|helfe|kann|konsultieren|formulieren|ich)\b
        (?:sie|du) (?:können|könnten|kannst|könntest|sollten|solltest) (?:sich |dich |bitte |gerne? )?(?:an |beim? |den |die |das |unseren? |mich ){0,2}(?:\w+ ){0,5}(?:wenden|kontaktieren|fragen|nachfragen|prüfen|nachsehen|konsultieren|nachschlagen)
        (?:kann ich|haben sie|hast du|möchten sie|könnten sie|kannst du) \b
        (?:sie|diese|die (?:\w+ ){0,3}(?:dokumente|unterlagen|quellen|passagen|texte|auszüge|informationen)|der (?:\w+ )?kontext) (?:behandeln|beschreiben|erwähnen|nennen|enthalten|behandelt|beschreibt|enthält|befassen sich|beziehen sich|befasst sich) (?:\w+ )?(?:nur|lediglich|ausschließlich)\b
    """,
    turns=r"[;:\u2014\u2013]| - |,? \b(?:aber|weil|jedoch|allerdings|sondern|daher|deshalb|trotzdem|dennoch|doch)\b,?"
    r"|, (?=(?:es|er|sie|das|dies|man) (?!(?:ist|wird|steht|geht)[^,]* nicht)\w)",
)

_FR_DOCS = (
    r"(?:les|le|la|ces|ce|cette|mes|vos|nos) ?(?:\w+ ){0,2}(?:documents?|contexte|passages?|sources?|extraits?|textes?"
    r"|informations|documentation|base de connaissances|articles?|éléments)(?: (?:fournie?s?|disponibles?|donnée?s?|ci-dessus))?"
)
_FR_INFO = r"(?:\w+ ){0,3}(?:informations?|réponse|détails?|précisions?|mention|données|indication|renseignements?|éléments?)\b"

FRENCH = Phrases(
    language="fr",
    before=r"malheureusement|désolée?|je suis désolée?|selon|d\'après|sur la base|dans|à partir|en tant|actuellement|au vu|hélas|à ma connaissance|avec les",
    declines=rf"""
        (?:je|nous) ne (?:le |la )?(?:sais|savons|connais|connaissons) (?:\w+ )?pas\b
        (?:je|nous) (?:ne )?(?:peux|peut|pouvons|puis|parviens|suis|sommes|pourrai) (?:\w+ )?(?:pas en mesure de|pas|malheureusement pas|incapable de|dans l'incapacité de) (?:\w+ )?(?:répondre|vous répondre|dire|vous dire|déterminer|aider|vous aider|t'aider|trouver|confirmer|préciser|en mesure|vous fournir|fournir (?:de |d'|cette |ces )|vous donner)
        (?:je|nous) n'(?:ai|avons) (?:malheureusement )?(?:pas|aucune?)(?: trouvé)?(?: assez| suffisamment)?(?: d'| de | cette | la | l'| )?{_FR_INFO}
        (?:je|nous) ne (?:trouve|trouvons|dispose|disposons|vois) (?:malheureusement )?(?:pas|aucune?)(?: de | d'| la | l'| )?{_FR_INFO}
        (?:il )?n'y a (?:pas|aucune?)(?: assez| suffisamment)?(?: d'| de | )?(?:informations?|mention|réponse|détails?|précisions?|renseignements?)\b
        aucune? (?:\w+ )?(?:information|mention|réponse|détail|précision|document)(?: (?:sur|concernant|relative? à|à propos de) (?:(?!n'|ne )[^\s,]+ ){{1,8}}?)? ?(?:(?:n'est|n'a été|ne sont|n'ont été) (?:\w+ )?(?:disponible|trouvée?|fournie?|mentionnée?|donnée?|précisée?|indiquée?)s?\b(?! (?:à|aux|par)\b)|ne (?:figure|permet|répond|mentionne|précise|concerne|traite)\b|à ce sujet|disponible)
        aucune? (?:\w+ )?(?:information|mention|réponse|détail|précision) (?:sur|concernant) (?:(?!n'|ne\b)[^\s,]+ ?){{1,8}}$
        (?:cela|ceci|cette question|votre question) (?:sort|dépasse|est en dehors) \b
        il (?:m'est|est|n'est pas) (?:impossible|possible) de (?:répondre|dire|déterminer|savoir|vous répondre)
        je ne suis pas (?:sûre?|certaine?|autorisée?)\b
        je dois (?:malheureusement )?(?:décliner|refuser)\b
    """,
    anywhere=rf"""
        \bn(?:'est|e sont|'est) pas (?:\w+ )?(?:mentionnée?s?|précisée?s?|indiquée?s?|abordée?s?|donnée?s?|spécifiée?s?|traitée?s?) (?:dans|par) {_FR_DOCS}
    """,
    polite=r"""
        (?:je suis |nous sommes )?(?:vraiment |sincèrement )?désolée?s?\b[^,]{0,40}$
        je (?:le )?regrette\b[^,]{0,40}$
        (?:malheureusement|bonjour|pardon|excusez-moi|toutes mes excuses|je m'excuse)\b[^,]{0,40}$
        (?:veuillez|n'hésitez pas|je vous (?:invite|conseille|suggère|recommande)|vous (?:pouvez|pourriez|devriez)|merci de|si vous|contactez|pourriez-vous|puis-je|souhaitez-vous|avez-vous)\b
        (?:ils|elles|il|(?:les|le|ces|ce) (?:\w+ ){0,2}(?:documents?|contexte|passages?|extraits?|textes?)) ne (?:traitent?|parlent?|mentionne(?:nt)?|décri(?:t|vent)|concerne(?:nt)?|porte(?:nt)?) que\b
    """,
    turns=r"[;:\u2014\u2013]| - |,? \b(?:mais|parce que|car|cependant|toutefois|néanmoins|pourtant|donc|en revanche)\b,?"
    r"|, (?=(?:il|elle|cela|c'est|ils|elles|on) (?!n)\w)",
)

_ES_DOCS = (
    r"(?:los|el|la|las|estos|este|esta|estas|mis) (?:\w+ ){0,2}(?:documentos?|contexto|pasajes?|fuentes?|fragmentos?|textos?"
    r"|información|documentación|base de conocimientos?|artículos?|materiales?)(?: (?:proporcionad[oa]s?|disponibles?|facilitad[oa]s?|dad[oa]s?))?"
)
_ES_INFO = r"(?:\w+ ){0,3}(?:información|informaciones|respuesta|detalles?|datos|mención|referencias? a|conocimiento)\b"

SPANISH = Phrases(
    language="es",
    before=r"lamentablemente|perdón|disculpe|disculpa|desafortunadamente|lo siento|según|basándome|con base|a partir|en base|de acuerdo|en|actualmente|por desgracia|con la|desgraciadamente",
    declines=rf"""
        (?:yo |nosotros )?(?:no )(?:lo )?(?:sé|sabemos|lo sé)\b
        no (?:me )?(?:puedo|podemos|puede|pude|es posible|me es posible) (?:\w+ )?(?:responder|contestar|decirte|decirle|decir|determinar|ayudarte|ayudarle|ayudar|encontrar|confirmar|saber|proporcionar(?:te|le)? (?:\w+ )?(?:información|detalles|esa|ese|asesoramiento))\b
        no (?:tengo|tenemos|dispongo|disponemos|encuentro|encontré|encontramos|he encontrado|hemos encontrado|hay|existe|veo|cuento con|se encontró|se encuentra)(?: de| con)?(?: suficiente| ninguna| la| esa| ningún)?(?: de)? ?{_ES_INFO}
        no (?:estoy|estamos) (?:\w+ )?(?:seguro|segura|seguros|en condiciones|autorizad[oa])\b
        (?:eso|esto|esta pregunta|esa pregunta|su pregunta|tu pregunta) (?:queda|está|cae) fuera\b
        (?:debo|tengo que) (?:rechazar|declinar)\b
        no se (?:menciona|especifica|indica|encuentra|proporciona|dice) (?:\w+ ){{0,6}}(?:en|sobre|nada)\b
    """,
    anywhere=rf"""
        \bno (?:se (?:menciona|especifica|indica|encuentra|proporciona)n?|está(?:n)? (?:mencionad|especificad|indicad)[oa]s?|aparecen?) (?:\w+ )?en {_ES_DOCS}
    """,
    polite=r"""
        (?:lo siento|lo lamento|disculpa|disculpe|perdón|perdona|lamentablemente|desafortunadamente|hola|desgraciadamente)\b[^,]{0,40}$
        (?:por favor|si (?:tiene|tienes|necesita|necesitas|me|puede|puedes|desea|quiere)|le (?:recomiendo|sugiero)|te (?:recomiendo|sugiero)|(?:puede|puedes|podría|podrías) (?:\w+ )?(?:contactar|consultar|preguntar|ponerse|ponerte|revisar|comunicar|dar|proporcionar)|póngase|contacte|consulte|¿)
        (?:solo|sólo|únicamente) (?:\w+ )?(?:habla|hablan|menciona|mencionan|trata|tratan|describe|describen)\b
    """,
    turns=r"[;:\u2014\u2013]| - |,? \b(?:pero|sin embargo|aunque|no obstante|así que|por lo tanto|sino|porque)\b,?",
)

_IT_DOCS = (
    r"(?:i|il|la|le|lo|questi|questo|nei|nel|dai|dal|nella|dalla|gli) (?:\w+ ){0,2}(?:documenti|documento|contesto|passaggi|passi|fonti|estratti"
    r"|testi|testo|informazioni|documentazione|materiali)(?: (?:fornit[oaie]|disponibil[ei]|dat[oaie]))?"
)
_IT_INFO = r"(?:\w+ ){0,3}(?:informazioni|risposta|dettagli|dati|menzione|riferimenti?|indicazioni|conoscenza)\b"

ITALIAN = Phrases(
    language="it",
    before=r"purtroppo|mi dispiace|secondo|in base|sulla base|dai|dal|nei|nel|attualmente|spiacente|al momento",
    declines=rf"""
        (?:io )?non (?:lo )?(?:so|sappiamo|saprei)\b
        non (?:posso|possiamo|riesco|riusciamo|sono in grado di|è possibile|mi è possibile|sono riuscit[oa]) (?:a )?(?:\w+ )?(?:rispondere|dire|dirti|dirle|determinare|aiutarti|aiutarla|aiutare|trovare|confermare|stabilire|fornire (?:\w+ )?(?:informazioni|dettagli|quest|consulenza)|fornirti|fornirle)\b
        non (?:ho|abbiamo|dispongo|disponiamo|trovo|ho trovato|c'è|ci sono|vi sono|esistono)(?: di| abbastanza| sufficienti| alcuna| nessuna)? ?{_IT_INFO}
        non sono (?:\w+ )?(?:sicur[oa]|cert[oa]|autorizzat[oa])\b
        (?:questo|questa domanda|la domanda|ciò) (?:esula|va oltre|è al di fuori)\b
        (?:devo|mi trovo costretto a) (?:\w+ )?(?:rifiutare|declinare)\b
        nessuna (?:informazione|risposta|menzione) (?:è (?:\w+ )?(?:disponibile|presente|fornita|riportata)|(?:disponibile|trovata)|(?:su|sul|sulla|sui|in merito|al riguardo)\b(?!.* (?:viene|è|vengono|sono) ))
        (?:nei|nel|in) (?:\w+ ){{0,3}}(?:documenti|documento|contesto|testi|testo|passaggi) non (?:ci sono|c'è|vi sono|si trovano) (?:{_IT_INFO})
    """,
    anywhere=rf"""
        \bnon (?:è|sono|viene|vengono) (?:\w+ )?(?:menzionat|specificat|indicat|riportat|fornit|trattat|citat)[oaie] (?:in |da )?{_IT_DOCS}
    """,
    polite=r"""
        (?:mi dispiace|spiacente|scusa|scusi|purtroppo|ciao|buongiorno|mi scuso|sono spiacente)\b[^,]{0,40}$
        (?:per favore|se (?:hai|ha|vuoi|vuole|desideri|desidera|puoi|può|mi)|ti (?:consiglio|suggerisco)|le (?:consiglio|suggerisco)|(?:puoi|può|potresti|potrebbe) (?:\w+ )?(?:contattare|consultare|chiedere|provare|verificare|rivolgerti|rivolgersi|fornire)|contatta|contatti|consulta|posso aiutar)
        (?:parlano|parla|trattano|descrivono|menzionano) (?:solo|soltanto)\b
    """,
    turns=r"[;:\u2014\u2013]| - |,? \b(?:ma|però|tuttavia|comunque|quindi|bensì|invece|perché)\b,?",
)

_PT_DOCS = (
    r"(?:os|o|a|as|estes|este|esses|esse|nos|no) (?:\w+ ){0,2}(?:documentos?|contexto|passagens|trechos?|fontes?|textos?"
    r"|informações|documentação|base de conhecimento|materiais)(?: (?:fornecid[oa]s?|disponíveis|disponível|dad[oa]s?))?"
)
_PT_INFO = r"(?:\w+ ){0,3}(?:informações|informação|resposta|detalhes?|dados|menção|referências? a|conhecimento)\b"

PORTUGUESE = Phrases(
    language="pt",
    before=r"infelizmente|desculpe|sinto muito|segundo|de acordo|com base|com as|no|nos|atualmente|lamento|a partir",
    declines=rf"""
        (?:eu )?não (?:sei|sabemos)\b
        (?:eu )?não (?:posso|podemos|consigo|conseguimos|é possível|pude|consegui|sou capaz de) (?:\w+ )?(?:responder|dizer|te dizer|lhe dizer|determinar|ajudar|ajudá-lo|ajudá-la|encontrar|confirmar|informar|fornecer (?:\w+ )?(?:informações|detalhes|ess|aconselhamento))\b
        (?:eu )?não (?:tenho|temos|disponho|encontrei|encontramos|há|existem?|foram encontradas|foi encontrada)(?: de| suficientes?| nenhuma| a)? ?{_PT_INFO}
        não (?:estou|tenho) (?:\w+ )?(?:cert[oa]|certeza|autorizad[oa]|segur[oa])\b
        (?:isso|isto|esta pergunta|essa pergunta|a pergunta) (?:está|fica|foge)(?: d| fora)\b
        (?:devo|preciso|tenho que) (?:\w+ )?(?:recusar|declinar)\b
    """,
    anywhere=rf"""
        \bnão (?:é|são|está|estão|foi|consta|constam|aparece) ?(?:\w+ )?(?:mencionad[oa]s?|especificad[oa]s?|indicad[oa]s?|informad[oa]s?|fornecid[oa]s?)? ?(?:em |n)?{_PT_DOCS}
    """,
    polite=r"""
        (?:desculpe|desculpa|sinto muito|lamento|infelizmente|olá|peço desculpas?)\b[^,]{0,40}$
        (?:por favor|se (?:você|tiver|precisar|quiser|puder|desejar)|(?:você|o senhor|a senhora) (?:pode|poderia)|recomendo|sugiro|entre em contato|consulte|contate|posso ajudar|verifique)\b
        (?:falam?|tratam?|mencionam?|descrevem?|abordam?) (?:apenas|somente|só)\b
    """,
    turns=r"[;:\u2014\u2013]| - |,? \b(?:mas|porém|contudo|entretanto|no entanto|todavia|portanto|embora|porque)\b,?",
)

_NL_DOCS = (
    r"(?:de|het|deze|dit|die|mijn|uw) (?:\w+ ){0,2}(?:documenten|document|context|passages|bronnen|fragmenten|teksten|tekst"
    r"|informatie|documentatie|kennisbank|zoekresultaten)"
)
_NL_INFO = r"(?:\w+ ){0,3}(?:informatie|antwoord|details|gegevens|vermelding|kennis)\b"

DUTCH = Phrases(
    language="nl",
    before=r"helaas|sorry|het spijt me|volgens|op basis|gezien|in|momenteel|uit|met de",
    declines=rf"""
        (?:ik|wij|we) (?:weet|weten) (?:\w+ ){{0,3}}niet\b
        dat (?:weet|weten) (?:ik|we|wij) (?:\w+ )?niet\b
        (?:ik|wij|we) (?:kan|kunnen|kon) (?:[^,]{{0,60}} )?niet (?:\w+ )?(?:beantwoorden|zeggen|helpen|bepalen|vinden|bevestigen|vaststellen)\b
        (?:daar|dat|hier|die vraag|deze vraag|uw vraag|je vraag|helaas) (?:kan|kunnen) (?:ik|we|wij) (?:[^,]{{0,40}} )?niet (?:\w+ )?(?:beantwoorden|zeggen|helpen|bepalen)\b
        (?:ik|wij|we) (?:heb|hebben|vind|vinden|beschik|kan|kunnen|kon)(?: [^,]{{0,40}})? (?:geen|onvoldoende|niet genoeg) {_NL_INFO}
        (?:hier |daar )(?:heb|hebben|is|zijn) (?:ik |we |wij |er )?geen {_NL_INFO}
        (?:helaas |daarover |hierover ){{0,2}}(?:heb|hebben|is|zijn) (?:ik |we |er |hierover |daarover |daar |hier ){{0,2}}geen {_NL_INFO}
        er (?:is|zijn|staat)(?: \w+)? (?:geen|onvoldoende|niet genoeg) {_NL_INFO}
        ik ben (?:er )?niet (?:helemaal )?zeker\b
        (?:dat|dit|deze vraag) valt buiten\b
        ik moet (?:dit |dat |helaas )?(?:weigeren|afwijzen)\b
    """,
    anywhere=rf"""
        \b(?:wordt|worden|staat|staan|is|zijn) (?:\w+ )?niet (?:\w+ )?(?:vermeld|genoemd|beschreven|beantwoord|opgenomen)? ?in {_NL_DOCS}
    """,
    polite=r"""
        (?:het )?spijt me\b[^,]{0,40}$
        (?:sorry|helaas|excuses|mijn excuses|hallo|pardon)\b[^,]{0,40}$
        (?:neem|als (?:u|je)|mocht|(?:u|je) (?:kunt|kan|kun|zou) (?:\w+ ){0,6}(?:contact|raadplegen|vragen|opnemen|controleren|wenden)|probeer|raadpleeg|kan ik|wilt u|wil je|heeft u|gelieve|geef)\b
        (?:gaan|gaat|behandelen|beschrijven|bevatten|vermelden) (?:alleen|slechts|uitsluitend)\b
    """,
    turns=r"[;:\u2014\u2013]| - |,? \b(?:maar|echter|toch|dus|daarom|hoewel|wel|omdat)\b,?",
)

TURKISH = Phrases(
    language="tr",
    before=r"üzgünüm|maalesef|ne yazık ki|verilen|sağlanan|özür dilerim|belgelere",
    declines=r"""
        (?:ben )?(?:bunu |bu konuda |maalesef |ne yazık ki )*bilmiyorum\b
        (?:[^,]{0,90} )?(?:hakkında|dair|ilişkin|ilgili|konuda|içinde|bağlamda|belgelerde|belgede|metinde|kaynaklarda) (?:\w+ ){0,4}(?:bilgi|yanıt|cevap|ayrıntı|veri) (?:\w+ )?(?:yok|bulunmuyor|bulunmamaktadır|yer almıyor|bulamadım|içermiyor|mevcut değil|sahip değilim)
        (?:[^,]{0,60} )?(?:belgeler|belge|bağlam|metin|kaynaklar|dokümanlar)(?:de|da|te|ta)? (?:[^,]{0,60} )?(?:belirtilmiyor|belirtilmemiş|bahsedilmiyor|bahsetmiyor|içermiyor|söylemiyor|yer almıyor|belirtmiyor|belirtilmemiştir)
        (?:[^,]{0,60} )?(?:yanıt|cevap|yardım|bilgi) (?:veremiyorum|veremem|edemiyorum|edemem|vermem mümkün değil|bulamadım)
        (?:[^,]{0,40} )?(?:yanıtlayamıyorum|yanıtlayamam|cevaplayamıyorum|cevaplayamam|emin değilim|bilgim yok|söyleyemem|yardımcı olamıyorum|yardımcı olamam)
    """,
    polite=r"""
        (?:üzgünüm|özür dilerim|maalesef|ne yazık ki|merhaba|kusura bakmayın)\b[^,]{0,40}$
        (?:lütfen|isterseniz|eğer|daha fazla bilgi|başka)\b
    """,
    turns=r"[;:\u2014\u2013]| - |,? \b(?:ama|ancak|fakat|yine de|bu nedenle|oysa)\b,?",
)

RUSSIAN = Phrases(
    language="ru",
    before=r"к сожалению|извините|простите|согласно|на основе|на основании|судя|исходя|в|из|увы|по",
    declines=r"""
        (?:я |мы )?(?:этого |об этом |к сожалению )*не (?:знаю|знаем|уверен|уверена|уверены)\b
        (?:к сожалению |я |мы |пока )*не (?:могу|можем|смогу|удалось|удаётся|получилось) (?:\w+ ){0,4}(?:ответить|сказать|помочь|определить|найти (?:\w+ ){0,3}(?:информаци|ответ|данн|сведени)\w*|подтвердить|предоставить (?:\w+ ){0,2}(?:информаци|данн|сведени|консультаци)\w*|выполнить)
        (?:у меня |у нас |здесь |об этом )*(?:нет|недостаточно) (?:\w+ ){0,3}(?:информации|данных|сведений|ответа|доступа)
        (?:в|из|согласно) (?:\w+ ){0,3}(?:документах|документа|документов|контексте|контекста|тексте|отрывках|источниках|материалах|базе знаний) (?:[^,]{0,60} )?(?:нет (?:\w+ ){0,3}(?:информации|данных|сведений|ответа|упоминания)|не (?:указан|говорится|сказано|упомина|содержится|сообщается|описан|приведен|приведён)\w*|ничего не)
        (?:\w+ ){0,3}(?:документы|документ|контекст|текст|источники|отрывки|материалы) не (?:содерж|упомина|сообща|указыва|отвеча|говор|описыва|включают информаци)\w*
        (?:это|этот вопрос|вопрос) (?:выходит за рамки|за пределами)
        (?:информации|данных|сведений) (?:\w+ ){0,5}(?:нет|не найдено|недостаточно)
        (?:я )?(?:вынужден|вынуждена|должен) (?:\w+ )?отказать
    """,
    anywhere=r"""
        \bне (?:указан|упомина|описан|приведен|приведён|раскрыва)\w* (?:\w+ )?в (?:\w+ ){0,3}(?:документах|документе|контексте|тексте|отрывках|источниках|материалах)
    """,
    polite=r"""
        (?:извините|простите|к сожалению|мне жаль|прошу прощения|здравствуйте|сожалею)\b[^,]{0,40}$
        (?:пожалуйста|если|обратитесь|вы можете (?:\w+ )?(?:обратиться|уточнить|проверить|связаться|спросить)|рекомендую|советую|попробуйте|уточните|могу ли|чем ещё)\b
    """,
    turns=r"[;:\u2014\u2013]| - |,? \b(?:но|однако|зато|поэтому|хотя|тем не менее|а)\b,?",
)

HINDI = Phrases(
    language="hi",
    before=r"क्षमा|माफ़|माफ|दुर्भाग्य|दिए|प्रदान",
    declines=r"""
        (?:क्षमा करें |माफ़ करें |माफ कीजिए )?(?:मुझे|हमें) (?:[^,]{0,60} )?(?:नहीं पता|पता नहीं|मालूम नहीं|जानकारी नहीं|नहीं मालूम)
        (?:मैं|हम) (?:[^,]{0,60} )?(?:नहीं जानता|नहीं जानती|नहीं जानते|उत्तर नहीं दे|जवाब नहीं दे|मदद नहीं कर|नहीं बता) ?
        (?:[^,]{0,80} )?(?:दस्तावेज़|दस्तावेज|संदर्भ|स्रोत|पाठ)(?:ों|ो)? (?:में|मे) (?:[^,]{0,80} )?(?:जानकारी नहीं|उल्लेख नहीं|नहीं बताया|नहीं दिया|नहीं है|नहीं मिल)
        (?:[^,]{0,60} )?(?:के बारे में|संबंधी) (?:\S+ ){0,3}(?:जानकारी|उत्तर) (?:\S+ ){0,2}(?:नहीं है|उपलब्ध नहीं|नहीं मिल)
    """,
    polite=r"""
        (?:क्षमा करें|माफ़ करें|माफ कीजिए|माफ़ कीजिए|खेद है|मुझे खेद है|नमस्ते|दुर्भाग्य से)
        (?:कृपया|यदि आप|अगर आप)
    """,
    turns=r"[;:\u2014\u2013]| - |,? (?:लेकिन|परंतु|परन्तु|हालांकि|मगर|इसलिए) ?",
)

ARABIC = Phrases(
    language="ar",
    before=r"عذرا|عذرًا|آسف|للأسف|بناء|بناءً|وفقا|وفقًا|استنادا|حسب|معذرة|أعتذر",
    declines=r"""
        (?:أنا |للأسف |في الواقع )*لا (?:أعرف|أعلم|أدري|نعرف|نعلم)
        (?:للأسف )?(?:لا (?:أستطيع|يمكنني|نستطيع|يمكننا|أقدر)|لم أتمكن من|لست قادرا على|لا أملك) (?:\S+ ){0,3}?(?:الإجابة|الرد|مساعدتك|المساعدة|تحديد|تأكيد|العثور على (?:\S+ ){0,2}(?:معلومات|إجابة)|معلومات|إخبارك|تقديم (?:\S+ )?(?:معلومات|المشورة|هذه))
        (?:للأسف )?(?:لا (?:توجد|تتوفر|يوجد)|ليس لدي|ليست لدي|لم أجد|لا تتوافر) (?:\S+ ){0,3}?(?:معلومات|إجابة|بيانات|ذكر|تفاصيل)
        (?:لا|لم) (?:تذكر|يذكر|تحتوي|يحتوي|تحدد|يحدد|توضح|يوضح|تتضمن|يتضمن|تقدم|تجيب) (?:\S+ ){0,2}?(?:الوثائق|المستندات|السياق|النص|المصادر|الوثيقة|المستند|المقاطع)
        (?:الوثائق|المستندات|السياق|النص|المصادر|الوثيقة|المستند) (?:\S+ ){0,2}(?:لا|لم) (?:تذكر|يذكر|تحتوي|يحتوي|تحدد|يحدد|توضح|يوضح|تتضمن|يتضمن|تقدم|تجيب)
        (?:لست|لسنا) (?:متأكدا|متأكدًا|متأكدة|متأكدين)
    """,
    polite=r"""
        (?:عذرا|عذرًا|آسف|أعتذر|للأسف|معذرة|مرحبا)[^،,]{0,40}$
        (?:يرجى|إذا كان|إذا كنت|من فضلك|يمكنك (?:التواصل|الاتصال|مراجعة|الرجوع)|هل)
    """,
    turns=r"[;:؛\u2014\u2013]| - |[،,]? ?\b(?:لكن|ولكن|إلا أن|ومع ذلك|لذلك) ?",
)

_ZH_DOCS = r"(?:所?提供的?|给定的?|上述|现有的?|以上|这些|该|相关)?(?:文档|文件|上下文|资料|文本|段落|来源|材料|知识库|信息|内容)(?:中|里|内)?"
CHINESE = Phrases(
    language="zh",
    before=r"很?抱歉|对不起|不好意思|很?遗憾|根据|从|遗憾的是",
    declines=rf"""
        (?:很?抱歉|对不起|不好意思|很遗憾)?,?(?:我|我们)?(?:也|并|暂时|目前|确实)?(?:不知道|不清楚|不太清楚|不确定|不了解)
        (?:很?抱歉|对不起|不好意思|很遗憾)?,?(?:我|我们)?(?:暂时|目前|现在)?(?:无法|不能|没办法|未能|没法)(?:从{_ZH_DOCS})?(?:回答|确定|提供(?:.{{0,10}})?(?:信息|答案|建议|帮助|资料)|帮助|帮您|帮你|得知|判断|找到(?:.{{0,12}})?(?:信息|答案|资料|内容)|确认|告诉|协助|满足)
        (?:很?抱歉|对不起|不好意思)?,?(?:我|我们|这里|目前)?(?:没有|没找到|没有找到|未找到|找不到)(?:.{{0,20}})(?:信息|答案|资料|说明)
        (?:这个问题|该问题|您的问题|这)超出了
    """,
    polite=r"""
        (?:很?抱歉|对不起|不好意思|很遗憾|遗憾的是|您好|你好)$
        (?:请|如果您|如果你|如需|建议您|建议你|您可以|你可以|是否需要|还有什么)
        (?:它们|这些文档|文档|资料)(?:只|仅)(?:提到|涉及|讨论|介绍|说明)
    """,
    turns=r"[;:；：\u2014\u2013]|[，,]?(?:但是|不过|然而|但|因此|所以|可是)",
)

_JA_DOCS = r"(?:提供された|与えられた|この|これらの|上記の|ご?提示の)?(?:文書|ドキュメント|資料|コンテキスト|文脈|文章|情報源|ソース|情報|テキスト)"
JAPANESE = Phrases(
    language="ja",
    before=r"申し訳|すみません|残念ながら|提供され|与えられ|恐れ入り",
    declines=rf"""
        (?:申し訳(?:ありません|ございません)が、?|すみませんが、?|残念ながら、?)?(?:私には|それは|その点は|[^。、]{{0,60}}(?:は|について|については|か))?、?(?:わかりません|分かりません|存じません|知りません|わかりかねます|分かりかねます|お答えできません|回答できません|お答えすることができません|お答えしかねます|判断できません|確認できません(?:でした)?)
        (?:申し訳(?:ありません|ございません)が、?|すみませんが、?|残念ながら、?)?[^。]{{0,60}}(?:情報|記載|記述|回答|答え)(?:は|が)(?:、?{_JA_DOCS}(?:に|には)?)?(?:ありません|見つかりません(?:でした)?|含まれていません|見当たりません|ございません)
        (?:申し訳(?:ありません|ございません)が、?)?(?:そのご?要望|ご?依頼|この件|それ)[^。]{{0,20}}(?:お手伝いできません|対応できません|お応えできません|支援できません)
    """,
    polite=r"""
        (?:申し訳(?:ありません|ございません)|すみません|ごめんなさい|残念ながら|恐れ入ります)[^。、]{0,10}$
        (?:詳しくは|詳細は|[^。]{0,40}(?:お問い合わせください|ご確認ください|ご連絡ください|お尋ねください|ご覧ください|教えてください|ご提供ください)|他に|もし)
    """,
    turns=r"[;:；：\u2014\u2013]|(?<!ません)(?<!すみません)(?:しかし|ただし|一方で|ですが、|なお、)",
)

KOREAN = Phrases(
    language="ko",
    before=r"죄송|안타깝게도|유감|제공된|주어진",
    declines=r"""
        (?:죄송하지만 |죄송합니다만 |안타깝게도 |유감스럽게도 )?(?:저는 |저도 |그건 |그것은 |[^,.]{0,60}(?:은|는|지|에 대해서는|에 대해) )?(?:잘 )?(?:모르겠습니다|모릅니다|알 수 없습니다|확실하지 않습니다|답변할 수 없습니다|답변드릴 수 없습니다|답변드리기 어렵습니다|도와드릴 수 없습니다|도움을 드릴 수 없습니다|확인할 수 없습니다|대답할 수 없습니다)
        (?:죄송하지만 |죄송합니다만 |안타깝게도 )?[^.]{0,60}(?:정보|내용|답변|언급)(?:가|이|은|는|를|을) (?:\S+ ){0,3}?(?:없습니다|찾을 수 없습니다|찾지 못했습니다|포함되어 있지 않습니다|제공되지 않았습니다|나와 있지 않습니다)
        (?:죄송하지만 |죄송합니다만 )?(?:제공된 |주어진 |해당 |이 )?(?:문서|문맥|자료|컨텍스트|텍스트|출처)(?:에는|에서는|에서|에|는|은) [^.]{0,60}(?:없습니다|않습니다|언급하지 않|나와 있지 않)
    """,
    polite=r"""
        (?:죄송합니다|죄송하지만|미안합니다|안타깝게도|유감스럽게도|안녕하세요)[^.,]{0,10}$
        (?:[^.]{0,60}(?:문의해 주세요|문의하세요|문의하시기 바랍니다|확인해 주세요|알려 주세요|제공해 주세요|참고하세요)|추가|더 |혹시|다른)
    """,
    turns=r"[;:\u2014\u2013]| - |,? (?:하지만|그러나|다만|그래서|그렇지만) ?",
)

PHRASES: dict[str, Phrases] = {
    "en": ENGLISH,
    "de": GERMAN,
    "fr": FRENCH,
    "es": SPANISH,
    "it": ITALIAN,
    "pt": PORTUGUESE,
    "nl": DUTCH,
    "tr": TURKISH,
    "ru": RUSSIAN,
    "hi": HINDI,
    "ar": ARABIC,
    "zh": CHINESE,
    "ja": JAPANESE,
    "ko": KOREAN,
}
