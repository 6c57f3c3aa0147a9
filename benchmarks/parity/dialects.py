"""One script of verdicts, said in the words that Gaugeway, ragas and deepeval ask for.

A script is a dict: `claims` and `reference_claims` (each with `verdict`, `contexts`, and `other`: whether the other
text supports it), `statements` of each context, `useful`, `ratings`, `entities`, `questions`, `scores`, `noncommittal`.
`omit` leaves out that many verdicts at the end of a list; `odd` replaces the first verdict by something else.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

OURS_AT = re.compile(r"^Task: (\w+)$", re.MULTILINE)
YES = {True: "yes", False: "no"}


class Unknown(Exception):
    """A request nobody scripted."""


def answer(messages: list[dict[str, Any]], case: dict[str, Any]) -> str:
    """The judge's text for these messages."""
    text = "\n".join(text_of(message) for message in messages)
    if (task := OURS_AT.match(text)) is not None:
        said = _ours(task[1], messages[-1]["content"], case)
    elif (title := re.search(r'"title": "(\w+(?:Output|List|Reason))",\s*"type": "object"', text)) is not None:
        said = _ragas(_outermost(text) or title[1], text, case)
    else:
        said = _deepeval(text, case)
    return said if isinstance(said, str) else json.dumps(said)


def text_of(message: dict[str, Any]) -> str:
    """What a message says, in one piece or in parts."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def alternatives(case: dict[str, Any]) -> dict[str, float]:
    """The score token's alternatives as log-probabilities, the one that is said first."""
    ranked = sorted(case["script"]["scores"].items(), key=lambda item: -item[1])
    return {token: math.log(probability) for token, probability in ranked}


def _outermost(text: str) -> str | None:
    """The name of the type ragas wants back: the last title in its schema at the outer level."""
    start = text.find("{", text.find("json_schema"))
    try:
        schema, _ = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return None
    return schema.get("title")


def _cut(script: dict[str, Any], items: list[Any], key: str) -> list[Any]:
    """The list with what the script leaves out or twists."""
    items = items[: len(items) - script.get("omit", 0)]
    if "odd" in script and items:
        items = [{**items[0], key: script["odd"]}, *items[1:]]
    return items


def _fenced(user: str) -> dict[str, dict[int, str]]:
    """The texts of one of our prompts: name -> number -> text."""
    found: dict[str, dict[int, str]] = {}
    nonce = user[len("<data-") :][:9]
    pattern = rf'(?s)<data-{nonce} name="(\w+)"(?: (?:index|id)="(\d+)")?>\n(.*?)\n</data-{nonce}>'
    for name, number, text in re.findall(pattern, user):
        found.setdefault(name, {})[int(number or 0)] = text
    return found


def _held(claim: dict[str, Any], data: dict[str, dict[int, str]], case: dict[str, Any]) -> dict[str, Any]:
    """The verdict on a claim against the contexts sent, or against the other of response and reference."""
    sample = case["sample"]
    contexts = list(data.get("context", {}).values())
    if contexts in ([sample.get("reference")], [sample.get("response")]) and contexts != sample["contexts"]:
        return {
            "verdict": "supported" if claim.get("other") else "not_mentioned",
            "contexts": [0],
            "quote": contexts[0],
        }
    named = [index for index in claim.get("contexts", [0]) if index in data.get("context", {})]
    quote = data["context"][named[0]] if named else ""
    return {"verdict": claim["verdict"], "contexts": claim.get("contexts", [0]), "quote": quote}


def _every_claim(script: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["claim"]: one for one in [*script.get("claims", []), *script.get("reference_claims", [])]}


def _ours(task: str, user: str, case: dict[str, Any]) -> Any:
    if task not in OURS:
        raise Unknown(task)
    return OURS[task](_fenced(user), case)


def _taken_apart(data: dict[str, dict[int, str]], case: dict[str, Any]) -> list[dict[str, Any]]:
    of_response = data.get("response", {}).get(0) == case["sample"].get("response")
    return case["script"].get("claims" if of_response else "reference_claims", [])


def _claims(data: dict[str, dict[int, str]], case: dict[str, Any]) -> Any:
    noncommittal = case["script"].get("noncommittal", False)
    return {"noncommittal": noncommittal, "claims": [one["claim"] for one in _taken_apart(data, case)]}


def _claims_verdicts(data: dict[str, dict[int, str]], case: dict[str, Any]) -> Any:
    script = case["script"]
    told = [{"relevance": "relevant"} | one | _held(one, data, case) for one in _taken_apart(data, case)]
    key = "relevance" if case["metric"] == "answer_relevancy" else "verdict"
    if omitted := script.get("omit", 0):  # a claim in one answer with its verdict can lack it, not be missing
        told = [*told[:-omitted], *({k: v for k, v in one.items() if k != key} for one in told[-omitted:])]
    if "odd" in script:
        told = [{**told[0], key: script["odd"]}, *told[1:]]
    return {"noncommittal": script.get("noncommittal", False), "claims": told}


