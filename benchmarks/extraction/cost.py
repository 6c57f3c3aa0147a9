"""What extraction costs: milliseconds of CPU for each extractor and the whole chain, on prompts of about 2 MB.

    python benchmarks/extraction/cost.py [--rounds 5]

A row is one prompt; a column is the time of that extractor alone, the last but one of the chain up to the first that
recognises the prompt (all of them, when none does), the last of finding where in the prompt question and passages
stand. Printed is the median of the rounds. Extraction runs off the request path; the aim is 50 ms for the chain.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from gaugeway.exchange import Request, Response  # noqa: E402
from gaugeway.extensions import load, registered  # noqa: E402
from gaugeway.prompts import Extraction, UserTemplate, default_order, last_user_text, trace  # noqa: E402 - the tree is not installed everywhere
from gaugeway.prompts.prompt_parts import capture_info  # noqa: E402
from gaugeway.prompts.user_patterns import PatternExtractor  # noqa: E402

SIZE = 2_000_000
PARAGRAPH = "The library lends books for four weeks; a loan can be extended twice unless somebody has reserved it. " * 8
RULE = "-" * 21


def user(text):
    return {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]}


def filled(piece):
    return piece * (SIZE // len(piece))


def tool(content):
    call = {"id": "c", "type": "function", "function": {"name": "search_library", "arguments": "{}"}}
    return {
        "messages": [
            {"role": "user", "content": "How long?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": content},
        ]
    }


def requests():
    """Yield (what it is, body)."""
    paragraphs = filled(PARAGRAPH + "\n\n")
    hits = json.dumps([{"text": PARAGRAPH, "id": index} for index in range(SIZE // len(PARAGRAPH))])
    small = json.dumps([{"text": "four weeks", "id": index} for index in range(SIZE // 34)])
    turns = [{"role": "user" if index % 2 == 0 else "assistant", "content": PARAGRAPH[:400]} for index in range(5_000)]
    yield "ordinary text", user(paragraphs)
    yield "ordinary chat, 5,000 turns", {"messages": turns}
    yield "code and tags", user(filled("<div class='a'>\n  <source src='b'>\n</div>\n```\nfor a in b: c()\n```\n"))
    yield "llamaindex", user(f"Context information is below.\n{RULE}\n{paragraphs}\n{RULE}\nGo.\nQuery: q\nAnswer: ")
    yield (
        "open webui",
        user(
            "incorporating inline citations\n<context>\n"
            + filled(f'<source id="1" name="a">{PARAGRAPH}</source>\n')
            + "</context>\nHow long?"
        ),
    )
    yield (
        "document tags",
        user(
            "<documents>\n"
            + filled(f"<document index='1'><source>a</source>{PARAGRAPH}</document>\n")
            + "</documents>\nq?"
        ),
    )
    yield "tool, text", tool(paragraphs)
    yield "tool, JSON of passages", tool(hits)
    yield "tool, JSON of small hits", tool(small)
    yield "tool, JSON of rows", tool(json.dumps([{"row": index, "total": 3.5} for index in range(SIZE // 30)]))
    yield "nothing but blank lines", user(filled("\n"))
    yield "nothing but openings", user(filled("\n<context>\n"))


def milliseconds(work, rounds):
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        times.append((time.process_time() - begin) * 1000)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    extractors = [load(name, registered("readers"))() for name in default_order()]
    pattern = UserTemplate(name="facts", pattern=r"FACTS:\n(?P<contexts>.*)\nASKED: (?P<question>.*)")
    extractors[default_order().index("patterns")] = PatternExtractor([pattern])
    response = Response(status=200, body={})
    print("| prompt | " + " | ".join(default_order()) + " | chain | places | found by |")
    print("|---|" + "---:|" * (len(default_order()) + 2) + "---|")
    for name, body in requests():
        request = Request(route="chat_completions", headers={}, body=body)
        alone = [milliseconds(lambda one=one: one.extract(request, response), rounds) for one in extractors]  # noqa: B023 - called at once
        chain = milliseconds(lambda: trace(request, response, extractors), rounds)  # noqa: B023 - called at once
        by, found = trace(request, response, extractors)[-1]
        seen = found or Extraction(question=last_user_text(request), contexts=(), source="none")
        places = milliseconds(lambda: capture_info(request, seen), rounds)  # noqa: B023 - called at once
        cells = " | ".join(f"{one:.1f}" for one in [*alone, chain, places])
        print(f"| {name} | {cells} | {by if found else '-'} |")


if __name__ == "__main__":
    main()
