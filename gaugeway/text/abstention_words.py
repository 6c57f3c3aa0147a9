"""How the passages of an answer lack something, by language: small closed classes of words, put together in one way.

A clause declines where the passages (`source`) do not say it (`unsaid`: a negation with a verb of saying or containing,
or a word for lacking), or where it is not to be found (`absent`) in them (`inside`). What stands beside that behind a
comma may only go on with the question (`joins`).
"""

from __future__ import annotations

from typing import NamedTuple

_GAP = r"(?:(?!(?:that|which|who|die|welche|qui|que|che|die) )[^\s,]+ ){0,4}?"


class Words(NamedTuple):
    """The classes of one language, as patterns; `gap` is what may stand between two of them."""

    source: str
    unsaid: str
    inside: str
    absent: str
    joins: str
    no_source: str = "(?!)"
    gap: str = _GAP

    def pattern(self) -> str:
        """Return the pattern for the words by which a clause declines."""
        return (
            f"(?:{self.source}){self.gap}(?:{self.unsaid})|(?:{self.absent}) ?{self.gap}(?:{self.inside})"
            f"|(?:{self.inside}) ?{self.gap}(?:{self.absent})|{self.no_source}"
        )


_ASIAN = r"[^\u3002\uff0c,\u3001]{0,16}?"

