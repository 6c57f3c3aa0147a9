"""Passages in any notation and nesting are the same passages; results of tools that act give none."""

import json
from types import SimpleNamespace

import pytest

from gaugeway.prompts.retrieval_rule import retrieved

_TEXTS = {
    "en": (
        "The ferry to Lund island leaves at half past six every morning except on public holidays and in storms.",
        "Bicycles travel free on the lower deck, but cargo bikes need a ticket that is sold on board by the crew.",
        "Passengers who miss the last crossing may sleep in the waiting hall, which stays open and heated all night.",
    ),
    "de": (
        "Die Fähre zur Insel legt jeden Morgen um halb sieben ab, außer an Feiertagen und bei schwerem Sturm im Sund.",
        "Fahrräder fahren auf dem unteren Deck kostenlos mit, Lastenräder brauchen einen Fahrschein von der Besatzung.",
        "Wer die letzte Überfahrt verpasst, darf in der Wartehalle schlafen, die nachts offen und beheizt bleibt.",
    ),
    "fr": (
        "Le bac pour l'île part chaque matin à six heures et demie, sauf les jours fériés et pendant les tempêtes.",
        "Les vélos voyagent gratuitement sur le pont inférieur, mais un vélo cargo demande un billet vendu à bord.",
        "Les passagers qui manquent la dernière traversée peuvent dormir dans la salle d'attente chauffée.",
    ),
    "ja": (
        "島へのフェリーは祝日と嵐の日を除いて毎朝六時半に出航し、十二分で対岸の港に着きます。",
        "自転車は下の甲板に無料で載せられますが、荷物用自転車には船内で買う切符が必要です。",
        "最終便に乗り遅れた人は、一晚中開いている暖かい待合室で眠ることができます。",
    ),
}


def _repr(name, texts, *, field, more="{}"):
    return f"[{', '.join(f'{name}({field}={text!r}, {more})' for text in texts)}]"


def _rows(texts, key="wording"):
    return [{"nr": number, key: text} for number, text in enumerate(texts)]


_WRAPPERS = {
    "json": lambda t: json.dumps(_rows(t)),
    "string": lambda t: json.dumps({"payload": json.dumps(_rows(t))}),
    "lines": lambda t: "\n".join(json.dumps(row) for row in _rows(t)),
    "fence": lambda t: f"```json\n{json.dumps(_rows(t), indent=2)}\n```",
    "introduced": lambda t: f"Found {len(t)} results:\n{json.dumps(_rows(t))}",
    "parts": lambda t: [{"type": "text", "text": json.dumps(_rows(t))}],
    "documents": lambda t: _repr("Document", t, field="page_content", more="metadata={'p': 1}"),
    "contents": lambda t: f"ToolResult(content={_repr('TextContent', t, field='text', more='type=None')})",
    "quotes": lambda t: str(_rows(t)),
    "tuple": lambda t: str(tuple(_rows(t))),
    "elastic": lambda t: json.dumps({"took": 3, "results": {"hits": [{"_source": {"body": text}} for text in t]}}),
    "chroma": lambda t: {"ids": [["a", "b", "c"]], "documents": [list(t)], "metadatas": [[{}, {}, {}]]},
    "columns": lambda t: {"key": [4, 5, 6], "wording": list(t)},
    "table": lambda t: {"fields": ["key", "wording"], "lines": [[key, text] for key, text in enumerate(t)]},
    "chunks": lambda t: [{"file": "a", "pieces": _rows(t[:2])}, {"file": "b", "pieces": _rows(t[2:])}],
}
_MORE = {
    "data": lambda t: f"<results><![CDATA[{json.dumps(_rows(t))}]]></results>",
    "twice": lambda t: json.dumps(json.dumps(_rows(t))),
    "pair": lambda t: str((json.dumps(_rows(t)), None)),
    "mcp": lambda t: {
        "content": [{"type": "text", "text": f"In the index:\n{json.dumps({'of it': _rows(t)}, indent=1)}"}]
    },
    "introduced parts": lambda t: [{"type": "text", "text": f"Result: {json.dumps(row)}"} for row in _rows(t)],
    "by key": lambda t: {f"n{row['nr']}": row for row in _rows(t)},
    "strings": json.dumps,
    "nodes": lambda t: f"[{', '.join(f'NodeWithScore(node=TextNode(id_=1, text={x!r}), score=0.5)' for x in t)}]",
    "tags": lambda t: f"<tool_result>\n{json.dumps(_rows(t))}\n</tool_result>",
    "tokens": lambda t: f"<|tool|>{json.dumps(_rows(t))}<|end|>",
    "after": lambda t: f"{json.dumps(_rows(t))}\nEnd of the list.",
    "namespace": lambda t: f"Hits: {[SimpleNamespace(wording=text, nr=1) for text in t]}",
    "deep": lambda t: {"a": {"b": {"c": [{"d": {"e": {"wording": text}}, "n": 1} for text in t]}}},
    "scored": lambda t: str([({"wording": text}, 0.5) for text in t]),
    "split": lambda t: [{"type": "text", "text": json.dumps(row)} for row in _rows(t)],
    "graph": lambda t: {"edges": [{"node": {"wording": text, "nr": 1}} for text in t]},
}
_CASES = [(wrapper, language) for wrapper in (*_WRAPPERS, *_MORE) for language in _TEXTS]