def _claim_verdicts(data: dict[str, dict[int, str]], case: dict[str, Any]) -> Any:
    every = _every_claim(case["script"])
    found = [{"id": id_, **_held(every[text], data, case)} for id_, text in data["claim"].items()]
    return {"verdicts": _cut(case["script"], found, "verdict")}


def _claim_relevance(data: dict[str, dict[int, str]], case: dict[str, Any]) -> Any:
    every = _every_claim(case["script"])
    found = [{"id": id_, "relevance": every[text]["relevance"]} for id_, text in data["claim"].items()]
    return {"verdicts": _cut(case["script"], found, "relevance")}


def _contradicted(script: dict[str, Any]) -> set[int]:
    return {i for one in script["claims"] if one["verdict"] == "contradicted" for i in one["contexts"]}


def _contradicted_contexts(data: dict[str, dict[int, str]], case: dict[str, Any]) -> Any:
    hit = _contradicted(case["script"])
    found = [{"index": i, "contradicted": i in hit} for i in data["context"]]
    return {"contexts": _cut(case["script"], found, "contradicted")}


def _context_statements(data: dict[str, dict[int, str]], case: dict[str, Any]) -> Any:
    told = case["script"]["statements"]
    found = [
        {"index": i, "statements": [{"statement": text, "relevant": yes} for text, yes in told[i]]}
        for i in data["context"]
    ]
    return {"contexts": _cut(case["script"], found, "statements")}


def _context_ratings(data: dict[str, dict[int, str]], case: dict[str, Any], which: int = 0) -> Any:
    return {"contexts": [{"index": i, "rating": case["script"]["ratings"][i][which]} for i in data["context"]]}


def _useful_contexts(data: dict[str, dict[int, str]], case: dict[str, Any]) -> Any:
    told = case["script"]["useful"]
    found = [{"index": i, "useful": {0: False, 1: True}.get(told[i], told[i])} for i in data["context"]]
    return {"contexts": _cut(case["script"], found, "useful")}


def _reference_entities(_: dict[str, dict[int, str]], case: dict[str, Any]) -> Any:
    entities = case["script"]["entities"]
    there = {one.casefold(): one for one in entities["contexts"]}
    return {"entities": [{"entity": one, "found_as": there.get(one.casefold(), "")} for one in entities["reference"]]}


def _generated_questions(_: dict[str, dict[int, str]], case: dict[str, Any]) -> Any:
    return {"noncommittal": case["script"].get("noncommittal", False), "questions": case["script"]["questions"]}


OURS: dict[str, Callable[[dict[str, dict[int, str]], dict[str, Any]], Any]] = {
    "claims": _claims,
    "claims_verdicts": _claims_verdicts,
    "claim_verdicts": _claim_verdicts,
    "claim_relevance": _claim_relevance,
    "contradicted_contexts": _contradicted_contexts,
    "context_statements": _context_statements,
    "context_ratings": _context_ratings,
    "context_ratings_reworded": lambda data, case: _context_ratings(data, case, 1),
    "useful_contexts": _useful_contexts,
    "reference_entities": _reference_entities,
    "generated_questions": _generated_questions,
    "geval_form": lambda _, case: {"score": int(next(iter(alternatives(case))))},
    "geval_score": lambda _, case: next(iter(alternatives(case))),
}


def _ragas(wanted: str, text: str, case: dict[str, Any]) -> Any:
    if wanted not in RAGAS:
        raise Unknown(wanted)
    asked, _ = json.JSONDecoder().raw_decode(text.rpartition("\ninput: ")[2])
    if wanted == "ContextRelevanceOutput":
        return {"rating": case["script"]["ratings"][0][int("As a specially designed expert" in text)]}
    return RAGAS[wanted](asked, case)


def _statements(asked: dict[str, Any], case: dict[str, Any]) -> Any:
    of_response = (asked.get("answer") or asked.get("text")) == case["sample"].get("response")
    return {"statements": [one["claim"] for one in case["script"]["claims" if of_response else "reference_claims"]]}


def _nli_verdicts(asked: dict[str, Any], case: dict[str, Any]) -> Any:
    told = [_nli(one, asked["context"], case) for one in asked["statements"]]
    return {"statements": _cut(case["script"], told, "verdict")}


def _question(_: dict[str, Any], case: dict[str, Any]) -> Any:
    case["asked"] = case.get("asked", -1) + 1
    questions = case["script"]["questions"] or [""]
    noncommittal = int(case["script"].get("noncommittal", False))
    return {"question": questions[case["asked"] % len(questions)], "noncommittal": noncommittal}


def _context_precision(asked: dict[str, Any], case: dict[str, Any]) -> Any:
    return {"reason": "", "verdict": int(case["script"]["useful"][case["sample"]["contexts"].index(asked["context"])])}