_EN_THE = (
    r"\b(?:the|these|this|those|your|my|our|any|none|each|all)(?: of (?:the|these|those|my|our|your))? (?:[\w-]+ ){0,2}"
)
_EN_NOUN = (
    r"(?:documents?|passages?|contexts?|sources?|excerpts?|snippets?|articles?|texts?|materials?|documentation|results"
    r"|knowledge base|handbook|records)\b(?! (?:page|menu|message|folder|number|type)s?\b)(?: (?:provided|given|above|available|retrieved"
    r"|here|shown|i (?:have|was given|was shown|see)|you (?:gave me|provided|shared)|from the search))?"
)
_EN_OBJECT = (
    r"(?:that|this|it|such|any|anything|enough|sufficient|me|us|(?:the|an) answer|answers?|information|details?|mention|how|what|when|where|who|why"
    r"|which|whether)\b"
)
_EN_SAY = (
    r"(?:(?:says?|mentions?|states?|tells?|explains?|answers?|address(?:es)?|covers?|describes?|discuss(?:es)?|specif(?:y|ies)|indicates?|reveals?"
    r"|clarif(?:y|ies)|touch(?:es)?|speaks? (?:to|of)|refers? to|deals? with|go(?:es)? into|names?|lets? (?:me|us)|allows? (?:me|us)|helps? (?:me|us)|suffices?)\b"
    rf"|(?:contains?|includes?|provides?|gives?|offers?|have|has|lists?|details?|shows?)(?:$| (?:\w+ )?{_EN_OBJECT}))"
)
_EN_NOTHING = r"(?:nothing|none|no(?: \w+)? (?:information|details?|answers?|mention|entry|entries|data|guidance|clues?|indication|hint))\b"
_DE_THE = r"\b(?:d(?:en|er|em|ie|as)|diese[nmrs]?|mein\w*|unsere\w*|ihre[nmr]?|deine[nmr]?|keine[rs]?|vorliegende\w*) (?:[\w-]+ ){0,2}"
_DE_NOUN = (
    r"(?:dokument\w*|kontext\w*|textstellen?|passagen?|quellen?|unterlagen|auszüg\w*|auszug|wissens\w+|texte?n?|artikeln?|suchergebniss\w*"
    r"|ausschnitte?n?|abschnitte?n?)\b"
)
_DE_NOT = r"(?:nicht|nichts|keine?[nrms]?|nirgends)\b"
_DE_SAY = (
    r"(?:(?:enthalten|enthält|geben|gibt) (?:das|dies|dazu|darüber|hierzu|davon|leider)|sagt|sagen|nennt|nennen|genannt|erwähn\w+|beantwort\w+|erklär\w+|beschreib\w+|steh(?:t|en)|behandel\w+|geh(?:t|en)"
    r"|verraten|erläuter\w+|reich(?:t|en)|äußer\w+|hervor|finde\w*|lässt|lassen|find(?:et|en))\b"
)
_FR_NOUN = r"(?:documents?|contexte|passages?|sources?|extraits?|textes?|documentation|articles?|éléments)\b"
_FR_THE = r"\b(?:les|le|la|ces|ce|cette|mes|vos|nos|aucun|l'|des|du) ?(?:[\w-]+ ){0,1}"
_FR_NOT = r"(?:ne|n')(?: (?:me|nous|le|la|les|vous|l'))* ?"
_ES_NOUN = r"(?:documentos?|contexto|pasajes?|fuentes?|fragmentos?|textos?|extractos?|documentación|artículos?)\b"
_ES_THE = r"\b(?:los|el|la|las|estos|este|esta|estas|mis|del|ningún) (?:\w+ ){0,1}"
_IT_NOUN = r"(?:documenti|documento|contesto|passaggi|brani|fonti|estratti|testi|testo|documentazione)\b"
_IT_THE = r"\b(?:i|il|la|le|lo|gli|questi|questo|nei|nel|dai|dal|nelle|nessun[oa]? (?:dei|delle)) (?:\w+ ){0,1}"
_PT_NOUN = r"(?:documentos?|contexto|passagens|trechos?|fontes?|textos?|excertos?|documentação|artigos?)\b"
_PT_THE = r"\b(?:os|o|a|as|estes?|esses?|essas?|estas?|nos|no|nas|na|pelos|dos) (?:\w+ ){0,1}"
_NL_NOUN = r"(?:documenten|document|context|passages|bronnen|fragmenten|teksten|tekst|documentatie|artikelen|stukken)\b"
_NL_THE = r"\b(?:de|het|deze|dit|die|mijn|uw|geen van de|aangeleverde|gegeven) (?:\w+ ){0,1}"
_NL_NOT = r"(?:niet|niets|geen|nergens)\b"
_NL_SAY = (
    r"(?:(?:bevat(?:ten)?|geeft|geven)(?= (?:dat|dit|daar|hier|geen (?:antwoord|informatie)|niets))|noem(?:t|en)|zeg(?:t|gen)|vermeld(?:t|en)|leg(?:t|gen)|beschrijf(?:t)?|beschrijven|beantwoord(?:t|en)|sta(?:at|an)"
    r"|behandel(?:t|en)|verklaren|verklaart|volstaat|reikt)\b"
)
_RU_NOUN = r"(?:документ\w*|контекст\w*|текст\w*|отрывк\w*|источник\w*|материал\w*|фрагмент\w*)"

