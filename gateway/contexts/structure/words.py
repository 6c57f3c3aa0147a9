"""Words that name the parts of prompts, in the languages prompts are written in; `word_index` searches them.

A trailing star matches any ending. Words of scripts without spaces are matched anywhere.
"""

from __future__ import annotations


def vocabulary(listed: str) -> list[str]:
    """Return the words of a space-separated list."""
    return listed.split()


CONTEXT = """
context|contexts|contextual information|source|sources|passage|passages|excerpt|excerpts|snippet|snippets|chunk|
chunks|
knowledge|knowledge base|kb|retrieved|retrieval|reference|references|citation|citations|evidence|fact|facts|extract|
extracts|
extracted parts|search result|search results|search hits|web results|search_results|faq|faqs|corpus|
kontext*|kontekst*|quelle|quellen|auszug|auszüge*|textauszug|textauszüge*|wissensbasis|wissensdatenbank|fakten|
textabschnitt*|textstelle*|fundstelle*|
suchergebnis*|belege|
contexte|contextes|extrait|extraits|connaissances|base de connaissances|faits|résultats de recherche|
contexto|contextos|fuente|fuentes|fragmento|fragmentos|pasaje|pasajes|extracto|extractos|base de conocimiento*|
resultados de búsqueda|
contesto|fonte|fonti|brano|brani|estratto|estratti|frammento|frammenti|base di conoscenza|
fontes|trecho|trechos|excerto|excertos|base de conhecimento|resultados da pesquisa|
bron|bronnen|fragmenten|kennisbank|zoekresultaten|
контекст*|источник*|фрагмент*|отрыв*|выдержк*|база знаний|базы знаний|результаты поиска|
źródł*|fragment*|baza wiedzy|bağlam*|kaynak*|bilgi tabanı|alıntı*|ngữ cảnh|nguồn|konteks|sumber|källor|kontextus*|
forrás*|zdroj*|
上下文|已知信息|已知内容|参考资料|参考信息|参考内容|参考文档|参考文献|知识库|背景信息|背景知识|检索结果|检索内容|
检索到的|搜索结果|片段|引用内容|資料來源|參考資料|知識庫|
コンテキスト|文脈|参考情報|参考資料|検索結果|抜粋|情報源|関連情報|出典|参照情報|
문맥|컨텍스트|맥락|참고 자료|참고자료|참고 문서|참고문서|참고 정보|검색 결과|검색된|출처|발췌|지식 베이스|
recuperad*|récupéré*|abgerufene*|recuperat*|opgehaald*|извлечённ*|извлеченн*|найденны*|
السياق|المصادر|المقاطع|المقتطفات|النصوص|संदर्भ|บริบท|הקשר|מקורות
"""
"""Unambiguous names of retrieved text."""

PASTED = """
document|documents|doc|docs|documentation|article|articles|manual|manuals|post|posts|paper|papers|page|pages|
paragraph|paragraphs|
section|sections|segment|segments|statute|statutes|clause|clauses|file|files|record|records|entries|results|result|hits|matches|materials|material|resources|
content|
contents|text|texts|
dokument*|artikel|abschnitt*|dokumentation|texte|inhalt*|unterlagen|documento|documentos|artículo*|documenti|artigo*|
documenten|teksten|documentación|documentação|documentazione|documentatie|dokumentacj*|документаци*|
документ*|стать*|текст*|материал*|dokumenty|teksty|belge*|doküman*|metin*|tài liệu|dokumen|dokumentum*|dokumenty|
资料|文档|文檔|文献|文件|檔案|材料|相关内容|内容|內容|文章|文書|ドキュメント|資料|記事|문서|자료|المستندات|الوثائق|
दस्तावेज़|เอกสาร|מסמכים
"""
"""Names of text that is retrieved, or pasted by a user."""

WEAK = """
information|info|infos|data|notes|note|background|details|memory|memories|input|database|website|
informationen|informations|hintergrund*|daten|renseignements|données|información|datos|informazioni|dati|informações|
dados|informatie|gegevens|
информаци*|данны*|сведени*|informacj*|dane|bilgi*|thông tin|informasi|information bank|
信息|資訊|資料庫|情報|정보|معلومات|जानकारी|ข้อมูล|מידע
"""

