"""What an audit sees of a captured exchange: the request's text, redacted, or nothing where content is off."""

from __future__ import annotations

import json

import pytest

from gateway.capture.factory import capture_of
from gateway.config import Capture as Settings
from gaugeway.exchange import Recording
from gaugeway.redaction import Redactor
from monitors.analysis.capture_coverage import request_of

PASSAGES = ("Ada (ada@example.com) answers for lamps.", "A lamp lasts twelve hours, less in the cold.")
PROMPT = (
    "Answer from the context.\n\nContext:\n[1] {}\n[2] {}\n\nQuestion: Who is asked, ada@example.com?\nAnswer:".format(
        *PASSAGES
    )
)
SYSTEM = "Write to eve@example.com when in doubt."
ANSWER = {"id": "c", "choices": [{"message": {"content": "Ada."}, "finish_reason": "stop"}]}


def captured(settings, prompt=PROMPT):
    body = {"model": "m", "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]}
    recording = Recording(
        id="e1",
        started_at=100.0,
        method="POST",
        path="/v1/chat/completions",
        route="chat_completions",
        request_headers=[(b"content-type", b"application/json")],
        request_body=json.dumps(body).encode(),
        status=200,
        response_headers=[(b"content-type", b"application/json")],
        chunks=[json.dumps(ANSWER).encode()],
    )
    capture = capture_of(settings, "key")
    return capture.make(capture.read(recording))


def test_it_is_the_whole_text_with_the_places_of_question_and_passages():
    request = request_of(captured(Settings(redact=())))
    assert request.text.split() == f"{SYSTEM}\n{PROMPT}".split()
    assert [request.text[slice(*span)] for span in request.passages] == list(PASSAGES)
    assert [request.text[slice(*span)] for span in request.questions] == ["Who is asked, ada@example.com?"]


@pytest.mark.parametrize("prompt", [PROMPT, "Tell me about lamps, ada@example.com.", "One.\n\nTwo, ada@example.com."])
def test_it_is_redacted_whatever_was_found(prompt):
    request = request_of(captured(Settings(redact=("email",)), prompt))
    assert "example.com" not in request.text
    assert request.text.count("[EMAIL_") == 1 + prompt.count("@")


def test_without_content_there_is_nothing_to_audit():
    sample = captured(Settings(content=False))
    assert request_of(sample) is None
    assert request_of(Redactor((), (), "key").without_content(captured(Settings(redact=())))) is None
