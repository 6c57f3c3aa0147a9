"""Prompts in many layouts and languages, with the passages and the question each holds."""

from __future__ import annotations

from typing import NamedTuple


class Layout(NamedTuple):
    name: str
    prompt: str
    passages: list[str]
    question: str


A = "The lighthouse was lit for the first time in 1888. Its lamp burned oil."
B = "The keeper climbed the 203 steps twice a day. A winch brought up the oil."
C = "Since 1974 the light has worked without a keeper. A switch turns it on at dusk."
ASKED = "How many steps does the lighthouse have?"
DE = (
    "Der Leuchtturm brannte 1888 zum ersten Mal. Seine Lampe brauchte Öl.",
    "Der Wärter stieg zweimal am Tag die 203 Stufen hinauf. Das Öl kam mit der Winde.",
)
FR = (
    "Le phare a été allumé pour la première fois en 1888. Sa lampe brûlait de l'huile.",
    "Le gardien montait les 203 marches deux fois par jour. Un treuil montait l'huile.",
)
ES = (
    "El faro se encendió por primera vez en 1888. Su lámpara quemaba aceite.",
    "El farero subía los 203 escalones dos veces al día. Un torno subía el aceite.",
)
RU = (
    "Маяк впервые зажгли в 1888 году. Его лампа горела на масле.",
    "Смотритель дважды в день поднимался по 203 ступеням. Масло поднимали лебёдкой.",
)
ZH = ("灯塔于1888年首次点亮，灯里烧的是油。", "守塔人每天两次爬上203级台阶，油用绞车吊上去。")
JA = ("灯台は1888年に初めて点灯した。灯には油が使われていた。", "灯台守は一日に二度、203段の階段を上った。")