def _context_recall(_: dict[str, Any], case: dict[str, Any]) -> Any:
    told = [
        {"statement": one["claim"], "reason": "", "attributed": int(one["verdict"] == "supported")}
        for one in case["script"]["reference_claims"]
    ]
    return {"classifications": told}


def _entities(asked: dict[str, Any], case: dict[str, Any]) -> Any:
    side = "reference" if asked["text"] == case["sample"]["reference"] else "contexts"
    return {"entities": case["script"]["entities"][side]}


def _classified(_: dict[str, Any], case: dict[str, Any]) -> Any:
    said, wanted = case["script"]["claims"], case["script"]["reference_claims"]
    right = [one["claim"] for one in said if one.get("other")]
    wrong = [one["claim"] for one in said if not one.get("other")]
    missing = [one["claim"] for one in wanted if not one.get("other")]
    return {
        key: [{"statement": claim, "reason": ""} for claim in claims]
        for key, claims in (("TP", right), ("FP", wrong), ("FN", missing))
    }


def _nli(statement: str, context: str, case: dict[str, Any]) -> dict[str, Any]:
    """One statement: about all contexts joined, about one of them, or about the reference."""
    one, sample = _every_claim(case["script"])[statement], case["sample"]
    if context == sample.get("reference"):
        yes = bool(one.get("other"))
    elif context in sample["contexts"] and len(sample["contexts"]) > 1:
        yes = one["verdict"] == "supported" and sample["contexts"].index(context) in one["contexts"]
    else:
        yes = one["verdict"] == "supported"
    return {"statement": statement, "reason": "", "verdict": int(yes)}


RAGAS: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "StatementGeneratorOutput": _statements,
    "NLIStatementOutput": _nli_verdicts,
    "StatementFaithfulnessOutput": _nli_verdicts,
    "AnswerRelevanceOutput": _question,
    "ContextRelevanceOutput": _question,  # answered above, from the wording of its two prompts
    "ContextPrecisionOutput": _context_precision,
    "ContextRecallOutput": _context_recall,
    "EntitiesList": _entities,
    "ClassificationWithReason": _classified,
}

_AGREES = {"supported": "yes", "not_mentioned": "borderline", "contradicted": "no"}
_RELEVANT = {"relevant": "yes", "borderline": "borderline", "irrelevant": "no"}


def _deepeval(text: str, case: dict[str, Any]) -> Any:
    for mark, told in DEEPEVAL:
        if mark in text:
            return told(text, case)
    raise Unknown(text[:200])


def _truths(_: str, case: dict[str, Any]) -> Any:
    told = [text for statements in case["script"].get("statements", []) for text, _ in statements]
    return {"truths": told or ["truth"]}


def _told(words: Callable[[dict[str, Any]], list[str]]) -> Callable[[str, dict[str, Any]], Any]:
    """Verdicts made of a list of words."""

    def verdicts(_: str, case: dict[str, Any]) -> Any:
        said = [{"verdict": word, "reason": ""} for word in words(case)]
        return {"verdicts": _cut(case["script"], said, "verdict")}

    return verdicts


def _of_context(text: str, case: dict[str, Any]) -> Any:
    context = text.rpartition("\nContext:\n")[2].removesuffix("JSON:").strip()
    statements = case["script"]["statements"][case["sample"]["contexts"].index(context)]
    told = [{"statement": s, "verdict": YES[r], "reason": ""} for s, r in statements]
    return {"verdicts": _cut(case["script"], told, "verdict")}


def _agreeing(case: dict[str, Any]) -> list[str]:
    hit = _contradicted(case["script"])
    return [YES[i not in hit] for i in range(len(case["sample"]["contexts"]))]


# What the prompt says, first match first -> the answer.
DEEPEVAL: tuple[tuple[str, Callable[[str, dict[str, Any]], Any]], ...] = (
    ('"reason": "The score is', lambda *_: {"reason": "as it is"}),
    ('the "truths" key', _truths),
    ('the "claims" key', lambda _, case: {"claims": [one["claim"] for one in case["script"]["claims"]]}),
    ('the "statements" key', lambda _, case: {"statements": [one["claim"] for one in case["script"]["claims"]]}),
    ("Based on the given claims", _told(lambda case: [_AGREES[one["verdict"]] for one in case["script"]["claims"]])),
    (
        "For the provided list of statements",
        _told(lambda case: [_RELEVANT[one["relevance"]] for one in case["script"]["claims"]]),
    ),
    ("For each context in contexts", _told(_agreeing)),
    ("Given the input, expected output", _told(lambda case: [YES[bool(one)] for one in case["script"]["useful"]])),
    (
        "For EACH",
        _told(lambda case: [YES[one["verdict"] == "supported"] for one in case["script"]["reference_claims"]]),
    ),
    ("Based on the input and", _of_context),
    ("You are an evaluator", lambda _, case: {"reason": "as it is", "score": int(next(iter(alternatives(case))))}),
)
