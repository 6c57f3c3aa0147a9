"""Signs that a program wrote an instruction, and that it wants an answer; over tidied text in small letters."""

from __future__ import annotations

import re

from gateway.capture.instructions.directives import sentence

ANSWERS = re.compile(
    sentence(
        r"(?:^|[.!?;:,*-] ?|\b(?:then|and|finally|must|should|always|please|will|is to|afterwards|you|also|who) )"
        r"(?:(?:only|directly|always|politely|correctly|accurately|briefly|helpfully) )?"
        r"(?:answers?|respond(?:s|ing)? to|reply to) (?:the|this|these|all|any|their|his|her|user|users|questions?|it|customer\w*)\b"
        r"|\b(?:use|using) [^.\n]{0,160}\bto (?:answer|respond|reply)\b"
        r"|\b(?:answer|respond|reply)(?:s|ing)? (?:(?:only|strictly|solely|exclusively) )*(?:with|from|using|based on|according to) "
        r"(?:the |these |this |your )?(?:facts|sources?|documents?|information|provided|passages|knowledge|following|given|retrieved|search results)"
        r"|\bquestion[- ]answering\b|\banswering (?:\w+ ){0,3}questions\b|(?<!information )(?<!needed )(?<!required )\bto answer the user\b"
        r"|\b(?:then|and|before you|finally) (?:\w+ )?(?:answer|respond|reply|help|assist)\b"
        r"(?! (?:with|only|in|by|yes|just|using only|either|as|['\"`]))"
        r"|\bhelp(?:s|ing|ful)? (?:the |our |their )?(?:users?|customers?|employees|readers|people|visitors|clients|students|patients)\b"
        r"|\b(?:reply|respond|answer)s? in (?:that|the same|the user|the customer|their|his|her)\b"
        r"|(?:^|[.!?;:,] ?|\b(?:then|and|please|otherwise|must|should) )(?:give|provide|write|produce|compose|formulate|generate) "
        r"(?:the|an?)(?: [\w-]+,?){0,4} (?<!hypothetical )(?<!possible )(?<!plausible )(?<!json )(?:answer|response|reply)\b"
        r"|\b(?:and|then) (?:explain|advise|recommend|tell|offer|solve|(?:give|offer) (?:\w+ ){0,2}(?:advice|recommendations?|feedback))\b"
        r"|\b(?:and|then) write (?:an? |the )(?:\w+ ){0,3}(?:description|article|post|email|letter|report|essay|story|text|review|plan)\b"
        r"|\b(?:perform|run|execute|call|use) (?:\w+ ){0,3}(?:search(?:es)?|tools?)\b|\bfetch the\b"
        r"|\bgive the (?:user|customer)\b"
        r"|\b(?:cite|citing|citations?)\b|\b(?:on request|when asked|if asked|as requested)\b"
        r"|\b(?:when|if|whenever) (?:the |a )?(?:user|customer|they|he|she|someone)(?: \w+){0,2} (?:asks?|wants?|requests?) (?:for|you|to)\b"
        r"|\b(?:beantworte(?!t)|antworte (?:auf|dem|der|den|nur (?:mit (?:hilfe|den|dem)|anhand)|anhand)|beantwortest|und (?:dann )?antworte\b|hilf(?:st)? )"
        r"|\br[ée]pond(?:s|ez|ras)? (?:à|aux|au|uniquement à partir)\b|\baid(?:e|es|ez) (?:les|le|l')"
        r"|\b(?:responde|contesta|respóndele)\b (?:a |al |la |las |el |preguntas|con base|basándote)|\bayuda(?:s)? a (?:los|las)"
        r"|\brispondi (?:alle?|al|ai|in base)\b|\brispondere alle domande\b"
        r"|\bresponda (?:à|às|a|ao|com base|as) "
    )
    + r"|(?<!不要)(?<!无需)(?<!不用)(?<!请勿)(?<!不得)(?<!能否)(?<!可以)(?<!能够)(?<!来)(?<!不)回答(?:用户|客户|以下|这个|下面|上述|该|所有)?(?:的|提出的)?问题"
    r"|質問に(?:答え(?!ない|ず|る(?:ため|の))|回答し(?!ない)|お答え)|質問へ(?:の回答を|回答)"
    r"|질문에 (?:답(?!하지|변하지)|대답(?!하지))",
    re.MULTILINE,
)
ANSWER_LABEL = re.compile(
    r"(?:^|\n|\s)(?:helpful |final |your |detailed |short |concise )?(?:answer|response|reply|antwort|réponse|respuesta|risposta|"
    r"resposta|回答|答案|答え|답변|답)[ ]?[:：]\Z"
)
LABEL_TO_COMPLETE = re.compile(r"[^\n.!?。]{1,60}(?:[:：]|=>|->|→)\Z")
SPEAKS_AS_A_PERSON = re.compile(
    r"\b(?:i|i'm|i'd|i've|my|mine|us)\b|\bour (?:conversation|chat|discussion|talk|call|dialog)|\b(?:mein\w*|unser\w*|mon|ma|mes|mi|mis|meu|minha)\b|我的"
)

