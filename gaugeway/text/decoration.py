"""Removes what stands around an answer's own words: reasoning, JSON, quote marks, citations, greetings and thanks."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_EXAMINED = 20_000
"""Characters; a longer text is left as it is."""
_REASONING_END = re.compile(r"</(?:think|thinking|thought|reasoning|reflection|analysis|scratchpad)>", re.IGNORECASE)
_FENCED = re.compile(r"```(?:json)?\s*(\{.*\})\s*```", re.IGNORECASE | re.DOTALL)
_ANSWER_NAMES = (
    *("answer", "final_answer", "response", "reply", "text", "content", "message", "output", "result"),
    *("antwort", "réponse", "reponse", "respuesta", "risposta", "resposta", "antwoord", "cevap", "yanıt", "ответ"),
    *("उत्तर", "إجابة", "الإجابة", "答案", "回答", "回复", "답변"),
)
_QUOTE_PAIRS = {
    '"': '"',
    "'": "'",
    "\u201c": "\u201d",
    "\u201e": "\u201c\u201d",
    "\u00ab": "\u00bb",
    "\u300c": "\u300d",
}
_CITATION = re.compile(
    r"\[[^\[\]\n]{0,30}\d[^\[\]\n]{0,20}\](?:\([^()\s]{0,200}\))?|\u3010[^\u3010\u3011\n]{0,40}\u3011|<sup>[^<>\n]{0,20}</sup>"
    r"|[\u00b9\u00b2\u00b3\u2070-\u2079]+|\[\^[^\[\]\n]{1,20}\]|\((?:source|quelle|fuente|fonte|bron|doc|document)s?:? [^()\n]{1,80}\)",
    re.IGNORECASE,
)
_CITATION_START = re.compile("[\\[\u3010<(\u00b9\u00b2\u00b3\u2070-\u2079]")
_SOURCES = re.compile(
    r"^[#*_>\-\s]*+(?=[bcdfkqrs\u0438\u0938\u0627来參参出출참])(?:sources?|references?|citations?|cited documents|documents? (?:used|consulted)|quellen?|quellenangaben?"
    r"|références?|fuentes?|referencias?|fonti|riferimenti|fontes?|referências?|bronnen|bron|kaynaklar?|источники?|स्रोत"
    r"|المصادر|来源|參考資料|参考资料|参考文献|出典|参照元|출처|참고 ?자료)[*_ \t]*[:\uff1a]?[*_ \t]*(?:(?<=[:\uff1a*_ ])[^\n]*)?$"
    r"(?:\n+[ \t]*(?:[-*\u2022\[]|\d{1,3}[.)\]])[^\n]*)*",
    re.IGNORECASE | re.MULTILINE,
)
_NAME = r"(?:[ \t]+[\w.'\u2019-]{1,30}){0,4}"
_GREETING = re.compile(
    rf"\u00a1?(?:hi|hello|hey|dear|greetings|good (?:morning|afternoon|evening)|hallo|guten (?:tag|morgen|abend)|liebe[rs]?"
    rf"|sehr geehrte[rs]?|moin|servus|bonjour|bonsoir|salut|ch(?:er|ère)|hola|buen(?:os|as) (?:días|tardes|noches)"
    rf"|estimad[oa]|ciao|salve|buon(?:giorno|asera)|gentile|olá|oi|bom dia|boa (?:tarde|noite)|prezad[oa]|beste|geachte"
    rf"|goed(?:e(?:morgen|middag|navond|dag)|endag)|dag|merhaba|selam|sayın|здравствуйте|привет|добрый день"
    rf"|уважаем(?:ый|ая)|नमस्ते|مرحبا|أهلا|السلام عليكم)(?!\w){_NAME}(?:,[ \t]*[\w.'\u2019-]{{1,30}})?[ \t]*(?:[,!.:\u060c\u0964\uff0c\uff01]|\n|[-\u2013\u2014] )\s*"
    r"|(?:您好|你好|こんにちは|안녕하세요)[^\n,.!\u3001\u3002\uff0c\uff01]{0,12}[,.!\u3001\u3002\uff0c\uff01\n]\s*",
    re.IGNORECASE,
)
_THANKS = re.compile(
    r"\u00a1?(?:(?:many )?thanks|thank you|(?:that(?:'|\u2019)?s |that is |what )?an? (?:great|good|excellent|interesting) question"
    r"|(?:great|good|excellent|interesting) question|vielen dank|danke|besten dank|gute frage|merci|bonne question"
    r"|(?:muchas )?gracias|buena pregunta|grazie|ottima domanda|(?:muito )?obrigad[oa]|boa pergunta|bedankt|dank (?:u|je)"
    r"|goede vraag|teşekkür(?:ler| ederim| ederiz)|(?:sorunuz|mesajınız) için teşekkür\w*|(?:большое )?спасибо|благодар\w+"
    r"|хороший вопрос|धन्यवाद|आपके [^\n.!\u0964]{1,30} के लिए धन्यवाद|شكرا|شكرًا|感谢|谢谢|多谢|ご質問(?:を)?(?:いただき)?、?ありがとう"
    r"|お問い合わせ(?:を)?(?:いただき)?、?ありがとう|ありがとうございます|질문(?:해 주셔서|에|을)? ?감사|문의(?:해 주셔서)? ?감사|감사합니다)"
    r"[^\n.!?,;:\u0964\u060c\u3002\uff01\uff0c]{0,80}(?:[.!?,\u0964\u060c\u3002\uff01\uff0c]|\n)\s*",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"[#*_ \t]*(?:(?:final |short )?answer|a|response|antwort|réponse|respuesta|risposta|resposta|antwoord|cevap|yanıt|ответ|उत्तर"
    r"|الإجابة|答案|回答|答|답변|답)[*_ \t]*[:\uff1a][*_ \t]*\n?",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"\n*(?<![^\s.!?\u3002])(?:(?:kind|best|warm) (?:regards|wishes)|regards|sincerely|yours (?:sincerely|faithfully)|best|cheers"
    r"|(?:mit )?(?:freundlichen|besten|vielen) grüßen|(?:viele|beste|freundliche|liebe) grüße|cordialement|bien à vous"
    r"|(?:un )?(?:cordial )?saludos?(?: cordiales)?|atentamente|cordiali saluti|saluti|atenciosamente|met vriendelijke groet(?:en)?"
    r"|saygılarımla|с уважением)(?!\w)[^\n.]{0,60}(?:\n[^\n]{0,60}){0,2}\Z",
    re.IGNORECASE,
)
_CLOSING_LINE, _CLOSING_WORDS = 60, 40
"""Characters after the words of a closing in its line, and in each of the two lines that may follow; of the words."""
_OPENINGS = (_GREETING, _THANKS, _LABEL)


def undecorated(text: str) -> str:
    r"""Return an answer without its decoration; "" where nothing else is left.

    Removed are a block of reasoning, the JSON object around an answer field, quote marks around everything, citations,
    lists of sources, a label ("Answer:"), and greetings, thanks and regards.

    >>> undecorated("<think>Nothing here.</think>Hi Anna, I don't know. [1][2]\n\nSources: a.pdf, b.md")
    "I don't know."
    >>> undecorated('{"answer": "> No idea.", "sources": []}'), undecorated('{"status": "unknown"}')
    ('No idea.', '{"status": "unknown"}')
    """
    if len(text) > _EXAMINED:
        return text
    text = _inner(text)
    if "[" in text or "(" in text or "<" in text or (not text.isascii() and _CITATION_START.search(text) is not None):
        text = _CITATION.sub(" ", text)
    text = _without_sources(text).strip()
    text = _unquoted(_without_closing(text).strip())
    for _ in range(3):
        before = text
        for opening in _OPENINGS:
            if (found := opening.match(text)) is not None:
                text = text[found.end() :].lstrip()
        if text == before:
            break
    return text


def _inner(text: str) -> str:
    """Return the answer behind a block of reasoning, and in a JSON object."""
    if "</" in text:
        text = text[max((end.end() for end in _REASONING_END.finditer(text)), default=0) :]
    text = text.strip()
    if text.startswith("```") and (fenced := _FENCED.fullmatch(text)) is not None:
        text = fenced[1]
    return _answer_field(text) or text if text.startswith("{") and text.endswith("}") else text


def _without_sources(text: str) -> str:
    """Return a text without its lists of sources: they begin a line, so no other place is tried."""
    kept, done, at = [], 0, 0
    while at >= 0:
        if (found := _SOURCES.match(text, at)) is not None:
            kept.append(text[done:at])
            done = found.end()
        newline = text.find("\n", max(at, done))
        at = newline + 1 if newline >= 0 else -1
    return "".join([*kept, text[done:]]) if done else text


def _without_closing(text: str) -> str:
    """Return a text without the regards at its end, searched for in its last three lines.

    Behind the words there is no full stop in their line, and no long line: what ends with a sentence is not searched.
    """
    end, begin = len(text), 0
    for _ in range(3):
        line = text.rfind("\n", 0, end) + 1
        begin = max(line, text.rfind(".", line, end) + 1, end - _CLOSING_LINE - _CLOSING_WORDS)
        if line == 0 or end - line > _CLOSING_LINE:
            break
        end = line - 1
    found = _CLOSING.search(text, begin)
    return text if found is None else text[: found.start()]


def _answer_field(text: str) -> str | None:
    """Return the text of the answer field of a JSON object; None without one."""
    try:
        decoded: Any = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(decoded, dict):
        return None
    fields = {name.lower(): value for name, value in decoded.items()}
    return next((fields[name].strip() for name in _ANSWER_NAMES if isinstance(fields.get(name), str)), None)


def _unquoted(text: str) -> str:
    """Return a text without the quote marks around all of it, or in front of each line."""
    if text.startswith(">"):
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        if all(line.startswith(">") for line in lines):
            text = "\n".join(line.lstrip("> ") for line in lines)
    text = text.strip().strip("*_").strip()
    closing = _QUOTE_PAIRS.get(text[:1], "")
    inside = text[1:-1]
    if (
        closing
        and inside
        and text[-1] in closing
        and not any(mark in inside for mark in (text[0], *closing) if mark != "'")
    ):
        return inside.strip()
    return text