@pytest.mark.parametrize(("wrapper", "language"), _CASES)
def test_the_same_passages_in_any_notation(wrapper, language):
    texts = _TEXTS[language]
    found = retrieved("zeta_lookup_tool", (_WRAPPERS | _MORE)[wrapper](texts))
    assert tuple(context.text for context in found or ()) == texts


_NO_RETRIEVAL = {
    "empty": ("zeta_tool", "[]"),
    "empty object": ("zeta_tool", "{}"),
    "empty hits": ("zeta_tool", '{"results": {"hits": []}}'),
    "none": ("zeta_tool", "No results found."),
    "keine": ("zeta_tool", "Es wurden keine Ergebnisse gefunden."),
    "aucun": ("zeta_tool", "Aucun résultat."),
    "ninguno": ("zeta_tool", "No se encontraron resultados."),
    "none there": ("zeta_tool", "見つかりませんでした。"),
    "error": (
        "zeta_tool",
        json.dumps({"error": "The index could not be opened because the disk of the host is full. " * 3}),
    ),
    "error parts": (
        "zeta_tool",
        [{"type": "text", "text": json.dumps({"error": "The host did not answer in time. " * 5})}],
    ),
    "ticket": ("create_ticket", json.dumps({"id": 7, "text": _TEXTS["en"][0]})),
    "mail": ("send_mail", json.dumps([{"to": "a", "body": text} for text in _TEXTS["en"]])),
    "code": ("run_code", _TEXTS["en"][0]),
    "write": ("write_file", '{"ok": true, "bytes": 120}'),
    "listing": ("zeta_tool", json.dumps([{"name": f"a{n}.md", "size": n, "mode": "rw"} for n in range(9)])),
    "listing lines": ("zeta_tool", "\n".join(f"-rw-r--r-- 1 a a {n} Jan 1 a{n}.md" for n in range(9))),
    "names": ("zeta_tool", json.dumps(["a.md", "b.md", "c.md"])),
    "trace": (
        "zeta_tool",
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g(1)\nValueError: 1\n' * 3,
    ),
    "weather": ("get_weather", json.dumps({"temperature": 12.5, "wind": 3, "sky": "clear"})),
    "hours": ("zeta_tool", json.dumps([{"hour": n, "temperature": 3.5 * n} for n in range(24)])),
    "matrix": ("zeta_tool", str([[1, 2], [3, 4]])),
    "flags": ("zeta_tool", "{'ok': True, 'count': 3, 'next': None}"),
    "repr": ("zeta_tool", "Result(ok=True, rows=3, at=datetime.date(2026, 1, 2))"),
    "status": ("zeta_tool", '[{"step": "build", "state": "done"}, {"step": "test", "state": "failed"}]'),
    "same": ("zeta_tool", json.dumps([{"n": n, "note": "Not yet checked."} for n in range(4)])),
    "call": ("zeta_tool", "print('a')"),
    "sum": ("zeta_tool", "42"),
    "columns": ("zeta_tool", json.dumps({"day": [1, 2, 3], "rain": [0, 4, 2]})),
    "introduced": ("zeta_tool", "Found 0 results:\n[]"),
}


@pytest.mark.parametrize("case", _NO_RETRIEVAL)
def test_what_is_no_retrieval_gives_no_passages(case):
    assert not retrieved(*_NO_RETRIEVAL[case])


@pytest.mark.parametrize(
    "unit", ["[", "{'a':", "(", "A(", "A(b=", '{"a":[', "'", '"', "<", "[{'a': 'b'},", "```json\n["]
)
def test_hostile_nesting_is_read_or_left(unit):
    retrieved("zeta_tool", unit * 20_000)
    retrieved("zeta_tool", "Found:\n" + unit * 20_000 + "]})")


def test_metadata_of_a_record_is_known_by_its_names():
    rows = [
        {"meta": {"url": f"u{n}"}, "score": 0.5, "_id": f"i{n}", "wording": text} for n, text in enumerate(_TEXTS["en"])
    ]
    found = retrieved("zeta_tool", f"Here they are:\n{rows}")
    assert [(context.id, context.score) for context in found or ()] == [(f"i{n}", 0.5) for n in range(3)]
