"""The prompts that frameworks and apps build by default. The quoted words are theirs: they are what is recognised.

The first that matches decides, so a prompt with more fixed words stands before its relatives.
"""

from __future__ import annotations

from gaugeway.prompts.known_splitters import (
    anythingllm,
    by,
    docs,
    haystack,
    labelled,
    librechat,
    nodes,
    numbered,
    padded,
    paragraphs,
    ragflow,
    sources,
    with_sources,
)
from gaugeway.prompts.prompt_template import Template

_BLANK_LINE = paragraphs
_PADDED = padded
_21 = "-" * 21
_20 = "-" * 20
_16 = "-" * 16
_12 = "-" * 12
_RETRIEVED = "pieces of retrieved context to answer the question"
_LEARNED = "as your learned knowledge, inside <context></context> XML tags."
_REFINE = (
    f"with some more context below.\n{_12}\n{{contexts}}\n{_12}\n"
    "Given the new context, refine the original answer{any}"
)
_EXTRACTED = "Given the following extracted parts of a long document and a question, create a final answer"
_FEW_SHOT = "The president did not mention Michael Jackson."

LANGCHAIN = (
    Template(
        "langchain",
        "rlm/rag-prompt",
        "user",
        _RETRIEVED + "{any}\nQuestion: {question}\nContext: {contexts} \nAnswer:{end}",
        _BLANK_LINE,
    ),
    Template(
        "langchain",
        "rlm/rag-prompt",
        "user",
        _RETRIEVED + "{any}\nQuestion: {question}\nContext: {contexts}\nAnswer:{end}",
        _BLANK_LINE,
    ),
    Template(
        "langchain", "agentic-rag", "user", _RETRIEVED + "{any}\nQuestion: {question}\nContext: {contexts}", _BLANK_LINE
    ),
    Template("langchain", "stuff-documents", "system", _RETRIEVED + "{any}\n\n{contexts}", _BLANK_LINE),
    Template(
        "langchain",
        "retrieval-qa-chat",
        "system",
        "questions based solely on the context below{any}<context>\n{contexts}\n</context>",
        _BLANK_LINE,
    ),
    Template(
        "langchain",
        "retrieval-qa",
        "user",
        "Use the following pieces of context to answer the question at the end.{any}\n\n{contexts}"
        "\n\nQuestion: {question}\nHelpful Answer:{end}",
        labelled,
    ),
    Template(
        "langchain",
        "retrieval-qa",
        "system",
        f"Use the following pieces of context to answer the user's question.{{any}}\n{_16}\n{{contexts}}",
        labelled,
    ),
    Template(
        "langchain",
        "qa-with-sources",
        "user",
        _EXTRACTED + '{any} with references ("SOURCES").{any}' + _FEW_SHOT + "{any}QUESTION: {question}\n=========\n"
        "{contexts}\n=========\nFINAL ANSWER:{end}",
        with_sources,
    ),
    Template(
        "langchain",
        "map-reduce",
        "user",
        _EXTRACTED
        + "{any}"
        + _FEW_SHOT
        + "{any}QUESTION: {question}\n=========\n{contexts}\n=========\nFINAL ANSWER:{end}",
        _BLANK_LINE,
    ),
    Template("langchain", "map-reduce", "system", _EXTRACTED + "{any}\n" + "_" * 22 + "\n{contexts}", _BLANK_LINE),
    Template(
        "langchain",
        "refine",
        "user",
        "The original question is as follows: {question}\nWe have provided an existing answer, including sources{any}"
        + _REFINE,
        with_sources,
    ),
    Template(
        "langchain",
        "refine",
        "user",
        "The original question is as follows: {question}\nWe have provided an existing answer{any}" + _REFINE,
        _BLANK_LINE,
    ),
    Template(
        "langchain",
        "refine-first",
        "user",
        f"Context information is below. \n{_12}\n{{contexts}}\n{_12}\nGiven the context information{{any}}"
        "answer the question: {question}",
        _BLANK_LINE,
    ),
    Template(
        "langchain",
        "refine-first",
        "user",
        f"Context information is below. \n{_21}\n{{contexts}}\n{_21}\nGiven the context information{{any}}"
        "answer the question: {question}",
        with_sources,
    ),
    Template(
        "langchain",
        "refine-first",
        "system",
        f"Context information is below.\n{_12}\n{{contexts}}\n{_12}\nGiven the context information{{any}}",
        _BLANK_LINE,
    ),
    Template(
        "langchain", "two-step", "system", "Use the following context in your response:\n\n{contexts}", _BLANK_LINE
    ),
    Template(
        "langchain",
        "before-model",
        "user",
        "{question}\n\nUse the following context to answer the query:\n{contexts}",
        _BLANK_LINE,
    ),
    Template(
        "langchain",
        "based-on-context",
        "user",
        "Answer the question based only on the following context:\n\n{contexts}\n\n---\n\n"
        "Answer the question based on the above context: {question}",
        by("\n\n---\n\n"),
    ),
    Template(
        "langchain",
        "based-on-context",
        "user",
        "Answer the question based only on the following context:\n{contexts}\n\nQuestion: {question}",
        _PADDED,
    ),
)