LAYOUTS = [
    Layout("numbers", f"Answer from the sources below.\n\nSources:\n[1] {A}\n[2] {B}\n[3] {C}\n\nQuestion: {ASKED}", [A, B, C], ASKED),
    Layout("labels", f"Use only the context to answer.\n\nContext:\n{A}\n\n{B}\n\nQuestion: {ASKED}\nAnswer:", [A, B], ASKED),
    Layout("tags", f"Answer the question from the documents.\n<documents>\n<document>{A}</document>\n<document>{B}</document>\n</documents>\n\n{ASKED}", [A, B], ASKED),
    Layout("question first", f"Question: {ASKED}\n\nPassages:\n1. {A}\n2. {B}\n\nAnswer from the passages only.", [A, B], ASKED),
    Layout("rules", f"Use these excerpts to answer the question.\n\nExcerpts:\n{A}\n---\n{B}\n---\n{C}\n\nQuestion: {ASKED}", [A, B, C], ASKED),
    Layout("bullets", f"Answer using the facts.\n\nFacts:\n- {A}\n- {B}\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("json", f'Answer from the search results.\n\nSearch results:\n[{{"text": "{A}", "source": "a.md"}}, {{"text": "{B}"}}]\n\nQuestion: {ASKED}', [A, B], ASKED),
    Layout("records", f"Answer from the sources.\n\nSources:\nTitle: Light\nContent: {A}\n\nTitle: Keeper\nContent: {B}\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("headings", f"# Task\nAnswer the question from the context.\n\n# Context\n{A}\n\n{B}\n\n# Question\n{ASKED}", [A, B], ASKED),
    Layout("documents with numbers", f"Answer from the documents.\n\nDocument 1:\n{A}\n\nDocument 2:\n{B}\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("pairs", f"Answer from the context.\n\n[DOC 1]\n{A}\n[END DOC 1]\n[DOC 2]\n{B}\n[END DOC 2]\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("question in a tag", f"<context>\n{A}\n\n{B}\n</context>\n\nAnswer from the context.\n\n<question>{ASKED}</question>", [A, B], ASKED),
    Layout("no label of the question", f"Use the following pieces of context to answer the question at the end.\n\n{A}\n\n{B}\n\nQuestion: {ASKED}\nHelpful answer:", [A, B], ASKED),
    Layout("orders behind", f"Context:\n{A}\n\n{B}\n\nAnswer the question from the context. If you don't know, say so.\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("special tokens", f"<|im_start|>system\nAnswer from the context.<|im_end|>\n<|im_start|>user\nContext:\n{A}\n\n{B}\n\nQuestion: {ASKED}<|im_end|>\n<|im_start|>assistant\n", [A, B], ASKED),
    Layout("German", f"Beantworte die Frage nur anhand des Kontexts.\n\nKontext:\n{DE[0]}\n\n{DE[1]}\n\nFrage: Wie viele Stufen hat er?\nAntwort:", list(DE), "Wie viele Stufen hat er?"),
    Layout("German numbers", f"Nutze die folgenden Auszüge, um die Frage zu beantworten.\n\nAuszüge:\n[1] {DE[0]}\n[2] {DE[1]}\n\nFrage: Wie viele Stufen hat er?", list(DE), "Wie viele Stufen hat er?"),
    Layout("French", f"Réponds à la question à partir des extraits suivants.\n\nExtraits :\n{FR[0]}\n\n{FR[1]}\n\nQuestion : Combien de marches ?", list(FR), "Combien de marches ?"),
    Layout("Spanish", f"Responde usando solo el contexto.\n\nContexto:\n{ES[0]}\n\n{ES[1]}\n\nPregunta: ¿Cuántos escalones tiene?\nRespuesta:", list(ES), "¿Cuántos escalones tiene?"),
    Layout("Russian", f"Ответь на вопрос, используя только контекст.\n\nКонтекст:\n{RU[0]}\n\n{RU[1]}\n\nВопрос: Сколько ступеней?", list(RU), "Сколько ступеней?"),
    Layout("Chinese", f"请根据以下参考资料回答问题。\n\n参考资料：\n[1] {ZH[0]}\n[2] {ZH[1]}\n\n问题：灯塔有多少级台阶？", list(ZH), "灯塔有多少级台阶？"),
    Layout("Chinese paragraphs", f"根据上下文回答问题，不知道就说不知道。\n\n上下文：\n{ZH[0]}\n\n{ZH[1]}\n\n问题：灯塔有多少级台阶？\n回答：", list(ZH), "灯塔有多少级台阶？"),
    Layout("Japanese", f"次のコンテキストに基づいて質問に答えてください。\n\nコンテキスト：\n{JA[0]}\n\n{JA[1]}\n\n質問：階段は何段ですか？", list(JA), "階段は何段ですか？"),
    Layout("file names", f"Answer from the files.\n\nSources:\nlight.md: {A}\nkeeper.md: {B}\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("objects", f"Answer from the context.\n\nContext: [Document(page_content='{A}'), Document(page_content='{B}')]\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("label of something", f"Réponds à partir des extraits.\n\nExtraits du guide :\n« {FR[0]} »\n« {FR[1]} »\n\nQuestion de l'administré : Combien de marches ?", list(FR), "Combien de marches ?"),
    Layout("label in the genitive", f"Отвечай только по выдержкам.\n\nВыдержки руководства:\n\n1. {RU[0]}\n2. {RU[1]}\n\nВопрос клиента: Сколько ступеней?", list(RU), "Сколько ступеней?"),
    Layout("fences one by one", f"Sources:\n```\n{A}\n```\n```\n{B}\n```\nQuestion: {ASKED}\nAnswer from the sources only.", [A, B], ASKED),
    Layout("fences of code", f"Retrieved snippets:\n\n`lamp.py` (lines 1-2)\n```\ndef lit(year):\n    return year >= 1888\n```\n\n`steps.sql` (lines 8-9)\n```\nSELECT count(*) FROM steps\nWHERE tower = 1;\n```\n\nAnswer from the snippets.\n\nQuestion: {ASKED}", ["def lit(year):\n    return year >= 1888", "SELECT count(*) FROM steps\nWHERE tower = 1;"], ASKED),
    Layout("table", f"Answer from the table of excerpts.\n\nExcerpts:\n\n| # | Source | Excerpt |\n|---|---|---|\n| 1 | a.md | {A} |\n| 2 | b.md | {B} |\n\nQuestion:\n{ASKED}", [A, B], ASKED),
    Layout("rows with bars", f"Answer from the search hits.\n\nSEARCH HITS\n#1 | score=0.9 | a.md | {A}\n#2 | score=0.8 | b.md | {B}\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("letters", f"Answer from the passages.\n\nPassages:\n\nPassage A: {A}\n\nPassage B: {B}\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("headers between rules", f"Answer on the basis of the files provided.\n\n==== a.txt ====\n{A}\n\n==== b.txt ====\n{B}\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("names of which some are files", f"Answer from the context.\n\nContext:\n\n[Handbook, tower.md]\n{A}\n\n[Handbook, kb 4711]\n{B}\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("bare ends", f"Answer from the excerpts.\n\n# Excerpts\n<<<DOC a.md>>>\n{A}\n<<<END>>>\n\n<<<DOC b.md>>>\n{B}\n\nIt is well kept.\n<<<END>>>\n\nQuestion: {ASKED}", [A, f"{B}\n\nIt is well kept."], ASKED),
    Layout("markdown within tags", f'Answer from the knowledge base.\n\n<kb>\n<chunk source="a.md">\n# The lamp\n\n{A}\n\n- oil\n- a wick\n</chunk>\n<chunk source="b.md">\n## The keeper\n\n{B}\n\nContext: it is a tower.\n</chunk>\n</kb>\n\nQuestion: {ASKED}', [f"# The lamp\n\n{A}\n\n- oil\n- a wick", f"## The keeper\n\n{B}\n\nContext: it is a tower."], ASKED),
    Layout("FAQ", f"Answer from the FAQ entries.\n\nFAQ entries:\n\nQ: When was it lit?\nA: In 1888.\n\nQ: What burned in it?\nA: Oil, at first.\n\nUser question: {ASKED}", ["Q: When was it lit?\nA: In 1888.", "Q: What burned in it?\nA: Oil, at first."], ASKED),
    Layout("one document with a rule", f"Answer from the page.\n\nPage content:\n\"\"\"\n{A}\n\n---\n\n{B}\n\"\"\"\n\nReader's question: {ASKED}", [f"{A}\n\n---\n\n{B}"], ASKED),
    Layout("conversation to go on with", f"The bot answers from the facts listed and nothing else.\n\nFacts:\n* {A}\n* {B}\n\nVisitor: Hello, are you there?\nKeeperBot: Yes! What would you like to know?\nVisitor: {ASKED}\nKeeperBot:", [A, B], ASKED),
    Layout("records with a date", f"请根据检索结果回答问题。\n\n检索结果：\n\n标题：第1条\n更新日期：2024-05-11\n内容：{ZH[0]}\n\n标题：第2条\n更新日期：2024-03-11\n内容：{ZH[1]}\n\n游客提问：有多少级台阶？", list(ZH), "有多少级台阶？"),
    Layout("sections", f"# Rules\n- Use only the retrieved articles.\n\n# Retrieved articles\n\n## The lamp\n{A}\n\n## The keeper\n{B}\n\n# Customer question\n{ASKED}\n\n# Reply\n", [A, B], ASKED),
    Layout("records of a key of their own", f"We have provided context information below.\n---------------------\ntower: north\n\n{A}\n\ntower: south\n\n{B}\n---------------------\n\nGiven this information and no prior knowledge, please answer: {ASKED}", [A, B], ASKED),
    Layout("clauses with numbers", f"Answer on the basis of the clauses supplied.\n\nRelevant clauses of the policy:\n\nClause 8.4 The lamp\n{A}\n\nClause 3.1 The keeper\n{B}\n\nQuestion: {ASKED}", [A, B], ASKED),
    Layout("fences with tildes", f"I found these files:\n\nFile: `a.md`\n~~~md\n{A}\n~~~\n\nFile: `b.md`\n~~~md\n{B}\n\n```bash\nlight --up\n```\n~~~\n\nBased on these files: {ASKED}", [A, f"{B}\n\n```bash\nlight --up\n```"], ASKED),
    Layout("an order behind the passages", f"Question: {ASKED}\n\nUse the following passages to answer the question above.\n\nPassage 1: {A}\nPassage 2: {B}\n\nGive a concise answer.", [A, B], ASKED),
    Layout("the user's message", f"Use the following context to answer the user's message.\n\nContext:\n[The lamp]\n{A}\n\n[The keeper]\n{B}\n\nUser's message: {ASKED}", [A, B], ASKED),
    Layout("a history before the passages", f"Answer the follow-up message from the retrieved context.\n\nChat history:\nUser: Hi, a question about the tower.\nAssistant: Go ahead!\n\nRetrieved context:\n1. {A}\n2. {B}\n\nFollow-up message: {ASKED}\nAnswer:", [A, B], ASKED),
    Layout("a label of one letter", f"Context: {A}\n\nQ: {ASKED}\nA:", [A], ASKED),
    Layout("code at the end of the last passage", f"Here are the documents that our search found:\n\nDocument: a.md\nLast updated: 2024-01-11\n\n{A}\n\n-----\n\nDocument: b.md\nLast updated: 2024-02-12\n\n{B}\n\n```bash\nlight --up\n```\n\n-----\n\nAnswer only from these documents.\n\nQuestion: {ASKED}", [A, f"{B}\n\n```bash\nlight --up\n```"], ASKED),
]  # fmt: skip