THIRD_PERSON = re.compile(
    r"\b(?:the|a|an|this|each|by|from|human|end)?[ -]?(?:user|customer|human|visitor|searcher)(?:'s|s')?\b"
    r"|\bbenutzer\w*|\bnutzer\w*|\bkunden?\b|\butilisateur\w*|\busuari[oa]s?\b|\butente\b|\bcliente\b|\butilizador\w*"
    r"|用户|客户|使用者|ユーザー?|利用者|사용자|고객"
)
RESTRICTED = re.compile(
    r"\bonly\b|\bnothing else\b|\bno (?:other|additional|extra|further|explanations?|preamble|commentary|quotes|markdown|punctuation)\b"
    r"|\bwithout (?:any |additional |further |extra )?(?:explan\w+|preamble|quotes|commentary|additional|punctuation|quotation)"
    r"|\bdo not (?:answer|explain|include|add|provide|write|use|respond|output)|\bdon't (?:answer|explain|include|add|output)"
    r"|\bone (?:per|on each|on every|a) line\b|\b(?:each )?on a new line\b|\bnew ?lines?\b|\bcomma[- ]separated\b|\bseparated by\b|\bjson\b|\bformat\b"
    r"|\bjust the\b|\bsingle (?:word|line)\b|\bone word\b|\bword or (?:less|fewer)\b|\bor (?:less|fewer)\b|\bat most\b|\bmaximum\b|\bno more than\b|\bno longer than\b|\bmax\b"
    r"|\byes ?(?:or|/) ?no\b|\bbinary\b|['\"]yes['\"]|\bunchanged\b|\bas[- ]is\b|\bsuccinct\b"
    r"|\bnur\b|\bausschließlich\b|\bohne (?:weitere|erklärung|zusätz|anführung)|\bkeine (?:erklärung|weiteren)|\bhöchstens\b|\bja oder nein\b|\bkommagetrennt|\bpro zeile\b"
    r"|\buniquement\b|\bseulement\b|\brien d'autre\b|\bsans (?:explication|autre|commentaire|guillemets)|\bmaximum\b|\boui ou non\b|\bpar ligne\b|\bséparés\b"
    r"|\bsolo\b|\bsólo\b|\búnicamente\b|\bsolamente\b|\bnada más\b|\bsin (?:explica|comilla|texto)|\bsí o no\b|\bpor línea\b|\bseparad[oa]s\b"
    r"|\bsoltanto\b|\bnient'altro\b|\bsenza (?:spiega|commenti|virgolette)|\bsì o no\b|\bper riga\b|\bseparat[ei] da\b"
    r"|\bapenas\b|\bsomente\b|\bsem (?:explica|aspas|coment)|\bsim ou não\b|\bpor linha\b"
    r"|只(?:输出|返回|回答|需|给出|返|要|能)|仅|不要(?:解释|回答|输出|添加|包含|其他)|无需(?:解释|回答)|不超过|以内|每行|逗号|不用回答|是或否|是”|json"
    r"|のみ|だけ|以内|一行|カンマ|改行|説明(?:は|を)?(?:不要|しない|加え)|回答しない|答えない|はい(?:か|または)いいえ"
    r"|만 (?:출력|반환|답|응답|작성)|이내|이하|한 줄|쉼표|설명 없이|답하지|대답하지|다른 (?:텍스트|설명)|예 또는 아니"
)
PURPOSE = re.compile(
    r"\bretriev\w*|\bvector\w*|\bembedd\w*|\bsemantic search\b|\bsearch (?:engine|index|system)\b|\bknowledge ?(?:base|graph)\b|\bdatabase\b|\bindex(?:ing|ed)?\b|\bsimilarity\b|\brag\b|\blook ?up\b|\bto search\b|\bfor (?:web )?search\b|\b(?:azure|elastic|bing|google|tavily|web) search\b"
    r"|\bvektor\w*|\bwissensdatenbank\b|\bsuchmaschine\b|\bsuchindex\b|\bbase (?:de connaissances|vectorielle)\b|\bmoteur de recherche\b|\brecherche documentaire\b"
    r"|\bbase de (?:datos|conocimiento|conhecimento|dados)\b|\bmotor de (?:búsqueda|busca)\b|\brecuperaci[óo]n\b|\bmotore di ricerca\b|\bdatabase vettoriale\b"
    r"|检索|向量|知识库|搜索引擎|索引|検索|ベクトル|ナレッジ|검색|벡터|지식"
)
PART = re.compile(
    r"\A(?:#+ ?\w+:?\s+|-+ ?\w+ ?-+\s+|<\w+>\s*)?(?:you (?:are|act|will|work|generate|write|rewrite)\b|you're\b|act as\b|as an? [^.\n]{0,40}\b(?:expert|assistant|model)\b)|\byour (?:task|job|goal|role|objective|purpose|mission) (?:is|:)|\btask ?:|\bgiven (?:a|an|the|some|this|these|all|this|two)\b|\bbelow is\b|\bhere (?:is|are)\b"
    r"|\A(?:du bist|sie sind|tu es|vous êtes|eres|sei un|você é|actúa como|agis)\b|\b(?:deine aufgabe|ta tâche|votre tâche|tu tarea|il tuo compito|sua tarefa)\b"
    r"|\A你是|\A您是|你的任务|任务[:：]|\Aあなたは|あなたの(?:タスク|仕事|役割)|\A당신은|\A너는|(?:당신의|너의) (?:작업|임무|역할)"
)
SLOT = re.compile(
    r"^(?:[#>*•\-\d.]{1,4} ?)?(?:\*{2})?(?P<name>(?:(?:user|original|input|initial|follow[- ]?up|current|new|last|latest|retrieved|search|given|previous|existing|the|here is the|this is the|human|source|chat|candidate|student|model|llm|proposed|reference) ?){0,3}"
    r"(?:questions?|query|queries|documents?|contexts?|passages?|texts?|conversations?|history|chat history|dialogue|input|message|messages|answers?|response|generation|chunks?|statement|claim|snippet|facts|content|transcript|lines of conversation|current summary|prompt|title|intents?|categories|routes?|summary|paragraph|article|options|choices|review|keywords|entities|list|data|examples?"
    r"|frage|dokument|kontext|gespräch|gesprächsverlauf|verlauf|text|nachricht|anfrage|textabschnitt|abschnitt|antwort|question|contexte|passage|historique|texte|requête|réponse|extrait|pregunta|documento|contexto|historial|consulta|texto|mensaje|fragmento|conversación|domanda|contesto|cronologia|testo|messaggio|pergunta|histórico|mensagem|trecho|conversa))(?:\*{2})? ?[:：](?:\*{2})?"
    r"|^<(?P<tag>[a-z][a-z_-]{2,30})>"
    r"|(?P<wide>(?:用户|原始|当前|最新|后续|输入|历史)?(?:问题|文档|文本块?|片段|上下文|对话|对话历史|聊天记录|查询|内容|回答|文章|消息|输入|原文|チャンク|質問|文書|ドキュメント|会話|会話履歴|テキスト|文脈|本文|질문|문서|대화|대화 기록|텍스트|문맥|청크|본문)) ?[:：]",
    re.MULTILINE,
)
TRANSCRIPT = re.compile(
    r"^[>*\- ]{0,4}\W{0,3}(?:user|human|customer|benutzer|nutzer|kunde|utilisateur|usuario|utente|usuário|用户|ユーザー|사용자)\W{0,3}[:：]",
    re.MULTILINE,
)