LLAMAINDEX = (
    Template(
        "llamaindex",
        "text-qa",
        "user",
        f"Context information is below.\n{_21}\n{{contexts}}\n{_21}\n{{any}}\nQuery: {{question}}\nAnswer:{{end}}",
        nodes,
    ),
    Template(
        "llamaindex",
        "tree-summarize",
        "user",
        f"Context information from multiple sources is below.\n{_21}\n{{contexts}}\n{_21}\n{{any}}\n"
        "Query: {question}\nAnswer:{end}",
        nodes,
    ),
    Template(
        "llamaindex",
        "refine",
        "user",
        "The original query is as follows: {question}\nWe have provided an existing answer{any}" + _REFINE,
        nodes,
    ),
    Template(
        "llamaindex",
        "refine",
        "user",
        f"New Context:\n{_21}\n{{contexts}}\n{_21}\nQuery: {{question}}\nOriginal Answer: {{any}}\nNew Answer:{{end}}",
        nodes,
    ),
    Template(
        "llamaindex",
        "refine",
        "user",
        "when refining existing answers:{any}\nNew Context: {contexts}\nQuery: {question}\n"
        "Original Answer: {any}\nNew Answer:{end}",
        nodes,
    ),
    Template(
        "llamaindex",
        "context-chat",
        "system",
        f"Use the context information below to assist the user.\n{_20}\n{{contexts}}\n{_20}\n",
        nodes,
    ),
    Template(
        "llamaindex",
        "context-chat-refine",
        "system",
        f"refine the following existing answer using the provided context to assist the user.{{any}}\n{_20}\n"
        f"{{contexts}}\n{_20}\nExisting Answer:\n{{any}}",
        nodes,
    ),
    Template(
        "llamaindex",
        "condense-plus-context",
        "system",
        "Here are the relevant documents for the context:\n{contexts}\n\n  Instruction: Based on the above documents",
        nodes,
    ),
    Template(
        "llamaindex",
        "condense-plus-context-refine",
        "system",
        "Here are the relevant documents for the context:\n{contexts}\n\n  Existing Answer:\n{any}\n\n"
        "  Instruction: Refine the existing answer",
        nodes,
    ),
    Template(
        "llamaindex",
        "citation",
        "user",
        "Below are several numbered sources of information:\n------\n{contexts}\n------\n"
        "Query: {question}\nAnswer:{end}",
        numbered,
    ),
    Template(
        "llamaindex",
        "citation-refine",
        "user",
        "Below are several numbered sources of information.{any}\nBegin refining!\n------\n{contexts}\n------\n"
        "Query: {question}\nAnswer:{end}",
        numbered,
    ),
)

OTHERS = (
    Template(
        "haystack",
        "documents",
        "user",
        "Given these documents, answer the question.{any}Documents:{contexts}Question:{question}Answer:{end}",
        haystack,
    ),
    Template(
        "haystack",
        "context",
        "user",
        "Given the following information, answer the question.{any}Context:{contexts}Question:{question}Answer:{end}",
        haystack,
    ),
    Template(
        "open_webui",
        "citations",
        "user",
        "incorporating inline citations{any}\n<context>\n{contexts}\n</context>{any}"
        "<user_query>{question}</user_query>{any}",
        sources,
    ),
    Template(
        "open_webui",
        "citations",
        "user",
        "incorporating inline citations{any}\n<context>\n{contexts}\n</context>{question}",
        sources,
    ),
    Template(
        "open_webui",
        "citations",
        "system",
        "incorporating inline citations{any}\n<context>\n{contexts}\n</context>",
        sources,
    ),
    Template(
        "open_webui",
        "classic",
        "user",
        _LEARNED + "{any}<context>\n{contexts}\n</context>{any}answer the query.\nQuery: {question}",
        _PADDED,
    ),
    Template("dify", "chat", "system", _LEARNED + "{any}<context>\n{contexts}\n</context>", by("\n")),
    Template(
        "dify",
        "completion",
        "user",
        _LEARNED + "{any}<context>\n{contexts}\n</context>{any}\n\nHuman: {question}\n\nAssistant:{end}",
        by("\n"),
    ),
    Template(
        "ragflow",
        "knowledge-base",
        "system",
        "Here is the knowledge base:{contexts}The above is the knowledge base.",
        ragflow,
    ),
    Template("ragflow", "knowledge-base", "system", "以下是知识库\uff1a{contexts}以上是知识库", ragflow),
    Template("anythingllm", "contexts", "system", "Context:{any}[CONTEXT 0]:\n{contexts}", anythingllm),
    Template(
        "flowise",
        "conversational-retrieval",
        "system",
        f"answer the user's question{{any}}\n{_12}\n{{contexts}}\n{_12}\nREMEMBER: If there is no relevant information",
        docs,
    ),
    Template(
        "librechat",
        "semantic-search",
        "system",
        "retrieving the following context inside <context></context> XML tags.{any}<context>{contexts}</context>",
        librechat,
    ),
    Template(
        "librechat",
        "full-context",
        "system",
        " to the conversation:{contexts}Use the context as your learned knowledge to better answer the user.",
        librechat,
    ),
)

REFINE_IN_CHAT = (
    # The words of two others that name the question themselves: after them.
    Template(
        "langchain",
        "refine",
        "user",
        "We have the opportunity to refine the existing answer{any}" + _REFINE,
        _BLANK_LINE,
        "earlier",
    ),
)

TEMPLATES = (*LANGCHAIN, *LLAMAINDEX, *OTHERS, *REFINE_IN_CHAT)