QUESTION = """
question|questions|query|queries|user input|user_input|user message|user request|user prompt|inquiry|enquiry|
user asks|user asked|asked|user's message|customer message|customer's message|client message|
visitor message|guest message|employee message|follow-up message|followup message|new message|last message|
latest message|current message|
incoming message|message from the user|user's request|customer request|customer's request|new ticket|customer email|
customer's email|user says|
kundenmail|kundennachricht|kundenanfrage*|nachricht des nutzers|message de l'utilisateur|mensaje del usuario|
mensagem do usuário|messaggio dell'utente|сообщение пользователя|wiadomość użytkownika|
frage*|anfrage*|nutzerfrage*|benutzerfrage*|requête|pregunta*|consulta|domanda|domande|quesito|pergunta*|vraag*|
vragen|вопрос*|запрос*|
pytani*|zapytani*|soru|sorusu|sorunuz|soruyu|soruya|sorgu*|câu hỏi|pertanyaan|fråga*|frågor|kérdés*|dotaz*|otázk*|
问题|提问|用户问|用户输入|用户查询|問題|质问|質問|問い|クエリ|질문|질의|السؤال|سؤال|प्रश्न|सवाल|คำถาม|שאלה
"""

ANSWER = """
answer|answers|answering|respond|responding|response|responses|reply|antwort*|
réponse*|respuesta*|risposta|risposte|
resposta*|antwoord*|ответ*|odpowied*|yanıt*|cevap*|cevab*|trả lời|jawaban|svar|válasz*|odpověď|
回答|答案|解答|作答|答复|答え|答えて|답변|대답|الإجابة|الجواب|उत्तर|คำตอบ|תשובה
"""

INSTRUCTION = """
output format|response format|answer format|output style|
instruction|instructions|rule|rules|guideline|guidelines|task|role|goal|goals|objective|format|requirements|
requirement|constraints|remember|
reminder|important|example|examples|tone|style|step|steps|persona|warning|directives|directive|process|behavior|
capabilities|
anweisung*|regel|regeln|aufgabe*|hinweis*|wichtig|rolle|ziel|consigne*|règle*|tâche|rôle|objectif|instrucciones|
reglas|tarea|rol|objetivo|
istruzioni|regole|compito|ruolo|instruções|regras|tarefa|papel|instructies|regels|инструкци*|правил*|задач*|роль|
формат|zasady|instrukcj*|
kurallar*|talimat*|görev|hướng dẫn|指令|要求|任务|任務|角色|规则|注意事项|说明|步骤|示例|指示|ルール|タスク|役割|制約|
지시|규칙|역할|주의
"""

HISTORY = """
chat history|conversation history|dialogue history|message history|chat log|chat_history|previous conversation|
previous messages|history|
conversation|conversation so far|current conversation|gesprächsverlauf|chatverlauf|historique|historial|cronologia|
histórico|история|lịch sử|sohbet geçmişi|
历史|对话记录|历史对话|会話履歴|대화 기록|대화 내역
"""

BELOW = """
following|below|here is|here are|here's|voici|voilà|hier sind|hier ist|aquí|aqui está|aqui estão|ecco|hier zijn|вот|
oto|işte|between|delimited|surrounded|enclosed|within|folgende*|unten*|nachfolgend*|nachstehend*|
suivant|suivante|suivants|suivantes|ci-dessous|siguiente|siguientes|seguente|seguenti|seguinte|seguintes|abaixo|
a continuación|
volgende|onderstaande|следующ*|ниже*|poniższ*|następując*|aşağıda*|dưới đây|sau đây|berikut|
以下|下面|下列|如下|次の|下記|다음|아래|التالي|निम्न|ต่อไปนี้
"""
"""Words that point at the text that follows."""

POINTS = """
above|provided|given|these|those|this|inside|relevant|based|based on|using|use|from|solely|only|according|
oben|obige*|gegeben*|bereitgestellt*|anhand|basierend|ausschließlich|nur|mithilfe|auf grundlage|
fourni|fournie|fournis|fournies|uniquement|à partir|en utilisant|proporcionad*|dado|dada|dados|dadas|basándote|basado|
únicamente|usando|utiliza|
fornito|forniti|fornite|basandoti|utilizzando|solo|fornecid*|acima|com base|apenas|gegeven|op basis|приведенн*|
приведённ*|выше|предоставленн*|на основе|используя|
podan*|na podstawie|verilen*|dayanarak|kullanarak|dựa trên|dựa vào|berdasarkan|
上述|根据|根據|依据|依照|按照|参照|基于|利用|给定|提供|上記|基づ|もと|바탕|제공|주어진|참고하|기반|بناء على
"""
"""Words that point at text anywhere in the prompt."""

TASK = """
translate|translation|translating|summarize|summarise|summarizing|summary|proofread|proofreading|paraphrase|rephrase|
rewrite|rewriting|refactor|
compare the|compare these|
code review|review this|review the|review my|review the following|grammar|spelling|fix this|fix the|fix my|debug|
edit this|edit the|edit my|
improve this|improve the|improve my|polish|shorten|convert this|convert the|classify|sentiment|tl;dr|correct this|
correct the|correct my|explain this code|explain the code|explain the following code|explain this function|
explain what this does|what does this code|what does this function|what does this do|
extract all|extract the|extract any|extract key|extract structured|extract entities|extract names|port this|
übersetz*|fasse|zusammenfass*|korrigier*|überarbeite*|tradui*|traduction|résum*|corrige*|traduc*|resum*|traduz*|
riassum*|correggi|vertaal*|samenvat*|
перевед*|перевод*|резюмир*|сократи*|przetłumacz*|streść|çevir*|özetle*|dịch|tóm tắt|翻译|翻譯|总结|總結|摘要|概括|润色|
改写|校对|翻訳|要約|
校正|번역|요약|교정
"""
"""Tasks on a text the user gave: nothing was retrieved for them."""