WORDS: dict[str, Words] = {
    "en": Words(
        source=_EN_THE + _EN_NOUN + " ",
        unsaid=rf"(?:(?:do(?:es)?|did)(?:n't| not)|never|cannot|can't) (?:\w+ly |even |really )?{_EN_SAY}"
        rf"|(?:{_EN_SAY}|contains?|includes?|provides?|gives?|offers?|have|has) (?:\w+ )?{_EN_NOTHING}"
        r"|(?:is|are)(?: silent| insufficient|(?: not|n't) (?:enough|sufficient))|lacks?\b|leaves? (?:that|this|it) open|leaves? (?:\w+ ){1,2}open",
        inside=rf"(?:\b(?:in|from|within|by|among|on the basis of|based on|with|using) {_EN_THE}{_EN_NOUN})",
        absent=r"\b(?:that|this|it|the answer|(?:your|this|that|the) question)(?:'s| is|'re| was| has) ?(?:n't|not)\b|\b(?:is|was|are|were)(?:n't| not)(?: \w+ly)? (?:said|stated"
        r"|mentioned|found|covered|explained|answered|given|listed|addressed|described|discussed|specified)|(?:cannot|can't|couldn't|could not) be (?:\w+ly )?(?:answered|found|determined|told|inferred)"
        r"|\b(?:i|we) (?:\w+ ){0,1}?(?:cannot|can't|could not|couldn't|am unable to|was unable to|(?:do|did)(?:n't| not)) (?:find|see|tell|say|answer|locate|determine) (?:that|this|it|an answer|anything|your question)?",
        no_source=rf"\b(?:none|neither|no|not one|nothing)(?: of| in)? (?:the |these |those |my |our |your )?(?:\w+ )?{_EN_NOUN} (?:\w+ly )?{_EN_SAY}",
        joins="and|or|nor|how|what|when|where|who|why|which|whether|if|to|that|as|for|including|such",
    ),
    "de": Words(
        source=_DE_THE + _DE_NOUN + " |zu [^,]{1,60} (?=(?:sagen|steht|finde))",
        unsaid=rf"{_DE_SAY}[^,]{{0,60}}? {_DE_NOT}|(?:enthalten|enthält|geben|gibt) (?:\w+ ){{0,2}}?keine (?:\w+ )?(?:information|angab|antwort|hinweis|auskunft)|(?:schweig\w+|unzureichend)|nicht (?:aus|genug)\b",
        inside=rf"\b(?:in|aus|laut|mit|anhand|nach|zu) (?:{_DE_THE}|(?:\w+ ){{0,1}}){_DE_NOUN}",
        absent=rf"{_DE_SAY} [^,]{{0,40}}?{_DE_NOT}|\b(?:nicht|nichts|nirgends|keine?[nrms]? (?:\w+ )?(?:hinweis\w*|angab\w+|antwort|information\w*|auskunft|aussage))\b",
        no_source=rf"\bkein\w* (?:der |dieser )?(?:\w+ )?{_DE_NOUN} {_DE_SAY}",
        joins="und|oder|wie|was|wann|wo|wer|warum|welche[rsnm]?|ob|um|dass|zu|wem|wen|wieviel|wohin|woher",
    ),
    "fr": Words(
        source=_FR_THE + _FR_NOUN + r" (?:fournie?s? |donnée?s? |récupérée?s? )?",
        unsaid=rf"{_FR_NOT}(?:disent|dit|mentionne|précise|indique|répond|parle|traite|spécifi|expliqu|suffi|évoqu|abord|décri)\w* ?(?:pas|rien|aucun|guère|point)?|{_FR_NOT}(?:contien|fourni|donne|comport|permet|offr)\w* (?:rien|aucune? (?:information|réponse|indication)|pas (?:cela|ça|ceci|cette|(?:de |d')?(?:vous |y )?(?:répon|information|indication)|la réponse|l'information))",
        inside=rf"\b(?:dans|d'après|selon|parmi|avec|à partir de|sur la base de) {_FR_THE}{_FR_NOUN}",
        absent=r"\b(?:ce|cela|cette information|la réponse|c'|ceci|ça|il) ?(?:n'est|n'y|n'apparaît|ne figure) \w+|\bne? ?(?:vois|trouve|trouvons|voyons) (?:pas|rien|aucun\w*)|\bn'ai (?:rien|pas) (?:\w+ )?trouvé|\bne peux? pas (?:vous |y )?(?:répondre|dire)",
        no_source=rf"\baucun\w* (?:des |de ces )?{_FR_NOUN} ne (?:dit|mentionne|précise|indique|répond|parle|traite|expliqu)",
        joins="et|ou|ni|comment|quand|où|qui|pourquoi|quel\\w*|si|pour|que|ce",
    ),
    "es": Words(
        source=_ES_THE + _ES_NOUN + r" (?:\w+[oa]s? )?",
        unsaid=r"no (?:(?:contien|proporcion|ofrec|incluy)\w* (?:eso|esto|ello|esa|la respuesta|información|nada|ningun)|(?:me |nos |lo |se )*(?:dic|mencion|especific|indic|respond|abord|aclar|precis|trat|habl|explic|permit|bast|describ|cuent|detall|alcanz)\w*)|(?:es|son) insuficientes?|guardan? silencio",
        inside=rf"\b(?:en|con|según|a partir de|por|de) {_ES_THE}{_ES_NOUN}",
        absent=r"\b(?:eso|esto|ello|esa información|la respuesta|lo) no (?:está|aparece|figura|consta|se)\b|\bno (?:lo )?(?:encuentro|veo|encontré|puedo (?:responder|decir\w*|contestar|saber))|\bno (?:\w+ )?(?:puedo|podemos|es posible) (?:responder|contestar|decir\w*)",
        no_source=rf"\bningun[oa]? (?:de (?:los|las|estos|estas) )?{_ES_NOUN} (?:lo )?(?:dice|menciona|indica|responde|habla|trata|explica)",
        joins="y|o|ni|cómo|cuándo|dónde|quién|por|qué|si|para|que|cuánto|cuál",
    ),
    "it": Words(
        source=_IT_THE + _IT_NOUN + r" (?:\w+[oaie] )?",
        unsaid=r"non (?:(?:conteng|contien|fornisc|riport|dann?o?|dà)\w* (?:questo|ciò|quest|la risposta|risposta|informazioni|nulla|niente)|(?:mi |ci |lo |ne )*(?:dic|menzion|specific|indic|affront|tratt|parl|rispond|spieg|permett|bast|descriv|chiarisc|è suff|sono suff)\w*)|taccion|tace\b",
        inside=rf"\b(?:in|nei|nel|nelle|nella|dai|dal|con|secondo|in base a\w*) (?:{_IT_THE})?(?:\w+ )?{_IT_NOUN}",
        absent=r"\b(?:questo |ciò |la risposta |lo )?non (?:è|c'è|compare|figura|risulta|si trova)\b|\bnon (?:vedo|trovo|ho trovato) (?:nulla|niente|questo|ciò)?|\bnon (?:posso|riesco a|si può) (?:rispondere|dir\w+)",
        no_source=rf"\bnessun\w* (?:dei |delle |di questi )?{_IT_NOUN} (?:lo )?(?:dice|menziona|indica|risponde|parla|tratta|spiega)",
        joins="e|o|né|come|quando|dove|chi|perché|quale|se|per|che|cosa|quanto",
    ),
    "pt": Words(
        source=_PT_THE + _PT_NOUN + r" (?:\w+[oa]s? )?",
        unsaid=r"não (?:(?:cont[êé]m|fornec|traz|trazem)\w* (?:isso|isto|ess|a resposta|resposta|informa|nada)|(?:me |nos |o |se )*(?:diz|mencion|especific|indic|inform|abord|trat|fal|respond|explic|permit|bast|descrev|esclarec|detalh|é suf|são suf)\w*)|(?:é|são) insuficientes?",
        inside=rf"(?:\b(?:em|com|segundo|a partir de) (?:{_PT_THE})?|\b(?:nos|no|nas|na) )(?:\w+ )?{_PT_NOUN}",
        absent=r"\b(?:isso|isto|essa informação|a resposta|ele)? ?não (?:está|aparece|consta|figura|se encontra|há)\b|\bnão (?:vejo|encontro|encontrei|achei) (?:nada|isso)|\bnão (?:posso|consigo|é possível) (?:responder|dizer)",
        no_source=rf"\bnenhum\w* (?:dos |das |desses )?{_PT_NOUN} (?:o )?(?:diz|menciona|indica|responde|fala|trata|explica)",
        joins="e|ou|nem|como|quando|onde|quem|por|qual|se|para|que|quanto",
    ),
    "nl": Words(
        source=_NL_THE + _NL_NOUN + " ",
        unsaid=rf"{_NL_SAY} (?:(?!dat |of )\w+ ){{0,4}}(?:(?:dat|dit|het) )?{_NL_NOT}|(?:is|zijn) (?:onvoldoende|niet (?:voldoende|genoeg|toereikend))",
        inside=rf"\b(?:in|uit|met|volgens|op basis van) (?:{_NL_THE})?(?:\w+ )?{_NL_NOUN}",
        absent=r"\b(?:staat|staan|is|vind ik|vinden we|komt|kan ik|wordt) (?:\w+ ){0,2}?(?:niet|niets|nergens)\b",
        no_source=rf"\bgeen (?:van (?:de|deze) )?{_NL_NOUN} {_NL_SAY}",
        joins="en|of|hoe|wat|wanneer|waar|wie|waarom|welke?|om|dat|te",
    ),
    "tr": Words(
        source=r"\b(?:belge|kaynak|pasaj|metin|bağlam|doküman|alıntı)\w* ",
        unsaid=r"(?:[^\s,]+ ){0,4}(?:açıkla|içer|belirt|bahset|söyle|yanıtla|cevapla|değin|anlat)m[ıiuü]yor\w*|(?:bu|bunlar|bununla ilgili bilgi) (?:yok|bulunm\w+|geçmiyor)|yetersiz|yeterli değil",
        inside=r"(?!)",
        absent=r"(?!)",
        joins="ve|veya|nasıl|ne|nerede|kim",
    ),
    "ru": Words(
        source=rf"\b(?:в |из |на основе )?(?:\w+ ){{0,1}}{_RU_NOUN} ",
        unsaid=r"(?:\w+ ){0,2}не (?:(?:содерж|да[юё]т)\w* (?:этого|ответ|информац|нужн)|(?:объясн|упомина|сообща|указыв|отвеча|говор|описыв|раскрыва|поясн|хвата|позволя\w* ответи)\w*)|(?:этого|такого|об этом|ответа|нужного) (?:ничего )?нет\b|(?:ничего |\w+ ){0,1}недостаточно",
        inside=r"(?!)",
        absent=r"(?!)",
        joins="и|или|как|когда|где|кто|почему|какой|если|что|чтобы",
    ),
    "ar": Words(
        source=r"(?:الوثائق|المستندات|السياق|النصوص?|المصادر|المقاطع|المقتطفات|المقتطف) ",
        unsaid=r"(?:\S+ ){0,2}(?:لا|لم|ليس\w*) (?:تشرح|يشرح|تذكر|يذكر|تحتوي|يحتوي|تحدد|يحدد|توضح|يوضح|تتضمن|يتضمن|تقدم|يقدم|تجيب|يجيب|تكفي|يكفي|كافي\w*)",
        inside=r"(?!)",
        absent=r"(?!)",
        joins="و|أو|كيف|متى|أين|من|ما",
    ),
    "zh": Words(
        source=r"(?:文档|文件|上下文|资料|文本|段落|来源|材料|知识库|片段)(?:中|里|内|里面)?",
        unsaid=r"(?:并|都|也|均)?(?:没有?|未|不)(?:明确|具体|直接)?(?:解释|说明|提到|提及|包含|涉及|给出|指出|写明|回答|提供|描述|记载|介绍|足以|够|有?(?:这个|这方面|这些|相关|该|此)(?:的)?(?:内容|信息|答案|说明))",
        inside=r"(?!)",
        absent=r"(?!)",
        joins="",
        gap=r"",
    ),
    "ja": Words(
        source=r"(?:文書|ドキュメント|資料|コンテキスト|文脈|文章|情報源|ソース|テキスト|抜粋)(?:の中)?(?:に|には|では|から|からは|だけでは|は|が)",
        unsaid=r"(?:説明|記載|言及|記述|回答|含ま|書か|触れ|述べ|示)(?:され|れ|られ|でき|して)*(?:ていません|ておりません|ません|ない)",
        inside=r"(?!)",
        absent=r"(?!)",
        joins="",
        gap=_ASIAN,
    ),
}
