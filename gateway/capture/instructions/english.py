"""Directives in English."""

from __future__ import annotations

from gateway.capture.instructions.directives import rule

_MAKE = (
    r"(?:(?:re)?generat(?:e|es|ing)|creat(?:e|es|ing)|writ(?:e|es|ing)|produc(?:e|es|ing)|provid(?:e|es|ing)|giv(?:e|es|ing)|"
    r"return(?:s|ing)?|output(?:s|ting)?|formulat(?:e|es|ing)|suggest(?:s|ing)?|propos(?:e|es|ing)|craft(?:s|ing)?|"
    r"construct(?:s|ing)?|build(?:s|ing)?|mak(?:e|es|ing)|compos(?:e|es|ing)|com(?:e|es|ing) up with|deriv(?:e|es|ing)|"
    r"predict(?:s|ing)?|draft(?:s|ing)?|prepar(?:e|es|ing)|list(?:s|ing)?|think of|"
    r"anticipat(?:e|es|ing)|develop(?:s|ing)?|optimi[sz](?:e|es|ing)|assign(?:s|ing)?|add(?:s|ing)?|find(?:s|ing)?|"
    r"extract(?:s|ing)?|identif(?:y|ies|ying)|pick(?:s|ing)?|select(?:s|ing)?|determin(?:e|es|ing)|infer(?:s|ring)?)"
)
_TURN = (
    r"(?:re-?phras|re-?writ|reformulat|reword|paraphras|transform|convert|turn|condens|chang|refin|improv|enhanc|optimi[sz]|"
    r"expand|contextuali[sz]|decontextuali[sz]|clarif|simplif)(?:e|es|ing|s|y|ies|ying)?"
)
_FILL = (
    r"(?:(?:up to|at (?:most|least)|(?:list|set|array|series|group|number|version|selection|collection|couple)s? of|"
    r"no more than|more than|(?!(?:answers?|respon[sd]\w*|repl\w+|to|for|of|about|based|from|using|with|that|which|who|if|when|"
    r"whether|how|why|what|i|my|we|our|you|than|on|in|into|is|are)\b)[\w'%()/\"<>+-]+),? ){0,8}?"
)
"""Words between a verb and its object: a number, adjectives; no preposition, and no other object such as "an answer"."""

_TALK = r"(?:conversation|chat|dialogu?e|discussion|thread|exchange|interaction|session|messages)"
_PIECE = r"(?:chunk|excerpt|passage|section|snippet|fragment|segment|paragraph|part|piece|child|node)s?"
_ASKED = r"(?:question|quer(?:y|ies)|utterance|follow-?up)s?"
_SAID = rf"(?:{_ASKED[3:-3]}|message|input|request|prompt)s?"
_TOLD = (
    r"(?:documents?|passages?|contexts?|chunks?|snippets?|answers?|responses?|generations?|statements?|claims?|texts?|articles?|"
    r"results?|paragraphs?|information|outputs?|facts|excerpts?|sentences?|evidence|content|sources?|nodes?)"
)
_JUDGED = (
    r"(?:relevan\w+|irrelevant|ground\w+|support\w*|faithful\w*|sufficien\w+|useful\w*|helpful\w*|hallucinat\w+|address\w*|"
    r"resolv\w+|contradict\w*|entail\w*|consistent|related|correct\w*|complete\w*|factual\w*|accura\w+|enough|pertinent)"
)
_QUERY = r"(?:search|searching|retrieval|look-?up|vector ?(?:store|database|db)|rag|web|google|bing|knowledge ?base)[ -](?:engine )?(?:quer(?:y|ies)|terms?|phrases?|strings?|keywords?)"
_CHUNK_NEEDS = r"\bonly\b|\bsuccinct\b|\bretriev|\bsearch|<chunk|\bnothing else\b|\bconcise\b|\bshort\b|\bbrief\b"
_QUESTION_NEEDS = (
    r"\bstand-?alone|\bself-contained|\bcontext-(?:free|independent)|\bconversation|\bchat history|\bprevious (?:turns|messages)|\bfollow-?up"
    r"|\bsearch\w*|\bretriev\w*|\bvector|\bindex|\bimproved? (?:question|query)|\brewritten|\brephrased|\bsemantic|\bre-?writ|\bknowledge base|\bquery\b|\bpronouns?"
)
_ROUTING_NEEDS = (
    r"\bonly\b|\bone of\b|\bexactly one\b|\bno extra\b|\bjson\b|\byes ?(?:or|/) ?no\b|['\"]yes['\"]|\bsingle word\b|\bone word\b|\bfollowing (?:categories|classes|intents|labels|routes|options|types)\b"
    r"|\bclass(?:es|ification)\b|\bcategory:|\bintent:|\bto (?:a|the|either) (?:vector|web|appropriate|right|correct|best)|\bnothing else\b|\bbinary\b|\bname of the\b"
)
_MANY = r"(?:different|alternative|alternate|multiple|diverse|several|various|similar|additional|new|\d+|two|three|four|five|few|n|more)"


