"""Answers that decline are told from answers that only mention it, in every language of the phrases."""

import pytest

from gaugeway.text.abstention import LONGEST, abstained
from gaugeway.text.abstention_phrases import PHRASES
from gaugeway.text.language import LANGUAGES
from tests.monitors.signals.answers import ANSWERS, DECLINES

DECLINING = [(name, text) for name, texts in DECLINES.items() for text in texts]
ANSWERING = [(name, text) for name, texts in ANSWERS.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), DECLINING)
def test_it_declines(name, text):
    assert abstained(text), name


@pytest.mark.parametrize(("name", "text"), ANSWERING)
def test_it_answers(name, text):
    assert not abstained(text), name


def test_every_language_has_examples_of_both_kinds():
    assert set(DECLINES) == set(ANSWERS) == set(PHRASES) == set(LANGUAGES)


@pytest.mark.parametrize(("name", "answer"), [(name, ANSWERS[name][0]) for name in PHRASES])
def test_a_refusal_with_an_answer_behind_it_answers(name, answer):
    for text in DECLINES[name]:
        assert not abstained(f"{text} {answer}"), text
        assert not abstained(f"{answer} {text}"), text


@pytest.mark.parametrize("text", ["", "  \n", "...", "42", "```\nI don't know\n```", "> I don't know.\nRestart it."])
def test_texts_without_a_statement_of_their_own_answer(text):
    assert not abstained(text)


def test_a_long_text_answers():
    assert not abstained("I don't know. " * LONGEST)


@pytest.mark.parametrize(
    "piece", ["i don't know if ", "the provided documents ", "in den ", "не ", "je ne ", ", ", "'", "“"]
)
def test_the_time_is_bounded_for_hostile_texts(piece):
    assert abstained((piece * LONGEST)[:LONGEST]) in (True, False)


