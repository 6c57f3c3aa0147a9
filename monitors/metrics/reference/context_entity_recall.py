"""Context entity recall: the share of the reference's names that the contexts hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gaugeway.records import Sample, Score, Skipped
from gaugeway.text.normalising import nfkc
from monitors.judges import Judge
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.items import contexts_of, sent_contexts, unanswered
from monitors.metrics.judged.prompts import Datum
from monitors.metrics.judged.schemas import Entity, ReferenceEntities


class ContextEntityRecall:
    """|entities of the reference that occur in a context| / |entities of the reference|, without regard to case.

    The judge names the entities and how a context writes each of them; one is present if it, or those words, do stand
    in a context. So a name the judge only believes to have read does not count. After RAGAS (https://docs.ragas.io),
    which lets the judge list the entities of both and compares them letter by letter.
    """

    name = "context_entity_recall"
    measures = "retrieval"

    def __init__(self, judge: Judge) -> None:
        self._llm = judge
        self._template = prompting.load("reference_entities")
        self.judge = judge.model
        self.version = f"1-{self._template.version}"

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "reference", "contexts")) is not None:
            return skipped
        data = [Datum("reference", sample.reference or ""), *contexts_of(sample)]
        answer = await self._llm.ask(self._template.fill(data), ReferenceEntities)
        entities = _distinct(answer.entities)
        if not entities:
            return Skipped("no_entities")
        texts = {index: _folded(sample.contexts[index].text) for index in sent_contexts(sample)}
        places = [
            _place([entity.entity for entity in same] + [entity.found_as for entity in same], texts)
            for same in entities
        ]
        present = sum(place is not None for place in places)
        return Score(
            present / len(entities),
            f"{present} of {len(entities)} entities of the reference occur in the contexts",
            tuple(
                {"entity": same[0].entity, "present": place is not None, "context": place}
                for same, place in zip(entities, places, strict=True)
            ),
        )


def _distinct(entities: Iterable[Entity]) -> list[Sequence[Entity]]:
    """Return the entities without duplicates, merging their forms."""
    groups: dict[str, list[Entity]] = {}
    for entity in entities:
        if key := _folded(entity.entity):
            groups.setdefault(key, []).append(entity)
    return list(groups.values())


def _place(forms: Iterable[str], texts: dict[int, str]) -> int | None:
    """Return the index of the first context that holds one of these forms as whole words."""
    patterns = [_as_words(folded) for form in forms if (folded := _folded(form))]
    return next((index for index, text in texts.items() if any(pattern.search(text) for pattern in patterns)), None)


def _as_words(text: str) -> re.Pattern[str]:
    """Return a pattern for `text` as whole words; without boundaries for scripts written without spaces."""
    before, after = (r"(?<!\w)" if _spaced(text[0]) else ""), (r"(?!\w)" if _spaced(text[-1]) else "")
    return re.compile(f"{before}{re.escape(text)}{after}")


def _spaced(char: str) -> bool:
    return char.isdigit() or char.upper() != char.lower()


def _folded(text: str) -> str:
    return " ".join(nfkc(text).casefold().split())