_MAKES = (
    "gener regener creat writ produc provid give givi retur outpu formul sugge propos craft const build make making compos "
    "come comin deriv predi draft prepa list lists think antici devel optim assig add adds find extra "
    "ident pick selec deter infer guess tag get"
)
_TURNS = "reph re-p rewr re-w refo rewo para tran conv turn cond chan refi impr enha opti expa deco clar simp"

ENGLISH = (
    rule(
        "chunk_context",
        "situat|contextuali",
        "situ cont loca plac",
        rf"(?:situat|contextuali[sz]|locat|plac)(?:e|es|ing)? [^.\n]{{0,40}}\b{_PIECE}\b[^.]{{0,80}}\b(?:document|text|article|paper|report|book|file|page|source)s?\b",
        _CHUNK_NEEDS,
        imperative=False,
        roots="situat|contextuali|place th|placing|locat",
    ),
    rule(
        "chunk_context",
        "context|describe|explanation|summary|header|introduction & chunk|excerpt|passage|section|snippet|fragment|segment|paragraph|part|piece|<chunk & document|retrieve|search",
        _MAKES,
        rf"{_MAKE} {_FILL}(?:contexts?|descriptions?|explanations?|summary|introductions?|headers?) [^.\n]{{0,60}}\b(?:of|for|to|that|about) [^.\n]{{0,60}}\b(?:this|the|each|following) {_PIECE} [^.]{{0,160}}\b(?:document|retriev\w+|search)",
        _CHUNK_NEEDS,
    ),
    rule(
        "multi_query",
        "versions|variations|variety|variants|paraphrase|rephrase|reformulate|formulation|alternative|perspective|ways|sub-|subq|subp|queries",
        f"{_MAKES} {_TURNS}",
        rf"(?:{_MAKE}|{_TURN}) [^.\n]{{0,60}}\b{_MANY} (?:[\w'-]+ ){{0,3}}(?:versions?|variations?|variants?|paraphrases?|rephrasings?|reformulations?|formulations?|alternatives?|perspectives?|ways)\b[^.\n]{{0,60}}\b{_SAID}\b"
        rf"|{_MAKE} {_FILL}(?:sub-?(?:questions?|quer(?:y|ies)|problems?)|{_MANY} (?:[\w'-]+ ){{0,3}}(?:search )?queries)\b"
        rf"|(?:{_TURN}|{_MAKE}) [^.\n]{{0,60}}\b(?:search )?query (?:in)?to {_FILL}(?:variations?|variants?|queries)\b",
        roots="version|variation|variant|paraphras|rephras|reformul|formulation|alternativ|perspective|ways|sub-q|subq|sub-p|subp|queries",
    ),
    rule(
        "multi_query",
        "question|query|quer & sub-|subq|smaller|simple|individual|separate|steps|parts|multiple",
        "deco brea spli",
        rf"(?:decompos|break|split)\w* [^.\n]{{0,80}}\b{_SAID}\b[^.\n]{{0,60}}\b(?:sub|smaller|simpler|simple|individual|separate|steps|parts|multiple|several)",
    ),
    rule("multi_query", "step", "step", r"step[- ]?back (?:question|query)", imperative=False),
    rule(
        "query_generation",
        "query|queries|search|term|phrase|string|keyword",
        f"{_MAKES} {_TURNS}",
        rf"(?:{_MAKE}|{_TURN}) {_FILL}{_QUERY}\b"
        rf"|{_TURN} [^.\n]{{0,80}}\b(?:in)?to {_FILL}(?:{_QUERY}|quer(?:y|ies))\b"
        rf"|{_MAKE} {_FILL}quer(?:y|ies) (?:\w+ ){{0,3}}(?:for|to|in) (?:use in |the |a |an |our |be used )*(?:search\w*|retriev\w+|look\w*|vector\w*|web|find|index|knowledge|elasticsearch|bm25)",
    ),
    rule(
        "query_generation",
        "question & chunk|passage|document|context|text|excerpt|section & answer|provide|can|could|would",
        _MAKES,
        rf"{_MAKE} {_FILL}questions? [^.]{{0,80}}\b(?:this|the|these|given|each) (?:\w+ ){{0,2}}(?:{_PIECE}|documents?|contexts?|texts?) (?:can|could|would|provides?|answers?|helps?)\b"
        rf"|{_MAKE} {_FILL}questions? (?:that|which) (?:can|could|would|might) be answered (?:\w+ ){{0,3}}(?:by|using|from|with|on)\b[^.\n]{{0,40}}(?:{_PIECE}|documents?|contexts?|texts?)\b",
        roots="can answer|could answer|would answer|be answered|answers|provides",
    ),
    rule(
        "standalone_question",
        "question|query|follow|utterance",
        _TURNS,
        rf"{_TURN} (?:(?!(?:answers?|tone|style|essay|email|text|sentence)\b)[\w'()/,\"<>-]+ ){{0,8}}?{_ASKED}\b",
        _QUESTION_NEEDS,
        roots="standalone|stand-alone|self-contained|context-|conversation|history|follow-up|follow up|followup|search|retriev|vector|index|rewrit|rephras|semantic|query|queries|knowledge base|improve|pronoun",
    ),
    rule(
        "standalone_question",
        "question|query|follow|utterance & standalone|self|improved|rewritten|rephrased|reformulated|context-|independent|optimized|refined|better",
        _MAKES,
        rf"{_MAKE} {_FILL}(?:standalone|stand-alone|self-contained|improved|rewritten|rephrased|reformulated|context-free|context-independent|independent|optimi[sz]ed|refined|better) (?:\w+ ){{0,2}}{_ASKED}\b",
        _QUESTION_NEEDS,
        roots="standalone|stand-alone|self-contained|context-|conversation|history|follow-up|follow up|followup|search|retriev|vector|index|rewrit|rephras|semantic|query|queries|knowledge base|improve|pronoun",
    ),
    rule(
        "standalone_question",
        "rewrite|re-write|rephrase|reformulate|optimize|transform|expansion|condense",
        "ques quer",
        r"(?:question|query) (?:re-?writer|re-?writing|rephras\w+|reformulat\w+|optimi[sz]\w+|transform\w+|expansion|condens\w+)\b",
        imperative=False,
    ),
    rule(
        "standalone_question",
        "message|input|prompt|follow|request & standalone|self|context-|search|retrieve|vector|without",
        _TURNS,
        rf"{_TURN} (?:(?!(?:answers?|tone|style|essay|email|text|sentence)\b)[\w'()/,\"<>-]+ ){{0,6}}?(?:message|input|prompt|request|follow-?up)\b",
        r"\bstand-?alone|\bself-contained|\bcontext-(?:free|independent)|\bsearch (?:query|engine)|\bretriev\w+|\bvector|\bwithout (?:the )?(?:chat )?history",
    ),
    rule(
        "translation",
        "question|query|queries|utterance",
        "tran",
        rf"translat(?:e|es|ing) (?:[\w']+ ){{0,5}}?{_ASKED}\b",
        r"\bsearch\w*|\bretriev\w*|\bindex|\bknowledge base|\bonly\b",
    ),
    rule(
        "hypothetical_document",
        "hypothetical|imagine|fictional|plausible|ideal|hyde|retrieve|search|embed|vector|semantic|similarity & answer|document|passage|paragraph|response|article|abstract|text|excerpt|snippet|chunk",
        _MAKES,
        rf"{_MAKE} {_FILL}(?:hypothetical|imaginary|imagined|fictional|plausible|ideal|hyde)(?:,? [\w-]+){{0,4}}? (?:answers?|documents?|passages?|paragraphs?|responses?|articles?|abstracts?|texts?|excerpts?|snippets?|chunks?)\b"
        rf"|{_MAKE} {_FILL}(?:documents?|passages?|paragraphs?|article|abstract|excerpt|snippet)(?:, [^.,\n]{{1,80}},)? (?:that|which) (?:(?:would|could|might|may|directly|fully|ideally|best|perfectly|likely) )*(?:answers?|address\w*|respond\w*)\b",
        r"\bhypothe|\bimagin|\bretriev|\bembedd|\bvector|\bsemantic|\bsimilarity|\bsearch",
    ),
    rule(
        "keywords",
        "keyword|keyphrase|key-|key|search",
        _MAKES,
        rf"(?:{_MAKE}|get) {_FILL}(?:key-?words?|key words|key-?phrases?|key phrases|key terms?|search terms?|key concepts?)\b",
    ),
    rule(
        "title",
        "title|headline|name|caption|subject & conversation|chat|dialog|discussion|thread|exchange|interaction|session|messages|user|first|initial|opening",
        _MAKES,
        rf"{_MAKE} {_FILL}(?:titles?|headlines?|names?|captions?|subject lines?)\b[^.\n]{{0,120}}\b(?:{_TALK}|(?:first|initial|opening|user'?s?|user prompt|user) (?:\w+ )?(?:message|prompt|question|query|input|request))\b"
        rf"|{_MAKE} (?:this|the) (?:\w+ ){{0,2}}{_TALK} an? {_FILL}(?:titles?|headlines?|names?)\b",
    ),
    rule(
        "title",
        "words|title|phrase|characters & conversation|chat|dialog|discussion|thread|exchange|interaction|session|messages",
        "summ desc labe name titl",
        rf"(?:summari[sz]e|describe|label|name|title) (?:\w+ ){{0,4}}{_TALK}\b[^.\n]{{0,60}}\b(?:in|into|as|with|of|using)\b[^.\n]{{0,24}}\b(?:words?|title|phrase|characters)\b"
        rf"|titles? (?:for|of|generator for) (?:\w+ ){{0,3}}{_TALK}s?\b[^.\n]{{0,40}}\b(?:only|words|characters)\b",
        imperative=False,
    ),
    rule("title", "title:", _MAKES, rf"{_MAKE} {_FILL}title\b[^\n]*(?:\n[^\n]*)?\btitle:$"),
    rule(
        "tags",
        "tags|label|topic|categories & conversation|chat|dialog|discussion|thread|exchange|interaction|session|messages|text|chunk|document|passage",
        _MAKES,
        rf"(?:{_MAKE}|tag) {_FILL}(?:tags?|labels?|topics?|categories)\b[^.\n]{{0,100}}\b(?:{_TALK}|chat history|chunk|text content|(?:this|the|following|given) (?:document|passage))\b",
    ),
    rule(
        "follow_ups",
        "follow|related|next|suggested|possible|likely|relevant|further|questions|what|things & user|customer|human|they|conversation|chat|dialog|discussion|thread|exchange|interaction|session|messages|based|ask",
        f"{_MAKES}",
        rf"{_MAKE} {_FILL}(?:follow-?ups?|follow up|related|next|suggested|possible|likely|relevant|further) (?:[\w'-]+ ){{0,4}}?(?:questions?|prompts?|queries|suggestions)\b"
        rf"|(?:{_MAKE}|guess) [^.\n]{{0,60}}\b(?:questions?|what|things) (?:that )?(?:the |a |an )?(?:user|customer|human|they|he|she)[^.\n]{{0,24}}\b(?:ask|say|want|type)\w*\b",
        rf"\b(?:user|customer|human|they) (?:might|may|could|would|can|will|is|are|wants?)\b|\bask next\b|\b{_TALK}\b|\bbased on\b",
        roots="follow|related q|next|suggest|likely|relevant q|possible q|further q| ask",
    ),
    rule(
        "summary",
        "summary|condense|compress|recap|memory|distil & conversation|chat|dialog|discussion|thread|exchange|interaction|session|messages|history|turns|above",
        f"{_MAKES} summ cond comp dist upda exte main keep",
        rf"(?:summari[sz]\w+|condens\w+|compress\w*|distill?\w*) (?:[\w'-]+ ){{0,6}}?(?:{_TALK}|history|turns)\b"
        rf"|(?:{_MAKE}|updat\w+|extend\w*|maintain\w*|keep\w*) {_FILL}(?:summary|summaries|recap|memory)\b[^.\n]{{0,100}}\b(?:{_TALK}|history|turns)\b",
        r"\bconversation|\bchat|\bhistory|\bdialog|\bassistant\b|\bai\b|\babove\b|\bmemory\b|\bnew messages\b|\bso far\b|\bturns\b",
        roots="summar|condens|compress|recap|memory|distil",
    ),
    rule(
        "rerank",
        "relevant & document|passage|context|chunk|snippet|answer|text|article|result|paragraph|source|node|candidate",
        "rera re-r reor re-o rank orde sort",
        rf"(?:re-?rank|re-?order|rank|order|sort)(?:s|ing)? [^.\n]{{0,100}}\b{_TOLD}\b[^.]{{0,140}}\brelevan\w+",
    ),
    rule(
        "rerank",
        "relevant & id|ids|ids.|ids,|indices|index|number|identifier",
        "sele choo pick iden retu dete",
        rf"(?:select|choos|pick|identif|return|determin)\w* [^.\n]{{0,60}}\brelevant (?:\w+ ){{0,2}}{_TOLD}\b[^.]{{0,160}}\b(?:ids?|indices|index|indexes|numbers?|identifiers?)\b",
    ),
    rule(
        "grading",
        "yes|'yes|\"yes|(yes|'true|\"true|true|binary|score|scale|rating|grade|word|relevant|number|0-|1-|integer & relevant|irrelevant|grounded|support|faithful|sufficient|useful|helpful|hallucination|address|resolve|contradict|entail|consistent|related|correct|complete|factual|accurate|enough|pertinent|contain",
        "asse grad eval dete judg deci chec veri rate rati scor clas is are whet if does",
        rf"(?:assess\w*|grad\w+|evaluat\w*|determin\w+|judg\w+|decid\w+|check\w*|verif\w+|rat(?:e|es|ing)|scor\w+|classif\w+|is|are|whether|if|does)\b[^.\n?]{{0,100}}\b{_TOLD}\b[^.\n?]{{0,90}}\b(?:{_JUDGED}|contains? (?:\w+ ){{0,3}}(?:information|answer|keywords?))\b"
        rf"|(?:assess\w*|grad\w+|evaluat\w*|determin\w+|judg\w+|check\w*|rat(?:e|es|ing)|scor\w+) [^.\n?]{{0,40}}\b{_JUDGED} [^.\n?]{{0,60}}\b{_TOLD}\b",
        r"\byes ?(?:or|/|and|,) ?no\b|['\"]yes['\"]|\btrue ?(?:or|/|\|) ?false\b|['\"]true['\"]|\bbinary\b|\brelevant ?(?:or|/) ?(?:not|irrelevant)|\b(?:one|single) word\b|\bpass or fail\b"
        r"|\b(?:score|rating|grade|scale|number|value|integer|float|rate (?:the|this|each|it|its|how|on|from))\b[^\n]{0,60}\b(?:\d|zero|one)\b|\b[01] ?(?:to|-|–|and|or) ?\d|\bscore (?:only|alone)\b|\bonly (?:the|a) (?:score|number|grade|label)\b",
        roots="yes|true|binary|score|rate |rating|grade|scale|relevant or|one word|single word|pass or|0 or 1|1 to|0 to|0-|1-",
        imperative=False,
    ),
    rule(
        "extraction",
        "entity|triple|knowledge|relation|proposition|claims|facts|memory|statements|named|nodes",
        "extr iden reco list find capt retr gene crea buil cons prod deco brea spli stor",
        r"(?:extract|identif|recogni|list|find|captur|retriev)\w* [^.\n]{0,100}\b(?:entit(?:y|ies)|nodes?)\b[^\n]{0,200}\b(?:relation\w*|edges|types?)\b"
        r"|(?:extract|identif|generat|creat|build|construct|produc)\w* [^.\n]{0,80}\b(?:knowledge|semantic|rdf|entity|subject|relation)[^.\n]{0,40}\b(?:graphs?|triples?|triplets?)\b"
        r"|(?:extract|identif|recogni)\w* [^.\n]{0,60}\b(?:named entit(?:y|ies)|entit(?:y|ies)|triples?|triplets?)\b"
        rf"|(?:extract|decompos|break|split|list|identif|stor|record)\w* [^.\n]{{0,100}}\b(?:facts|memories|propositions|claims|atomic statements)\b[^.\n]{{0,100}}\b(?:{_TALK}|user|answer|response|statements?|text|content|from|input)\b"
        r"|decompos\w+ [^.\n]{0,80}\bpropositions\b",
        roots="extract|identif|recogni|triple|knowledge graph|decompos|proposition|claims|memories|facts",
        imperative=False,
    ),
    rule(
        "extraction",
        "entities",
        "enti",
        r"entities (?:and relationships )?were missed in the (?:last|previous) extraction",
        imperative=False,
    ),
    rule(
        "extraction",
        "relevant|pertinent|needed & question|query|message|input|request|prompt & verbatim|as-|as|exact|word|no_output|unchanged|do|compress",
        "extr quot copy retu sele keep filt list",
        rf"(?:extract|quote|copy|return|select|keep|filter|list)\w* [^.\n]{{0,80}}\b(?:parts?|sentences?|spans?|portions?|text|quotes?|passages?|content|information)\b[^.\n]{{0,80}}\b(?:relevant|pertinent|needed) (?:to|for) [^.\n]{{0,30}}\b{_SAID}\b",
        r"\bverbatim\b|\bas[- ]is\b|\bexact(?:ly)?\b|\bword for word\b|\bno_output\b|\bunchanged\b|\bdo not (?:edit|answer|change|modify)\b|\bcompress\w*",
        imperative=False,
    ),
    rule(
        "routing",
        "question|query|queries|intent|message|input|request|prompt|utterance|language & only|one|json|yes|'yes|\"yes|single|following|class|category|intent|nothing|binary|name|vector|web|appropriate",
        "clas cate dete iden deci rout reco sele choo pick anal",
        rf"(?:classif\w+|categori[sz]\w+|determin\w+|identif\w+|detect\w*|decid\w+|rout(?:e|es|ing)|recogni[sz]\w+|select\w*|choos\w+|pick\w*|analy[sz]e) [^.\n]{{0,60}}\b(?:intents?|intention|{_SAID})\b[^.]{{0,160}}\b(?:categor\w+|class(?:es)?|intents?|labels?|type|data ?sources?|vector ?store|web ?search|routes?|one of|tool|agents?|department|index|handler|expert|node|skill|collections?|database)\b"
        rf"|rout(?:e|es|ing) (?:(?:a|an|the|each|incoming|user|user's|users|customer) )*{_SAID}\b"
        rf"|(?:detect|identify|determine)\w* the language of [^.\n]{{0,40}}\b(?:{_SAID}|text)\b",
        _ROUTING_NEEDS,
        imperative=False,
        roots="classif|categor|intent|rout|detect|decid|determin|identif|recogni|one of|analyze|analyse",
    ),
    rule(
        "routing",
        "need|require|necessary",
        "whet if",
        r"(?:whether|if) [^.\n]{0,80}\b(?:needs?|requires?|needed|required|necessary)\b[^.\n]{0,60}\b(?:search\w*|retriev\w+|look-?up|external|documents|context|knowledge base)\b"
        r"|(?:whether|if) [^.\n]{0,60}\b(?:search\w*|retriev\w+|look-?up|context|documents|external \w+)\b[^.\n]{0,40}\b(?:needed|required|necessary)\b",
        r"\byes ?(?:or|/) ?no\b|['\"]yes['\"]|\btrue ?(?:or|/) ?false\b|['\"]true['\"]|\bjson\b|\bbinary\b|\bone word\b|\bsingle word\b",
        imperative=False,
    ),
    rule(
        "routing",
        "intent|query|question",
        "inte quer ques",
        r"(?:intent|query|question) (?:classif\w+|detect(?:or|ion)|recogni\w+|rout(?:er|ing))\b",
        _ROUTING_NEEDS,
        imperative=False,
        roots="intent|classif|router|routing",
    ),
    rule(
        "routing",
        "classify|categorize|categorise",
        "give",
        rf"given [^.\n]{{0,40}}\b{_SAID}\b[^.\n]{{0,24}}\b(?:classify|categori[sz]e) (?:it|them)\b[^.]{{0,80}}\b(?:categor\w+|class(?:es)?|intents?|types?|labels?)\b",
        _ROUTING_NEEDS,
        imperative=False,
    ),
    rule(
        "routing",
        "search|retrieve|lookup",
        "whet if",
        r"(?:whether|if) [^.\n]{0,40}\b(?:search|retrieval|look-?up)\b[^.\n]{0,24}\b(?:helpful|useful|beneficial)\b",
        r"\byes\b|\btrue\b|\bfalse\b|\bjson\b|\bbinary\b|\b(?:one|single) word\b",
        imperative=False,
    ),
    rule(
        "title",
        "conversation|chat",
        "conv chat",
        r"(?:conversation|chat) (?:titler|titling|title generator|namer)\b",
        imperative=False,
        roots="titl|namer",
    ),
    rule(
        "title",
        "title|titles",
        _MAKES,
        rf"{_MAKE} {_FILL}titles?\b",
        r"\b(?:started|starts|begins|began|opened|opens) (?:a |the )?(?:new )?(?:chat|conversation)\b|\bfirst (?:user )?(?:message|question|prompt|query) of\b",
    ),
)
