"""More patterns of how answers decline, by language: short answers, and that nothing was found or is written."""

from __future__ import annotations

_EN_IT = r"(?:that|this|it|those|these|any\b|anything|an answer|details?|information|what you|your (?:question|answer)|(?:a|an|the) (?:\w+ ){0,2}(?:answers?|match|mention|references?|clauses?|sections?|details?|passages?|entry|information))"
_EN_PLACE = (
    r"(?:(?:in|within|among|from|across) (?:(?:the|these|this|those|any of the|my|your|our) )?(?:\w+ ){0,3}"
    r"(?:documents?|documentation|context|passages?|sources?|excerpts?|knowledge base|materials?|results|snippets?|articles?"
    r"|texts?|information|handbook|manuals?|guides?|faqs?|records|database|files?|wiki|content|references)|here)"
    r"(?: (?:provided|given|above|available|i have|you (?:provided|shared|gave me)))?"
)
_EN_ABOUT = r"(?:about|on|regarding|concerning|related to)"

SHORT: dict[str, str] = {
    "en": rf"""
        (?:sadly |alas )?(?:the|these|this|my|our) (?:\w+ ){{0,3}}(?:documents?|context|passages?|sources?|excerpts?|materials?|articles?|texts?|handbook|manual|guide|records|policy|policies) (?:(?:is|are|remains?) silent|makes? no (?:mention|reference))\b
        (?:sadly |alas )?(?:i|we)(?:'ve| have)? (?:just )?(?:searched|checked|looked|reviewed|went|read)\b[^,]{{1,60}}? (?:and|but) (?:i )?(?:(?:could not|couldn't|did not|didn't|was unable to|cannot|can't) (?:find|see|locate)|found (?:nothing|no)|came up (?:empty|with nothing))
        (?:i |we )?came up (?:empty|with nothing)\b
        (?:sadly |alas )?(?:i|we) (?:simply |really )?(?:can't|cannot|couldn't|could not) (?:really )?(?:say|tell)$
        (?:can't|cannot) (?:say|tell)$
        (?:i|we) (?:lack|am lacking|are lacking|am missing) (?:the |any |enough |sufficient )?(?:\w+ )?(?:information|data|context|details|knowledge)\b
        (?:that|this|the) (?:\w+ )?(?:information|data|detail)(?: is not|'s not| isn't) (?:available|accessible|known)(?: to (?:me|us))?$
        (?:my|our) (?:knowledge|information|training|data)(?: base)? (?:does not|doesn't) (?:extend|cover|include|reach)\b
        there(?: is| was|'s| were| are) no (?:relevant|matching|related) (?:\w+ )?(?:content|results?|documents?|passages?|information|articles?)\b
        (?:sorry,? )?(?:this|that|it)(?: is not|'s not| isn't) (?:covered|mentioned|addressed|documented|discussed|specified)$
        (?:i |we )?(?:have |'ve got |i've |honestly )?(?:absolutely |really |got )?no (?:idea|clue)(?: about (?:that|this|it))?(?:,? (?:sorry|unfortunately|i'm afraid))?$
        (?:i |we )?(?:have )?no (?:idea|clue) (?:what|whether|if|how|why|who|when|where)\b
        (?:it is |it's |that is |that's |this is |the answer is )?(?:currently )?(?:n/a|not (?:specified|stated|mentioned|given|provided|known|available|found|applicable|disclosed|indicated|clear|listed|covered|documented|sure|certain|addressed)|unknown|unclear|unspecified|undetermined|undisclosed|unanswerable)(?: (?:to me|{_EN_PLACE}))?$
        no (?:answer|information|info|mention|relevant \w+|matching \w+|(?:documents?|sources?|results?|match(?:es)?) found)(?: (?:was|were|is|are|could be))?(?: (?:found|available|given|provided|returned))?(?: {_EN_PLACE})?$
        there(?: is|'s| was| isn't| wasn't| is not) (?:nothing|anything) (?:\w+ ){{0,2}}{_EN_ABOUT} (?:that|this|it)(?: {_EN_PLACE})?$
        there(?: is|'s| was| isn't| wasn't| is not) (?:nothing|anything) (?:\w+ ){{0,2}}{_EN_ABOUT} [^,]{{1,60}} {_EN_PLACE}$
        there(?: is|'s| was) nothing {_EN_PLACE} {_EN_ABOUT}\b
        nothing (?:about (?:that|this|it) )?{_EN_PLACE} (?:covers?|mentions?|says?|addresse?s?|answers?|discusses?|explains?|indicates?|relates?|about|on)\b
        nothing (?:was |could be )?found(?: {_EN_ABOUT} [^,]{{1,60}})?$
        (?:i|we)(?: have| did|'ve)? (?:found|find|see|saw|have) (?:nothing|no (?:\w+ )?(?:information|mentions?|references?|answers?|details|records?))\b
        (?:i|we|i'm|we're) ?(?:(?:was|were|am|are) (?:un|not )able to|(?:wasn't|weren't|'m not|'re not|aren't) able to|(?:could|can)(?:n't|not| not)|(?:did not|didn't|don't|do not|haven't|have not)) (?:\w+ly )?(?:find|found|locate|located|identify|retrieve|see) (?:{_EN_IT}|[^,]{{1,60}} {_EN_PLACE}$)
        (?:it|that|this|(?:that|this|the|your) (?:question|topic|request|subject)) (?:is|falls|lies|goes|would be) (?:well |far |a bit )?(?:outside|beyond|out)(?: of)? what (?:i|we|this)\b
        (?:it|that|this)(?: is not|'s not| isn't) something (?:that )?(?:i|we) (?:can|am able|are able|could|know|have)\b
        (?:(?:i|we) can only|(?:i'm|i am|we're|we are) only able to) (?:answer|help|assist|discuss|talk)(?: you)? (?:\w+ ){{0,3}}?(?:questions|with|about|topics|requests)\b
        {_EN_PLACE} (?:says?|mentions?|contains?) nothing\b
        (?:the|these|this|your) (?:\w+ ){{0,3}}(?:documents?|context|passages?|sources?|excerpts?|materials?|articles?|texts?|handbook|manual|guide|records)(?: (?:provided|given|above))? (?:say|says|mention|mentions|contain|contains|include|includes) nothing\b
        (?:the|these|this|your) (?:\w+ ){{0,2}}(?:handbook|manual|guide|faq|records|database|files?|wiki) (?:do(?:es)? not|don't|doesn't) (?:say|mention|specify|state|answer|address|cover)\b
    """,
    "de": r"""
        (?:hierzu|dazu|darüber|mir|dafür) fehl(?:en|t) (?:mir |hierzu |dazu |leider |die |jede |nähere ){0,4}(?:informationen?|angaben?|daten|kenntnisse?|wissen)
        in (?:meinen|den|unseren|diesen) (?:\w+ )?(?:quellen|unterlagen|dokumenten|texten) (?:taucht|kommt|findet sich|steht) (?:das|dies|es|dazu|darüber) (?:leider )?nich(?:t|ts)\b
        (?:ich habe |da habe ich |hab )?(?:da |dazu |davon )?(?:leider |absolut |überhaupt )?keine ahnung(?:,? (?:tut mir leid|sorry|leider))?$
        (?:das )?(?:wei(?:ß|ss)) (?:ich|man) (?:es |das |leider |auch )*nicht(?: genau)?$
        (?:das ist |ist )?(?:mir )?(?:leider )?(?:nicht (?:angegeben|bekannt|erwähnt|genannt|spezifiziert|verfügbar|dokumentiert|ersichtlich|vorhanden|gefunden|aufgeführt|beschrieben)|unbekannt|unklar|k\. ?a|n/a)$
        keine (?:angaben?|informationen?|antwort|auskunft|treffer)(?: (?:dazu|hierzu|darüber))?(?: (?:vorhanden|verfügbar|gefunden|möglich|bekannt))?$
        (?:(?:mir|uns) ist |(?:dazu|davon|darüber|hierzu|hierüber|das) ist (?:mir|uns) )(?:dazu |davon |darüber |hierzu |leider |das )*(?:nichts|nicht|keine \w+) bekannt
        (?:da|hier) bin ich (?:leider )?überfragt
        (?:dazu|darüber|hierzu|hierüber|davon|zu (?:diesem|ihrem) (?:thema|punkt)) (?:konnte|konnten|kann|können|habe|haben|finde|finden|steht|stehen|gibt|findet|lässt|sagen) (?:ich |wir |es |sich |die |den |der |in |texte? |dokumente?n? |unterlagen |hier |leider ){0,5}nichts\b
        (?:ich|wir) (?:konnte|konnten|kann|habe|haben|finde|finden) (?:dazu |darüber |hierzu |hierüber |leider |in [^,]{1,30} |zu [^,]{1,40} )*nichts (?:\w+ )?(?:finden|gefunden|dazu|darüber|zu|über)\b
        es (?:gibt|steht|findet sich) (?:hier |leider |in [^,]{1,40} )*(?:dazu|darüber|hierzu|zu diesem thema) (?:hier |leider |in [^,]{1,40} )*nichts\b
        (?:das|dies|diese frage|ihre frage|das thema) (?:gehört nicht zu (?:den|meinen|unseren) (?:themen|aufgaben|bereichen|fragen)|fällt nicht in (?:meinen|unseren)|geht über (?:das|meine?n?) )
    """,
    "fr": r"""
        aucun(?:e)? (?:des|de ces|de mes|de nos) (?:\w+ )?(?:documents?|sources|textes?|extraits?|passages?)(?: \w+)? (?:ne |n')
        (?:les|ces|mes) (?:\w+ )?(?:documents?|sources|textes?|extraits?) (?:restent|sont) (?:muets|muettes|silencieux|silencieuses)
        (?:je|nous) n'(?:ai|avons) pas (?:cette|ces|l') ?(?:information|donnée|réponse)s?\b
        (?:je n'(?:en )?ai |nous n'(?:en )?avons )?(?:absolument )?(?:aucune|pas la moindre) idée(?:,? (?:désolée?|malheureusement))?$
        (?:je|nous) (?:l'|ne l')ignor(?:e|ons)\b
        j'ignore (?:cela|ce|la réponse|si|qui|quand|comment|pourquoi|où|quel)
        (?:c'est )?(?:non (?:précisé|spécifié|mentionné|indiqué|renseigné|disponible|communiqué|connu|trouvé)e?s?|inconnue?s?|n/a|pas (?:d'informations?|de réponse|mentionnée?|précisée?|indiquée?))$
        aucune (?:information|réponse|donnée|mention|précision)(?: (?:disponible|trouvée|à ce sujet|sur ce (?:point|sujet)|là-dessus))*$
        (?:je|nous) n'(?:ai|avons) (?:malheureusement |pas )?(?:rien (?:pu )?(?:trouvé|trouver|vu)|(?:pu )?trouv(?:é|er) (?:rien|aucune? (?:\w+ )?(?:information|réponse|mention|détail|donnée|précision|élément|document)))
        (?:je|nous) ne (?:trouve|trouvons|vois|voyons|sais|savons) (?:malheureusement )?rien\b
        (?:cette|cet|ce|cela|ces|l'|la|le|les)[^,]{0,40} (?:ne (?:figure|figurent|se trouve|se trouvent|ressort)|n'appara[iî]t|n'apparaissent) (?:malheureusement )?(?:pas|nulle part)(?: (?:dans|de|parmi) [^,]{1,60})?$
        (?:il )?n'y a (?:donc |malheureusement )?rien (?:\w+ )?(?:à ce (?:sujet|propos)|là-dessus|sur (?:ce|cette|cela|ça)|concernant|à propos|dans (?:les|le|la|ces|ce) (?:\w+ )?(?:documents?|textes?|sources|contexte|extraits))
        rien (?:dans [^,]{1,40} |à ce sujet )?(?:ne (?:permet|répond|mentionne|précise|traite|parle)|n'(?:indique|est (?:dit|précisé|indiqué|mentionné)))
        rien (?:à ce (?:sujet|propos)|là-dessus|trouvé)\b
    """,
    "es": r"""
        no (?:tengo|tenemos|dispongo de|disponemos de|cuento con) (?:es[aeo]s?|est[aeo]s?|dich[ao]s?|el|la) (?:datos?|información|detalles?|respuesta)\b
        (?:los|las|estos|mis) (?:documentos|textos|fuentes) (?:no dicen nada|guardan silencio|callan)\b
        no (?:lo|la) (?:he podido encontrar|encuentro|encontré|he encontrado)$
        no he podido encontrar(?:lo|la)$
        (?:no tengo |no tenemos )?(?:ni|ni la menor|ni la más mínima|ninguna|la menor) idea(?:,? (?:lo siento|perdón))?$
        (?:lo )?(?:desconozco|ignoro)(?: (?:la|el|lo|esa?|ese|eso|si|quién|cuándo|cómo|por qué)\b[^,]*)?$
        (?:no (?:está )?(?:especificad|mencionad|indicad|disponible|encontrad|proporcionad|conocid)[oa]?s?|no se (?:especifica|menciona|indica|sabe)|no (?:consta|aparece)|(?:es )?desconocid[oa]s?|sin (?:información|datos|respuesta)|n/[ad]|ninguna información(?: (?:disponible|al respecto))?)$
        no (?:he encontrado|hemos encontrado|encontré|encuentro|encontramos|veo|hay|aparece|tengo|sé|pude encontrar|he podido encontrar|consigo encontrar) nada (?:\w+ )?(?:sobre|acerca|al respecto|de eso|relacionado|en (?:los|el|la|las) (?:\w+ )?(?:documentos?|textos?|fuentes|contexto))
        (?:esa|esta|dicha|la|ese|este|el) (?:\w+ )?(?:información|dato|detalle|respuesta|punto|tema) no (?:aparece|figura|consta|está|se (?:encuentra|menciona|indica))\b
        nada (?:en [^,]{1,40} )?(?:responde|menciona|indica|al respecto|sobre eso)\b
    """,
    "it": r"""
        non (?:ho|abbiamo|dispongo di|disponiamo di) (?:questo|questa|quest'|tale|tali|queste) ?(?:dato|dati|informazion[ei]|dettagl\w+|risposta)\b
        non (?:ho|abbiamo) trovato (?:alcun[ao]?|nessun[ao]?) (?:informazione|risposta|riferimento|dato)
        (?:non (?:ne )?ho |non ho )?(?:nessuna |la minima |alcuna |proprio )?idea$
        (?:non (?:specificat|indicat|menzionat|riportat|disponibil|trovat|not|precisat)[oaie]|non si sa|sconosciut[oa]|ignot[oa]|n/[ad]|nessuna (?:informazione|risposta)(?: (?:disponibile|trovata|in merito|al riguardo))*)$
        non (?:ho trovato|abbiamo trovato|trovo|troviamo|c'è|vedo|sono riuscit[oa] a trovare|so) (?:nulla|niente) (?:\w+ )?(?:su|sul|sulla|al riguardo|in merito|a proposito|di|nei|nel|riguardo)\b
        (?:questa|quest'|tale|la|l'|il|questo) ?(?:\w+ )?(?:informazione|dato|dettaglio|risposta|punto|argomento) non (?:compare|figura|è (?:present|riportat|indicat|menzionat)\w+|si trova|appare|risulta)\b
        (?:lo )?ignoro\b
    """,
    "pt": r"""
        não (?:tenho|temos|disponho d|dispomos d) ?(?:ess[ea]s?|est[ea]s?|tal) (?:dados?|informaç\w+|detalhes?|resposta)
        não (?:encontrei|encontramos) (?:nenhuma|qualquer) (?:informação|resposta|menção|referência)
        (?:não (?:faço|tenho) (?:a (?:menor|mínima) |nenhuma |qualquer )?|sem |nenhuma )ideia$
        (?:não (?:especificad|mencionad|indicad|informad|disponíve|encontrad|fornecid)(?:[oa]s?|is|l)|não se sabe|não (?:consta|aparece)|desconhecid[oa]s?|n/[ad]|sem (?:informação|informações|resposta)|nenhuma (?:informação|resposta)(?: (?:disponível|encontrada|a respeito))*)$
        não (?:encontrei|encontramos|encontro|achei|há|vejo|consegui encontrar|consigo encontrar|existe|sei|tenho) nada (?:\w+ )?(?:sobre|a respeito|acerca|relacionado|nos|no|nas|na)\b
        (?:essa|esta|tal|a|esse|este|o) (?:\w+ )?(?:informação|dado|detalhe|resposta|ponto|tema|assunto) não (?:consta|aparece|figura|está|se encontra|é mencionad\w)\b
        (?:eu )?desconheço\b
    """,
    "nl": r"""
        (?:ik|we|wij) (?:kan|kon|kunnen|heb|hebben) (?:dat|dit|het|hier|daar) (?:\w+ )?(?:nergens|niet) (?:terug)?(?:vinden|gevonden)
        (?:ik heb )?(?:daar |hier )?(?:echt |helaas )?geen (?:flauw )?idee(?:,? (?:sorry|helaas))?$
        (?:niet (?:vermeld|bekend|gespecificeerd|gevonden|beschikbaar|aangegeven|genoemd|opgegeven|duidelijk)|onbekend|onduidelijk|n\.?v\.?t|n/a|geen (?:informatie|antwoord)(?: (?:gevonden|beschikbaar|hierover|daarover))*)$
        (?:ik|we|wij) (?:heb|hebben|kan|kon|konden|kunnen|vind|vinden) (?:hier |daar |hierover |daarover |helaas |in [^,]{1,30} )*(?:niets|niks) (?:over |hierover |daarover )?(?:gevonden|vinden|over|hierover|daarover)\b
        (?:daarover|hierover|daar|hier) (?:staat|is|vind ik|kan ik|heb ik) (?:helaas )?(?:niets|niks)\b
        er (?:staat|is) (?:hier |helaas )*(?:niets|niks) (?:hierover|daarover|over)\b
        (?:deze|die|dat|dit|de) (?:\w+ )?(?:informatie|gegevens|antwoord|punt|onderwerp) (?:komt|komen|staat|staan|is|zijn) (?:helaas )?niet (?:voor|vermeld|beschikbaar|te vinden|opgenomen|in)\b
        (?:mij|ons) is (?:hierover |daarover )?(?:niets|niks) bekend
    """,
    "tr": r"""
        (?:bu konuda |hiç |maalesef )*(?:hiçbir |hiç )?fikrim yok
        (?:belirtilmemiş(?:tir)?|belirtilmedi|bilinmiyor|bilgi (?:yok|bulunamadı|mevcut değil)|mevcut değil|bulunamadı)$
        (?:[^,]{0,60} )?(?:bu konuda|bununla ilgili|buna dair|hakkında|bu konuyla ilgili) (?:hiçbir |bir )?(?:şey|sonuç) (?:bulamadım|bulunamadı|yok|bilmiyorum|yazmıyor)
        (?:bu konuda |maalesef )*(?:bilgim|bilgi) (?:yok|sahibi değilim)
    """,
    "ru": r"""
        (?:таких |этих |такой |этой )?(?:сведений|информации|данных|ответа) (?:у (?:меня|нас) |в (?:\w+ ){0,2}(?:документах|тексте|источниках|материалах) |об этом )+(?:нет|не найдено|отсутству\w+)
        (?:я )?(?:об этом )?(?:понятия не имею|без понятия|не имею (?:ни малейшего )?(?:понятия|представления))
        (?:это )?(?:не (?:указан|упомянут|упоминает|известн|найден|определен|определён)\w*|неизвестн\w*|нет (?:данных|информации|ответа|сведений)|н/д|мне (?:это|об этом)? ?(?:ничего )?не ?известно|неясно)$
        (?:я |мы )?(?:об этом |к сожалению |ничего )*(?:не (?:нашёл|нашел|нашла|нашли|могу найти|смог найти|смогла найти|вижу|знаю) ничего|ничего (?:\w+ )?не (?:нашёл|нашел|нашла|нашли|найдено|знаю|смог найти|удалось найти))\b
        (?:мне |нам )?(?:об этом|по этому (?:поводу|вопросу)|по этой теме) (?:\w+ ){0,4}?(?:ничего (?:нет|не)|не говорится|не сказано|нет (?:данных|информации))
        (?:эта|этой|такой|эти|данная) (?:\w+ )?(?:информаци|данны|сведени)\w+ (?:нет|отсутству\w+|не (?:содержи|указан|привед|встреча)\w+)
        (?:мне|нам) (?:об этом )?ничего не известно
    """,
    "hi": r"""
        (?:मुझे )?(?:कोई )?(?:अंदाज़ा|अंदाजा|पता|आइडिया|जानकारी) (?:नहीं|नही)(?: है)?$
        (?:इसका |यह )?(?:कोई )?(?:उल्लेख|जानकारी|विवरण|उत्तर) (?:नहीं|उपलब्ध नहीं)(?: है| किया गया(?: है)?| दिया गया(?: है)?| मिला| मिली)?$
        (?:अज्ञात|निर्दिष्ट नहीं|उल्लेखित नहीं|उपलब्ध नहीं)(?: है)?$
        (?:मुझे|हमें) (?:[^,]{0,60} )?(?:कुछ|कोई \S+|जानकारी|उत्तर) (?:भी )?नहीं (?:मिला|मिली|मिल|पता)
        (?:मुझे|हमें) (?:[^,]{0,60} )?(?:जानकारी|पता|ज्ञान) नहीं
    """,
    "ar": r"""
        (?:للأسف )?لا (?:تتوفر|تتوافر|توجد) (?:لدي )?(?:هذه|تلك) (?:المعلومات|المعلومة|البيانات)
        (?:ليس|ليست) (?:لدي|عندي) (?:أي |أدنى )?(?:فكرة|علم)
        (?:هذا )?(?:غير (?:مذكور|معروف|محدد|متوفر|متاح|واضح|موجود)ة?|لا يوجد|لا توجد معلومات|لا معلومات|مجهول)$
        (?:للأسف )?لم (?:أجد|نجد|أعثر على|يتم العثور على) (?:أي )?(?:شيء|شيئا|شيئًا|معلومات|إجابة|ذكر)
        (?:للأسف )?لا (?:أجد|يوجد|توجد) (?:أي )?(?:شيء|شيئا|معلومات|ذكر) (?:\S+ )?(?:عن|حول|بخصوص|بشأن)
        (?:للأسف )?لا (?:توجد|تتوفر|تتوافر) (?:لدي|لدينا) (?:أي )?(?:معلومات|بيانات|إجابة)
        (?:هذه|تلك) المعلومات (?:غير|لا|ليست)\s
    """,
    "zh": r"""
        (?:很?抱歉,?)?(?:在|从)?(?:文档|资料|文件|材料|知识库)?(?:中|里|内)?(?:查不到|找不到|查无)(?:相关.{0,6})?$
        (?:我)?(?:完全)?(?:毫无头绪|没有头绪|一无所知|没有概念|没概念)
        (?:文中|文档中?|资料中?)?(?:未提及|未提到|未说明|未注明|不详|未知|不明|不清楚|未找到|无法确定|没有提到|没有提及|没有说明|无相关(?:信息|内容|资料)|没有(?:找到)?(?:相关|对应)(?:的)?(?:信息|内容|资料|答案)|无答案|查无(?:结果|信息))$
        (?:很?抱歉|对不起|不好意思)?,?(?:我)?(?:没有?|未能?|没能|找不到|没有找到|没找到)(?:找到|查到)?(?:.{0,12})(?:相关|有关|这方面|关于.{1,12})的?(?:内容|信息|资料|答案)$
        (?:在|从)?(?:这些|该|所?提供的|上述)?(?:文档|文件|资料|文本|材料|上下文|来源)(?:中|里|内)?(?:并|都)?(?:没有|未|没)(?:.{0,12})(?:内容|信息|答案|资料|记载|说明)$
    """,
    "ja": r"""
        (?:[^。]{0,30}(?:には|については|は))?、?(?:お答え(?:でき|し)かねます|お答えいたしかねます|ご案内(?:でき|し)かねます)
        (?:まったく|全く|さっぱり)?(?:見当もつきません|見当がつきません|存じ上げません|わかりません|分かりません)
        (?:[^。、]{0,30}(?:は|について)?)?(?:不明(?:です|である)?|記載(?:は)?(?:なし|無し|がありません)|情報(?:は)?なし|該当(?:は)?なし|未記載(?:です)?|特定できません|言及なし)$
        (?:申し訳(?:ありません|ございません)が、?|残念ながら、?)?(?:該当する|関連する|その|それに関する|ご質問に関する)(?:情報|記載|内容|資料|回答)(?:は|が|を)(?:、?[^。、]{0,20})?(?:ありません|ございません|見つかりません(?:でした)?|見つけられません(?:でした)?|見当たりません(?:でした)?|確認できません(?:でした)?)
    """,
    "ko": r"""
        (?:저는 |전혀 |잘 )*(?:모르겠습니다|모르겠어요|모릅니다|몰라요|짐작도 가지 않습니다)
        (?:[^,.]{0,30}(?:은|는) )?(?:알 수 없음|알 수 없습니다|명시되지 않(?:음|았습니다)|언급되지 않(?:음|았습니다)|정보 없음|해당 없음|불명|미상|확인(?:할 수 없음|되지 않음))$
        (?:죄송하지만 |죄송합니다만 |안타깝게도 )?(?:관련|해당|그|이에 대한|관련된) (?:정보|내용|자료|답변)(?:가|이|은|는|를|을)? (?:\S+ ){0,2}?(?:없습니다|없어요|찾을 수 없습니다|찾지 못했습니다|확인할 수 없습니다)
    """,
}
"""Patterns for a clause, one a line, as in `abstention_phrases`."""