UNKNOWING = """
don't know|dont know|do not know|don’t know|cannot answer|can't answer|unable to answer|make up|made up|
prior knowledge|
outside knowledge|own knowledge|hallucinate|not enough information|insufficient information|
weiß ich nicht|weißt|nicht weiß|nicht enthalten|keine antwort|no lo sé|no sé|no sabes|ne sais pas|ne savez pas|
ne connais pas|non lo so|non sai|não sei|não sabe|weet het niet|
не знаю|не знаешь|nie wiem|bilmiyorum|không biết|tidak tahu|不知道|无法回答|無法回答|未找到|編造|编造|わからない|
分からない|分かりません|わかりません|모른다|모르겠|
알 수 없
"""
"""Phrases about an unknown answer."""

ADDRESS = """
please|now|then|finally|first|you|your|you're|answer|respond|reply|use|using|do not|don't|don’t|if you|if the|
if there|if no|if it|if none|if unsure|if not|if a|given|
based on|provide|cite|write|remember|reminder|only|always|never|keep|make sure|ensure|return|be concise|be brief|
be polite|be friendly|be helpful|be precise|be specific|be as|
note that|note:|when|when answering|when you|when the|explain|think|let's|act as|act like|include|avoid|refer to|
according to|from the above|from the context|in your answer|
in your response|limit|quote|output|generate|give|create|format|take|read|consider|follow|stick to|state|say|
help the|help our|help your|help a|help users|help customers|help people|help them|ask|
hint|tip|
bitte|beantworte*|antworte*|nutze|verwende|wenn du|falls|du bist|sie sind|gib|réponds|répondez|utilise|utilisez|si tu|
si vous|si la|si les|si le|tu es|vous êtes|
en te basant|ne réponds|responde|responda|utiliza|utilice|usa|use|si no|si la|eres|se não|se a|você é|não|rispondi|
se non|sei un|usa|beantwoord|gebruik|als je|je bent|
ответь*|отвечай*|используй*|если|ты|вы|не|odpowiedz|użyj|jeśli|jesteś|cevapla*|yanıtla*|eğer|sen|bạn|hãy|nếu|jawab*|
请|根据|根據|基于|如果|你是|不要|回答|仅|只|若|務必|务必|必须|注意|以下|上記|あなた|もし|答え|必ず|당신|다음|만약|답변|
질문에
"""
"""First words of an instruction to the model."""

REQUEST = """
ください|下さい|なさい|하세요|해주세요|주세요|십시오|请|請|please|bitte|por favor|s'il vous plaît|per favore|
пожалуйста|proszę|lütfen
"""
"""Words that make a sentence a request at any position."""

ITSELF = """
context|retrieved|snippets|excerpts|passages|knowledge base|user question|user's question|the question|instructions|
tags|prompt|chat history|
kontext|wissensbasis|die frage|contexte|la question|contexto|la pregunta|a pergunta|contesto|la domanda|контекст|
вопрос|上下文|知识库|用户问题|コンテキスト|質問|컨텍스트|질문
"""
"""Words a prompt uses for its own parts, rare in passages."""

FILLER = frozenset(
    vocabulary(
        """a an the of for to and or in on with by user users your our my this these all is are no any some each nr n
        der         die das den dem zur zum von und des de la le les du et el los las y del e da do
        dos o os il lo i gli per di het
        een van en usuario utilisateur utente nutzers benutzers usuário użytkownika kullanıcı пользователя gebruiker
        client customer"""
    )
)
"""Words of a label without meaning of their own."""

PERSON = frozenset(
    vocabulary(
        """i i'm i've i’m my we we're our ich wir mein meine je j'ai nous mon ma yo soy tengo mi estoy io sono eu
        meu minha я мой 我 我们 私 僕 저는 나는"""
    )
)
"""First words of sentences in the first person."""


def last_words(text: str, most: int = 50) -> str:
    """Return the last words of a text, about `most` characters.

    >>> last_words("Answer!"), last_words("Use the following pieces of context to answer the question below.", 30)
    ('Answer!', '... answer the question below.')
    """
    if len(text) <= most:
        return text
    end = text[-most:]
    return f"... {end.partition(' ')[2] or end}"