LACKING = (
    "I am sorry, the passages do not contain that.",
    "I am sorry, the passages don't cover this topic.",
    "Sorry, the documents do not say how long the trial lasts.",
    "The provided context never states the fee for a second device.",
    "The excerpts do not name the manager.",
    "That is not in the documents I have.",
    "This question cannot be answered with the passages given.",
    "I'm afraid the passages are silent about returns.",
    "These passages do not allow me to answer.",
    "The context provided isn't sufficient to answer the question.",
    "I can't tell from the passages whether the lift is open.",
    "Es tut mir leid, die Textstellen enthalten das nicht.",
    "Die Dokumente nennen den Preis nicht.",
    "Das geht aus den Passagen nicht hervor.",
    "Leider steht in den Quellen nichts über die Garantie.",
    "Die Auszüge reichen nicht, um die Frage zu beantworten.",
    "Je regrette, les documents ne le disent pas.",
    "Les passages ne mentionnent pas le prix.",
    "Cela n'apparaît pas dans les extraits.",
    "Malheureusement, le contexte n'explique pas cela.",
    "Lo siento, los documentos no contienen eso.",
    "Las fuentes no indican el precio.",
    "Eso no aparece en los pasajes.",
    "Mi dispiace, i documenti non contengono questa risposta.",
    "Le fonti non indicano il prezzo.",
    "Questo non compare nei passaggi.",
    "Lamento, os documentos não contêm isso.",
    "As fontes não indicam o preço.",
    "Isso não aparece nos trechos.",
    "Het spijt me, de documenten bevatten dit niet.",
    "De bronnen noemen de prijs niet.",
    "Dat staat niet in de fragmenten.",
    "К сожалению, документы этого не объясняют.",
    "В источниках этого нет.",
    "للأسف، المصادر لا توضح ذلك.",
    "抱歉,资料里没有这方面的内容。",
    "文档没有解释这一点。",
    "申し訳ありませんが、資料には説明されていません。",
    "Üzgünüm, belgeler bunu açıklamıyor.",
    "The text you supplied doesn't touch the subject of insurance.",
    "Neither passage says whether pets are allowed.",
    "Sorry, I was unable to find the opening hours in the passages.",
    "The passages don't give that information, unfortunately.",
    "My documents do not go into that.",
    "I'm sorry, but nothing in the passages answers this.",
    "The retrieved context doesn't say.",
    "Keine der Textstellen beantwortet die Frage.",
    "Tut mir leid, aus dem Kontext kann ich das nicht ablesen.",
    "Die Dokumente geben dazu keine Auskunft.",
    "Aucun passage ne répond à cette question.",
    "Les documents fournis ne contiennent pas la réponse.",
    "Ninguno de los documentos responde a la pregunta.",
    "Los documentos no lo mencionan.",
    "Nessun documento risponde alla domanda.",
    "I passaggi non lo dicono.",
    "Nenhum dos trechos responde à pergunta.",
    "Geen van de passages beantwoordt de vraag.",
    "De passages zeggen daar niets over.",
    "文档并未提供这一信息。",
    "提供された文書には答えが含まれていません。",
    "В предоставленных отрывках ответа нет.",
)
SAYING = (
    "I'm sorry for the trouble, the parcel arrives on Monday.",
    "The insurance does not cover theft.",
    "The documents state no visa is needed.",
    "The passages say the fee is not refundable.",
    "According to the documents, children do not pay.",
    "The documents are not translated by us.",
    "The sources do not agree on the date.",
    "The text does not contain typos any more.. we fixed them.",
    "The context does not name a person, the footnote says it was Ada Lovelace.",
    "In the documents it says that you cannot cancel.",
    "It opens at nine, the documents do not mention Sundays.",
    "The handbook says that employees do not have to answer calls at night.",
    "We do not store the texts that you send.",
    "Laut den Dokumenten ist keine Anzahlung nötig.",
    "In den Dokumenten steht, dass kein Visum nötig ist.",
    "Die Quellen sagen, dass er nicht kommt.",
    "Aus den Unterlagen geht hervor, dass keine Gebühr anfällt.",
    "Die Texte sind nicht barrierefrei.",
    "Selon les documents, vous ne payez rien.",
    "Les passages disent que vous ne devez pas payer.",
    "Los documentos dicen que no se paga.",
    "Según las fuentes, no hay que pagar.",
    "I documenti dicono che non si paga.",
    "Os documentos dizem que não se paga.",
    "Volgens de documenten hoeft u niet te betalen.",
    "De documenten zeggen dat u geen visum nodig heeft.",
    "Согласно документам, платить не нужно.",
    "В документах сказано, что виза не нужна.",
    "根据文件,不需要付款。",
    "文件说明不需要签证。",
    "資料によると、料金はかかりません。",
    "資料にはビザは必要ないと書かれています。",
    "Belgelere göre ödeme gerekmez.",
    "I'm sorry, the passage through the old town is closed today.",
    "You do not have to provide documents that the bank already has.",
    "The article you returned does not include the charger, so we refund 80 euros.",
    "The text on the label does not contain the word organic by accident.",
    "No documents are stored after 30 days.",
    "This is not covered by your plan, but you can upgrade.",
    "The context manager does not release the lock until the block ends.",
    "Sources say nothing was stolen; the museum reopens Friday.",
    "The document does not have to be signed by a witness.",
    "The records show no payment since May, so the account is closed.",
    'If the passages do not answer the question, reply with "I don\'t know".',
    "The handbook does not allow overtime without approval.",
    "Your documents do not give you the right to work in Norway.",
    "The material does not contain latex.",
    "Die Unterlagen enthalten keine Lösungsmittel, sie sind lebensmittelecht.",
    "Der Text darf keine Rechtschreibfehler enthalten.",
    "Die Dokumente geben Ihnen nicht das Recht zu arbeiten.",
    "Les documents ne donnent pas le droit de travailler.",
    "Le texte ne doit pas dépasser 200 mots.",
    "Los textos no deben superar 200 palabras.",
    "Los documentos no dan derecho a trabajar.",
    "I documenti non danno diritto a lavorare.",
    "Il testo non deve superare le 200 parole.",
    "O texto não deve passar de 200 palavras.",
    "De tekst mag niet langer zijn dan 200 woorden.",
    "文件不得超过10MB。",
    "资料不需要寄回。",
    "資料の返送は必要ありません。",
    "Текст не должен превышать 200 слов.",
    "Документы не дают права на работу.",
)


@pytest.mark.parametrize("text", LACKING)
def test_an_answer_declines_where_the_passages_lack_what_was_asked(text):
    assert abstained(text)


@pytest.mark.parametrize("text", SAYING)
def test_an_answer_about_the_passages_answers(text):
    assert not abstained(text)