COMMAND = re.compile(
    sentence(
        r"\A(?:please )?(?:generate|create|write|formulate|produce|make|build|give|find|suggest)s?(?: me)?(?: an?| the| \d+| some| multiple| several)?"
        r"(?: \w+){0,2} search (?:quer(?:y|ies)|terms?|phrases?) (?:for|from|to|about|based on|related to|regarding)\b[^\n.?!:]{0,80}:"
        r"|\A(?:erstelle|erzeuge|formuliere|generiere|schreibe?)(?: mir)?(?: \w+){0,3} suchanfragen?\b[^\n.?!:]{0,80}:"
        r"|\A(?:génère|générez|crée|créez|formule|formulez|écris|rédige)(?: \w+){0,3} requêtes? (?:de recherche)?\b[^\n.?!:]{0,80}:"
        r"|\A(?:genera|crea|escribe|formula|gere|crie|escreva)(?: \w+){0,3} (?:consultas?|termos?|query|quer(?:y|ies)) (?:de|di) (?:búsqueda|busca|pesquisa|ricerca)\b[^\n.?!:]{0,80}:"
    )
    + r"|\A(?:请)?(?:为|给|根据|针对)?[^\n。:：]{0,30}生成[^\n。:：]{0,12}(?:搜索|检索)(?:查询|词|关键词|语句)[^\n。:：]{0,12}[:：]"
)
