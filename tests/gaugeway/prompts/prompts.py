"""How frameworks and apps put passages into a prompt: their fixed words, our own ones around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """One way to build a prompt: `marker` is what the extractor should say, `joint` what a passage must not contain."""

    marker: str
    build: Callable[[str, list[str]], list[dict[str, str]]]
    joint: str | tuple[str, ...] = "\n\n"
    strips: bool = False

    @property
    def joints(self) -> tuple[str, ...]:
        return (self.joint,) if isinstance(self.joint, str) else self.joint

    def carries(self, passages: list[str]) -> bool:
        """Say whether these passages can be told apart again: none contains, or with its neighbour makes, a joint."""
        for joint in self.joints:
            if joint.join(passages).split(joint) != passages:
                return False
        return all(passage.strip() == passage for passage in passages) if self.strips else True


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def system(text: str, question: str, *earlier: str) -> list[dict[str, str]]:
    turns = [{"role": "user" if index % 2 == 0 else "assistant", "content": turn} for index, turn in enumerate(earlier)]
    return [{"role": "system", "content": text}, *turns, {"role": "user", "content": question}]


def blank_lines(passages: list[str]) -> str:
    return "\n\n".join(passages)


def rule(length: int) -> str:
    return "-" * length


def rag_prompt(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        "Use the following pieces of retrieved context to answer the question. Say so when you do not know.\n"
        f"Question: {question} \nContext: {blank_lines(passages)} \nAnswer:"
    )


def rag_prompt_trimmed(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        "Use these pieces of retrieved context to answer the question, briefly.\n"
        f"Question: {question}\nContext: {blank_lines(passages)}\nAnswer:"
    )


def agentic(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        "Use the following pieces of retrieved context to answer the question. Be brief.\n"
        f"Question: {question} \nContext: {blank_lines(passages)}"
    )


def stuff_documents(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(
        f"Use the following pieces of retrieved context to answer the question. Be brief.\n\n{blank_lines(passages)}",
        question,
    )


def retrieval_qa_chat(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(
        "Answer any use questions based solely on the context below:\n\n"
        f"<context>\n{blank_lines(passages)}\n</context>",
        question,
        "Hi",
        "Hello!",
    )


def retrieval_qa(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        "Use the following pieces of context to answer the question at the end. Do not guess.\n\n"
        f"{blank_lines(passages)}\n\nQuestion: {question}\nHelpful Answer:"
    )


def retrieval_qa_system(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(
        "Use the following pieces of context to answer the user's question.\nDo not guess.\n"
        f"{rule(16)}\n{blank_lines(passages)}",
        question,
    )


FEW_SHOT = (
    "Given the following extracted parts of a long document and a question, create a final answer{how}.\n\n"
    "QUESTION: An example?\n=========\nContent: An example.\n=========\nFINAL ANSWER: "
    "The president did not mention Michael Jackson.\n\n"
)


def qa_with_sources(question: str, passages: list[str]) -> list[dict[str, str]]:
    content = "\n\n".join(f"Content: {passage}\nSource: doc-{index}" for index, passage in enumerate(passages))
    head = FEW_SHOT.format(how=' with references ("SOURCES")')
    return user(f"{head}QUESTION: {question}\n=========\n{content}\n=========\nFINAL ANSWER:")


def map_reduce(question: str, passages: list[str]) -> list[dict[str, str]]:
    head = FEW_SHOT.format(how="")
    return user(f"{head}QUESTION: {question}\n=========\n{blank_lines(passages)}\n=========\nFINAL ANSWER:")


def map_reduce_system(question: str, passages: list[str]) -> list[dict[str, str]]:
    head = "Given the following extracted parts of a long document and a question, create a final answer.\n"
    return system(f"{head}{'_' * 22}\n{blank_lines(passages)}", question)


def refine_block(passages: list[str]) -> str:
    return (
        "We have the opportunity to refine the existing answer (only if needed) with some more context below.\n"
        f"{rule(12)}\n{blank_lines(passages)}\n{rule(12)}\nGiven the new context, refine the original answer."
    )


def refine(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        f"The original question is as follows: {question}\nWe have provided an existing answer: Perhaps.\n"
        + refine_block(passages)
    )


def refine_sources(question: str, passages: list[str]) -> list[dict[str, str]]:
    content = [f"Content: {passage}\nSource: doc-{index}" for index, passage in enumerate(passages)]
    return user(
        f"The original question is as follows: {question}\n"
        "We have provided an existing answer, including sources: No.\n" + refine_block(content)
    )


def refine_chat(question: str, passages: list[str]) -> list[dict[str, str]]:
    return [*user(question), {"role": "assistant", "content": "Perhaps."}, *user(refine_block(passages))]


def refine_first(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        f"Context information is below. \n{rule(12)}\n{blank_lines(passages)}\n{rule(12)}\n"
        f"Given the context information and nothing else, answer the question: {question}\n"
    )


def refine_first_sources(question: str, passages: list[str]) -> list[dict[str, str]]:
    content = "\n\n".join(f"Content: {passage}\nSource: doc-{index}" for index, passage in enumerate(passages))
    return user(
        f"Context information is below. \n{rule(21)}\n{content}\n{rule(21)}\n"
        f"Given the context information and nothing else, answer the question: {question}\n"
    )


def refine_first_system(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(
        f"Context information is below.\n{rule(12)}\n{blank_lines(passages)}\n{rule(12)}\n"
        "Given the context information and nothing else, answer any questions",
        question,
    )


def two_step(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(f"Be kind. Use the following context in your response:\n\n{blank_lines(passages)}", question)


def before_model(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(f"{question}\n\nUse the following context to answer the query:\n{blank_lines(passages)}")


def based_on_context(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        f"Answer the question based only on the following context:\n{blank_lines(passages)}\n\nQuestion: {question}\n"
    )


def based_on_context_ruled(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        "Answer the question based only on the following context:\n\n"
        + "\n\n---\n\n".join(passages)
        + f"\n\n---\n\nAnswer the question based on the above context: {question}"
    )


def text_qa(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        f"Context information is below.\n{rule(21)}\n{blank_lines(passages)}\n{rule(21)}\n"
        f"Given the context and nothing else, answer the query.\nQuery: {question}\nAnswer: "
    )


def tree_summarize(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        f"Context information from multiple sources is below.\n{rule(21)}\n{blank_lines(passages)}\n{rule(21)}\n"
        f"Given these and nothing else, answer the query.\nQuery: {question}\nAnswer: "
    )


def llamaindex_refine(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        f"The original query is as follows: {question}\nWe have provided an existing answer: Perhaps.\n"
        + refine_block(passages)
        + "\nRefined Answer: "
    )


def llamaindex_refine_chat(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        "There are two modes when refining existing answers:\nrewrite or repeat.\n"
        f"New Context: {blank_lines(passages)}\nQuery: {question}\nOriginal Answer: Perhaps.\nNew Answer: "
    )


def llamaindex_refine_rich(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        f"New Context:\n{rule(21)}\n{blank_lines(passages)}\n\n{rule(21)}\n"
        f"Query: {question}\nOriginal Answer: Perhaps.\nNew Answer:"
    )


def context_chat(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(
        f"Use the context information below to assist the user.\n{rule(20)}\n{blank_lines(passages)}\n{rule(20)}\n"
        "You are the desk of a library.",
        question,
        "Hi",
        "Hello!",
    )


def context_chat_refine(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(
        "Now refine the following existing answer using the provided context to assist the user.\n"
        f"\n{rule(20)}\n{blank_lines(passages)}\n{rule(20)}\nExisting Answer:\nPerhaps.\n{rule(20)}\n",
        question,
    )


def condense_plus_context(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(
        f"\n  Here are the relevant documents for the context:\n\n  {blank_lines(passages)}\n\n"
        "  Instruction: Based on the above documents, answer in detail.\n  ",
        question,
    )


def condense_plus_context_refine(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(
        f"\n  Here are the relevant documents for the context:\n\n  {blank_lines(passages)}\n\n"
        "  Existing Answer:\n  Perhaps.\n\n  Instruction: Refine the existing answer if that helps.\n  ",
        question,
    )


def numbered(passages: list[str]) -> str:
    return "\n\n".join(f"Source {index}:\n{passage}" for index, passage in enumerate(passages, 1))


def citation(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        "Cite. For example:\nSource 1:\nAn example.\nQuery: An example?\nAnswer: An example [1].\n"
        f"Now you. Below are several numbered sources of information:\n------\n{numbered(passages)}\n------\n"
        f"Query: {question}\nAnswer: "
    )


def citation_refine(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        "Cite. For example:\nSource 1:\nAn example.\nQuery: An example?\nAnswer: An example [1].\n"
        "We have provided an existing answer: Perhaps. Below are several numbered sources of information. Use them.\n"
        f"Begin refining!\n------\n{numbered(passages)}\n------\nQuery: {question}\nAnswer: "
    )


def haystack(question: str, passages: list[str]) -> list[dict[str, str]]:
    loop = "".join(f"\n            {passage}\n        " for passage in passages)
    return user(
        "\n        Given these documents, answer the question.\n        Documents:\n        "
        f"{loop}\n\n        Question: {question}\n        Answer:\n        "
    )


def haystack_named(question: str, passages: list[str]) -> list[dict[str, str]]:
    loop = "".join(
        f"\n    Document {index}:\n    Document name: notes\n    {passage}\n"
        for index, passage in enumerate(passages, 1)
    )
    return user(f"Given these documents, answer the question.\nDocuments:\n{loop}\n\nQuestion: {question}\nAnswer:\n")


def haystack_context(question: str, passages: list[str]) -> list[dict[str, str]]:
    loop = "".join(f"\n    {passage}\n" for passage in passages)
    return user(
        f"Given the following information, answer the question.\n\nContext:\n{loop}\n\nQuestion: {question}\nAnswer:"
    )


def sources(passages: list[str]) -> str:
    return "\n".join(
        f'<source id="{index}" name="notes {index}.md">{passage}</source>' for index, passage in enumerate(passages, 1)
    )


OPEN_WEBUI = (
    "### Task:\nAnswer from the provided context, incorporating inline citations in the format [id] when a "
    'source tag has an id (e.g., <source id="1">).\n\n### Output:\nBe clear.\n\n'
)


def open_webui(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(f"{OPEN_WEBUI}<context>\n{sources(passages)}\n</context>\n\n{question}")


def open_webui_query(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(f"{OPEN_WEBUI}<context>\n{sources(passages)}\n</context>\n\n<user_query>\n{question}\n</user_query>\n")


def open_webui_system(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(f"Be kind.\n{OPEN_WEBUI}<context>\n{sources(passages)}\n</context>\n", question)


LEARNED = "Use the following context as your learned knowledge, inside <context></context> XML tags."


def open_webui_classic(question: str, passages: list[str]) -> list[dict[str, str]]:
    return user(
        f"{LEARNED}\n<context>\n    {blank_lines(passages)}\n</context>\n\nIf you do not know, say so.\n\n"
        f"Given the context information, answer the query.\nQuery: {question}"
    )


def dify(question: str, passages: list[str]) -> list[dict[str, str]]:
    lines = "\n".join(passages)
    return system(f"{LEARNED}\n\n<context>\n{lines}\n</context>\n\nWhen you answer:\n- Be kind.\n", question)


def dify_completion(question: str, passages: list[str]) -> list[dict[str, str]]:
    lines = "\n".join(passages)
    return user(
        f"{LEARNED}\n\n<context>\n{lines}\n</context>\n\nBe kind.\n<histories>\n</histories>\n\n\n"
        f"Human: {question}\n\nAssistant: "
    )


def ragflow_trees(passages: list[str]) -> str:
    trees = [
        f"\nID: {index}\n├── Title: notes {index}.md\n├── author: nobody\n└── Content:\n{passage}"
        for index, passage in enumerate(passages)
    ]
    return "\n------\n" + "\n\n------\n\n".join(trees)


def ragflow(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(
        f"Answer from the knowledge base.\n      Here is the knowledge base:\n      {ragflow_trees(passages)}\n"
        "      The above is the knowledge base.",
        question,
        "Hi",
        "Hello!",
    )


def ragflow_old(question: str, passages: list[str]) -> list[dict[str, str]]:
    chunks = "\n\n------\n\n".join(passages)
    return system(
        f"Be kind.\nHere is the knowledge base:\n\n------\n{chunks}\nThe above is the knowledge base.", question
    )


def ragflow_chinese(question: str, passages: list[str]) -> list[dict[str, str]]:
    return system(f"以下是知识库\uff1a\n{ragflow_trees(passages)}\n以上是知识库。", question)


def anythingllm(question: str, passages: list[str]) -> list[dict[str, str]]:
    chunks = "".join(f"[CONTEXT {index}]:\n{text}\n[END CONTEXT {index}]\n\n" for index, text in enumerate(passages))
    return system(f"You are the desk of a library.\nContext:\n{chunks}", question, "Hi", "Hello!")


def flowise(question: str, passages: list[str]) -> list[dict[str, str]]:
    elements = "\n".join(f"<doc id='{index}'>{passage}</doc>" for index, passage in enumerate(passages))
    return system(
        "Using the provided context, answer the user's question as well as you can.\n"
        f"{rule(12)}\n{elements}\n{rule(12)}\n"
        "REMEMBER: If there is no relevant information within the context, say so.",
        question,
    )


def librechat(question: str, passages: list[str]) -> list[dict[str, str]]:
    items = "".join(
        f"\n            <contextItem>\n              <![CDATA[{passage}]]>\n            </contextItem>"
        for passage in passages
    )
    return system(
        "The user has attached a file to the conversation:\n<file>\n<filename>notes.md</filename>\n</file>\n\n"
        "A semantic search was executed with the user's message as the query, retrieving the following context inside "
        "<context></context> XML tags.\n\n        <context>\n          <file>\n"
        f"            <filename>notes.md</filename>\n            <context>{items}\n            </context>\n"
        "          </file>\n        </context>\n\n        Answer from it.",
        question,
    )


def librechat_full(question: str, passages: list[str]) -> list[dict[str, str]]:
    files = "".join(
        f"\n          <file>\n            <filename>notes.md</filename>\n            <context>\n{passage}\n"
        "            </context>\n          </file>"
        for passage in passages
    )
    return system(
        f"The user has attached files to the conversation:\n          {files}\n"
        "          Use the context as your learned knowledge to better answer the user.",
        question,
    )


PROMPTS = (
    Prompt("langchain: rlm/rag-prompt", rag_prompt),
    Prompt("langchain: rlm/rag-prompt", rag_prompt_trimmed, strips=True),
    Prompt("langchain: agentic-rag", agentic, strips=True),
    Prompt("langchain: stuff-documents", stuff_documents),
    Prompt("langchain: retrieval-qa-chat", retrieval_qa_chat),
    Prompt("langchain: retrieval-qa", retrieval_qa),
    Prompt("langchain: retrieval-qa", retrieval_qa_system),
    Prompt("langchain: qa-with-sources", qa_with_sources, ("\n\nContent: ", "\nSource: ")),
    Prompt("langchain: map-reduce", map_reduce),
    Prompt("langchain: map-reduce", map_reduce_system),
    Prompt("langchain: refine", refine),
    Prompt("langchain: refine", refine_chat),
    Prompt("langchain: refine", refine_sources, ("\n\nContent: ", "\nSource: ")),
    Prompt("langchain: refine-first", refine_first),
    Prompt("langchain: refine-first", refine_first_sources, ("\n\nContent: ", "\nSource: ")),
    Prompt("langchain: refine-first", refine_first_system),
    Prompt("langchain: two-step", two_step),
    Prompt("langchain: before-model", before_model),
    Prompt("langchain: based-on-context", based_on_context, strips=True),
    Prompt("langchain: based-on-context", based_on_context_ruled, "\n\n---\n\n"),
    Prompt("llamaindex: text-qa", text_qa, strips=True),
    Prompt("llamaindex: tree-summarize", tree_summarize, strips=True),
    Prompt("llamaindex: refine", llamaindex_refine, strips=True),
    Prompt("llamaindex: refine", llamaindex_refine_chat, strips=True),
    Prompt("llamaindex: refine", llamaindex_refine_rich, strips=True),
    Prompt("llamaindex: context-chat", context_chat, strips=True),
    Prompt("llamaindex: context-chat-refine", context_chat_refine, strips=True),
    Prompt("llamaindex: condense-plus-context", condense_plus_context, strips=True),
    Prompt("llamaindex: condense-plus-context-refine", condense_plus_context_refine, strips=True),
    Prompt("llamaindex: citation", citation, "\n\nSource ", strips=True),
    Prompt("llamaindex: citation-refine", citation_refine, "\n\nSource ", strips=True),
    Prompt("haystack: documents", haystack, strips=True),
    Prompt("haystack: documents", haystack_named, strips=True),
    Prompt("haystack: context", haystack_context, strips=True),
    Prompt("open_webui: citations", open_webui, "</source>\n<source"),
    Prompt("open_webui: citations", open_webui_query, "</source>\n<source"),
    Prompt("open_webui: citations", open_webui_system, "</source>\n<source"),
    Prompt("open_webui: classic", open_webui_classic, strips=True),
    Prompt("dify: chat", dify, "\n"),
    Prompt("dify: completion", dify_completion, "\n"),
    Prompt("ragflow: knowledge-base", ragflow, ("\nID: ", "\n\n------\n\n")),
    Prompt("ragflow: knowledge-base", ragflow_old, "\n\n------\n\n", strips=True),
    Prompt("ragflow: knowledge-base", ragflow_chinese, ("\nID: ", "\n\n------\n\n")),
    Prompt("anythingllm: contexts", anythingllm, "\n\n[CONTEXT "),
    Prompt("flowise: conversational-retrieval", flowise, "</doc>\n<doc"),
    Prompt("librechat: semantic-search", librechat, "<contextItem>"),
    Prompt("librechat: full-context", librechat_full, "<file>", strips=True),
)
