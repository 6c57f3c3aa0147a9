"""How often a refusal is recognised, and an answer taken for one: made-up answers written after the patterns.

    .venv/bin/python -m benchmarks.detection.abstention

Refusals recognised, and answers taken for one, at first: 50 of 62 and 2 of 66 of the first set; 9 of 121 and 7 of 77 of
the second (short and decorated ones); 15 of 40 and 2 of 24 of the third, written after the patterns for the second. The
patterns were corrected after each set, so that today's figures say less about wordings that the patterns do not cover.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.detection import abstention_decorated, abstention_held_out
from gaugeway.text.abstention import abstained

DECLINES = {
    "en": (
        "I don't have that information available right now.",
        "The documentation you gave me doesn't say anything about pricing for enterprise customers.",
        "Hmm, I'm not certain about that one.",
        "That isn't covered in the retrieved passages.",
        "I'm unable to answer this based on the context provided.",
        "None of the provided documents mention a cancellation fee.",
        "I could not find a relevant answer in the knowledge base. Could you rephrase your question?",
        "Sorry, I do not know who wrote the report.",
        "As an AI language model, I cannot provide legal advice.",
        "I must decline to answer that.",
        "The context provided does not include details on the side effects of the drug.",
        "Unfortunately, I don't have access to your order history, so I can't tell you when it will arrive.",
        "There isn't enough information in the context to determine the launch date.",
        "Based on the documents, it is not possible to say which team won.",
        "I have no information about the new tariff. Please check our website.",
        "My apologies, but this is beyond what I can answer.",
        "The text doesn't specify the author's age.",
        "No information about visas is given in the sources.",
    ),
    "de": (
        "Hierzu liegen mir leider keine Angaben vor.",
        "Die vorliegenden Texte sagen nichts darüber aus, wann der Bahnhof eröffnet wurde.",
        "Das kann ich Ihnen leider nicht sagen.",
        "Der Kontext enthält keine Informationen über die Kosten.",
        "Diese Frage kann ich auf Grundlage der Dokumente nicht beantworten.",
        "Dazu finde ich in den Unterlagen nichts.",
        "Entschuldigung, dabei kann ich Ihnen nicht weiterhelfen.",
        "In den Dokumenten wird der Name des Gründers nicht genannt.",
    ),
    "fr": (
        "Je n'ai pas trouvé cette information dans les documents.",
        "Le texte fourni ne dit rien sur les frais d'annulation.",
        "Je regrette, mais je ne suis pas en mesure de répondre.",
        "Aucune information sur ce point n'est disponible.",
        "Ces documents ne permettent pas de répondre à la question.",
    ),
    "es": (
        "No dispongo de información sobre los precios.",
        "Los textos proporcionados no dicen nada sobre el plazo de entrega.",
        "Perdón, no puedo ayudarle con esa solicitud.",
        "No hay información suficiente para determinar la fecha.",
        "El documento no indica el nombre del autor.",
    ),
    "it": (
        "Nei documenti non ci sono informazioni sui prezzi.",
        "Non sono in grado di rispondere a questa domanda.",
        "Il testo non specifica la data di apertura.",
    ),
    "pt": (
        "Os documentos fornecidos não dizem nada sobre o preço.",
        "Não tenho essa informação.",
        "Não consigo responder a essa pergunta.",
    ),
    "nl": (
        "Hier heb ik geen informatie over.",
        "De tekst zegt niets over de prijs.",
        "Die vraag kan ik niet beantwoorden.",
    ),
    "tr": ("Bu soruya cevap veremiyorum.", "Belgelerde fiyat bilgisi yer almıyor."),
    "ru": ("Мне это неизвестно.", "В тексте ничего не сказано о цене.", "Я не могу ответить на этот вопрос."),
    "hi": ("मैं इस सवाल का जवाब नहीं दे सकती।", "संदर्भ में इसका उल्लेख नहीं है।"),
    "ar": ("لم أجد إجابة في الوثائق.", "لا يمكنني الإجابة عن هذا السؤال."),
    "zh": ("资料里没有说明价格。", "对不起，我不清楚。", "我没有找到答案。"),
    "ja": ("その点については資料に記載がありません。", "お答えできません。", "価格はわかりません。"),
    "ko": ("문서에 가격이 나와 있지 않습니다.", "그 내용은 알 수 없습니다."),
}
ANSWERS = {
    "en": (
        "No, the documents you need are not available online; order them by post.",
        "I can't stress enough how important a backup is: make one every day.",
        "You don't need any documents for this.",
        "The sources do not agree: one says 1912, the other 1914.",
        "There is no fee for cancelling within 24 hours.",
        "Unfortunately no, the pool is closed in winter.",
        "If you cannot find the answer in the manual, call our hotline at extension 4.",
        "The committee could not determine the cause of the fire.",
        "I'm sorry for the delay. Your refund of 40 euros was sent yesterday.",
        "It does not contain nuts.",
        "The information is stored for ninety days.",
        "According to section 2, employees who are not sure whether a gift is allowed must ask their manager.",
        "He does not know the password.",
        "The text does not mention the author by name, but the preface is signed by the editor, J. Miller.",
        "We do not share your information with third parties.",
        "I do not have the exact figure, but it was around 4 million.",
        "The document was not signed by the tenant.",
        "No results are published before March.",
        "You may not be able to access the account from abroad.",
        "It is not known when the castle was built.",
        "There is not enough memory to load the model. Close other programs.",
        "Employees cannot answer customer emails after 6 pm.",
        "That feature is not included in the basic plan.",
        "The knowledge base is not updated on weekends.",
    ),
    "de": (
        "Nein, dafür brauchen Sie keine Unterlagen.",
        "In den Dokumenten steht, dass die Frist 14 Tage beträgt.",
        "Der Vertrag enthält keine Angabe zum Preis, er verweist aber auf die Preisliste: 40 Euro.",
        "Das Kind weiß nicht, wo es wohnt.",
        "Es gibt keine Kündigungsfrist.",
        "Tut mir leid für die Verspätung. Das Paket kommt heute.",
        "Ich kann Ihnen das Modell B empfehlen.",
        "Wir geben keine Informationen an Dritte weiter.",
    ),
    "fr": (
        "Non, il n'y a pas de frais d'annulation.",
        "Le contrat ne précise pas le prix, mais la liste indique 40 euros.",
        "Vous n'avez pas besoin de documents.",
        "Les sources ne sont pas d'accord : 1912 ou 1914.",
    ),
    "es": (
        "No, no hay cargos por cancelación.",
        "No se permiten mascotas en el hotel.",
        "Los documentos no están firmados.",
        "No tengo la cifra exacta, pero fueron unos cuatro millones.",
    ),
    "it": ("No, non ci sono penali.", "I documenti non sono firmati.", "Non serve alcun documento."),
    "pt": ("Não, não há taxa de cancelamento.", "Os documentos não foram assinados.", "Não é preciso documento."),
    "nl": ("Nee, er zijn geen kosten.", "De documenten zijn niet ondertekend.", "U hebt geen documenten nodig."),
    "tr": ("Hayır, iptal ücreti yok.", "Belgeler imzalanmadı."),
    "ru": ("Нет, плата не взимается.", "Документы не подписаны.", "Он не знает пароля."),
    "hi": ("नहीं, कोई रद्दीकरण शुल्क नहीं है।", "दस्तावेज़ पर हस्ताक्षर नहीं हैं।"),
    "ar": ("لا، لا توجد رسوم إلغاء.", "الوثائق غير موقعة."),
    "zh": ("不需要任何文件。", "没有取消费用。", "文件没有签名。"),
    "ja": ("いいえ、キャンセル料はかかりません。", "書類は必要ありません。", "文書には署名がありません。"),
    "ko": ("아니요, 취소 수수료는 없습니다.", "문서가 필요하지 않습니다."),
}


def measure(declines: Mapping[str, tuple[str, ...]], answers: Mapping[str, tuple[str, ...]]) -> None:
    """Print the rates by language, and the texts that are taken for the other kind."""
    print("| language | refusals recognised | answers taken for a refusal |\n|---|---|---|")
    hits = misses = wrong = right = 0
    for name, texts in declines.items():
        missed = [text for text in texts if not abstained(text)]
        false = [text for text in answers[name] if abstained(text)]
        hits, misses = hits + len(texts) - len(missed), misses + len(missed)
        wrong, right = wrong + len(false), right + len(answers[name]) - len(false)
        found = len(texts) - len(missed)
        print(f"| {name} | {found} of {len(texts)} | {len(false)} of {len(answers[name])} |")
        for text in missed:
            print(f"    missed: {text}")
        for text in false:
            print(f"    FALSE: {text}")
    print(f"| all | {hits} of {hits + misses} | {wrong} of {wrong + right} |\n")


def main() -> int:
    measure(DECLINES, ANSWERS)
    measure(abstention_decorated.DECLINES, abstention_decorated.ANSWERS)
    measure(abstention_decorated.LATER_DECLINES, abstention_decorated.LATER_ANSWERS)
    measure(abstention_held_out.DECLINES, abstention_held_out.ANSWERS)
    measure(abstention_held_out.LATER_DECLINES, abstention_held_out.LATER_ANSWERS)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
