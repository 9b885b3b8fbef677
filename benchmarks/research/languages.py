"""How well a model reads languages: the same dialog in ten of them, with all of the cache.

    python -m benchmarks.research.languages [MODEL]

Prints tokens for each character, and the loss of the model, in nats for each token, character and
byte of UTF-8. The translations are this project's own, and short: small differences mean nothing.
"""

import sys

from fdkvc.core.transcripts import Transcript, Turn
from fdkvc.models.answers import FULL, Answers, run_answers
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.policies import read_policy
from fdkvc.runs.grid import Grid

DIALOGS = {
    "English": (
        "Hello, I am looking for a hotel in Lisbon for three nights, from the fourth of May. It "
        "should be quiet, and not far from the river.",
        "There are two hotels near the river. The first has a garden and costs ninety euros a "
        "night; the second is cheaper, but it stands on a busy street.",
        "I would rather have the garden. Is breakfast included, and can we arrive late at night?",
        "Breakfast is included until ten in the morning. The door is open all night, so you can "
        "arrive whenever you like. Shall I book a room for two people?",
        "Yes, please. My wife does not like stairs, so a room on the first floor would be best.",
    ),
    "German": (
        "Guten Tag, ich suche ein Hotel in Lissabon für drei Nächte, ab dem vierten Mai. Es sollte "
        "ruhig sein und nicht weit vom Fluss.",
        "Es gibt zwei Hotels in der Nähe des Flusses. Das erste hat einen "
        "Garten und kostet neunzig "
        "Euro pro Nacht; das zweite ist günstiger, liegt aber an einer lauten Straße.",
        "Ich hätte lieber den Garten. Ist das Frühstück dabei, und können wir spät in der Nacht "
        "ankommen?",
        "Frühstück gibt es bis zehn Uhr morgens. Die Tür ist die ganze Nacht "
        "offen, Sie können also "
        "kommen, wann Sie möchten. Soll ich ein Zimmer für zwei Personen buchen?",
        "Ja, bitte. Meine Frau mag keine Treppen, deshalb wäre ein Zimmer im "
        "ersten Stock am besten.",
    ),
    "French": (
        "Bonjour, je cherche un hôtel à Lisbonne pour trois nuits, à partir du quatre mai. Il "
        "devrait être calme et pas loin du fleuve.",
        "Il y a deux hôtels près du fleuve. Le premier a un jardin et coûte quatre-vingt-dix euros "
        "la nuit ; le second est moins cher, mais il donne sur une rue animée.",
        "Je préfère le jardin. Le petit déjeuner est-il compris, et pouvons-nous arriver tard dans "
        "la nuit ?",
        "Le petit déjeuner est compris jusqu'à dix heures du matin. La porte est ouverte toute la "
        "nuit, vous pouvez donc arriver quand vous voulez. Dois-je réserver "
        "une chambre pour deux ?",
        "Oui, s'il vous plaît. Ma femme n'aime pas les escaliers, une chambre au premier étage "
        "serait donc la meilleure.",
    ),
    "Spanish": (
        "Hola, busco un hotel en Lisboa para tres noches, a partir del cuatro de mayo. Debería ser "
        "tranquilo y no estar lejos del río.",
        "Hay dos hoteles cerca del río. El primero tiene un jardín y cuesta "
        "noventa euros la noche; "
        "el segundo es más barato, pero está en una calle muy transitada.",
        "Prefiero el jardín. ¿Está incluido el desayuno, y podemos llegar tarde por la noche?",
        "El desayuno está incluido hasta las diez de la mañana. La puerta está abierta toda la "
        "noche, así que pueden llegar cuando quieran. ¿Reservo una habitación para dos personas?",
        "Sí, por favor. A mi mujer no le gustan las escaleras, así que lo mejor sería una "
        "habitación en el primer piso.",
    ),
    "Polish": (
        "Dzień dobry, szukam hotelu w Lizbonie na trzy noce, od czwartego maja. Powinien być cichy "
        "i niedaleko rzeki.",
        "W pobliżu rzeki są dwa hotele. Pierwszy ma ogród i kosztuje dziewięćdziesiąt euro za noc; "
        "drugi jest tańszy, ale stoi przy ruchliwej ulicy.",
        "Wolę ten z ogrodem. Czy śniadanie jest wliczone i czy możemy przyjechać późno w nocy?",
        "Śniadanie jest wliczone do dziesiątej rano. Drzwi są otwarte całą noc, więc mogą państwo "
        "przyjechać, kiedy chcą. Czy mam zarezerwować pokój dla dwóch osób?",
        "Tak, proszę. Moja żona nie lubi schodów, więc najlepszy byłby pokój na pierwszym piętrze.",
    ),
    "Russian": (
        "Здравствуйте, я ищу гостиницу в Лиссабоне на три ночи, с четвёртого мая. Она должна быть "
        "тихой и недалеко от реки.",
        "Рядом с рекой есть две гостиницы. В первой есть сад, и она стоит девяносто евро за ночь; "
        "вторая дешевле, но стоит на шумной улице.",
        "Я предпочёл бы сад. Включён ли завтрак, и можем ли мы приехать поздно ночью?",
        "Завтрак включён до десяти утра. Дверь открыта всю ночь, так что вы можете приехать, когда "
        "захотите. Забронировать номер на двоих?",
        "Да, пожалуйста. Моя жена не любит лестницы, поэтому лучше всего номер на первом этаже.",
    ),
    "Arabic": (
        "مرحبا، أبحث عن فندق في لشبونة لثلاث ليال ابتداء من الرابع من مايو. يجب أن يكون هادئا وغير "
        "بعيد عن النهر.",
        "يوجد فندقان بالقرب من النهر. الأول فيه حديقة وسعره تسعون يورو في الليلة، والثاني أرخص "
        "لكنه يقع في شارع مزدحم.",
        "أفضل الحديقة. هل الإفطار مشمول، وهل يمكننا الوصول في وقت متأخر من الليل؟",
        "الإفطار مشمول حتى العاشرة صباحا. الباب مفتوح طوال الليل، لذلك يمكنكم الوصول متى شئتم. هل "
        "أحجز غرفة لشخصين؟",
        "نعم من فضلك. زوجتي لا تحب السلالم، لذلك من الأفضل أن تكون الغرفة في الطابق الأول.",
    ),
    "Hindi": (
        "नमस्ते, मैं लिस्बन में चार मई से तीन रातों के लिए एक होटल ढूँढ रहा "
        "हूँ। वह शांत होना चाहिए और नदी से दूर नहीं।",
        "नदी के पास दो होटल हैं। पहले में एक बगीचा है और उसका किराया नब्बे यूरो प्रति रात है; दूसरा सस्ता है, "
        "लेकिन वह एक व्यस्त सड़क पर है।",
        "मुझे बगीचे वाला पसंद है। क्या नाश्ता शामिल है, और क्या हम देर रात को आ सकते हैं?",
        "नाश्ता सुबह दस बजे तक शामिल है। दरवाज़ा पूरी रात खुला रहता है, इसलिए आप जब चाहें आ सकते हैं। क्या मैं दो "
        "लोगों के लिए कमरा बुक कर दूँ?",
        "हाँ, कृपया। मेरी पत्नी को सीढ़ियाँ पसंद नहीं हैं, इसलिए पहली मंज़िल का कमरा सबसे अच्छा होगा।",
    ),
    "Chinese": (
        "你好，我想在里斯本找一家酒店，从五月四日起住三个晚上。要安静，离河不远。",
        "河边有两家酒店。第一家有花园，每晚九十欧元；第二家便宜一些，但是在一条热闹的街上。",
        "我更喜欢有花园的。包括早餐吗？我们可以深夜到达吗？",
        "早餐供应到上午十点。大门整夜开着，所以你们什么时候到都可以。要我预订一间双人房吗？",
        "好的，谢谢。我妻子不喜欢爬楼梯，所以最好是一楼的房间。",
    ),
    "Japanese": (
        "こんにちは。五月四日から三泊、リスボンでホテルを探しています。静かで、川から遠くない所がいいです。",
        "川の近くにホテルが二つあります。一つ目には庭があり、一泊九十ユーロです。二つ目は安いですが、にぎやかな通りにあります。",
        "庭のあるほうがいいです。朝食は付いていますか。夜遅く着いても大丈夫ですか。",
        "朝食は午前十時まで付いています。入り口は一晩中開いているので、いつ着いても大丈夫です。二人用の部屋を予約しましょうか。",
        "はい、お願いします。妻は階段が好きではないので、一階の部屋が一番いいです。",
    ),
}
"""The turns of a user and an assistant by language."""


def main(name: str = "smollm2") -> None:
    """Print how well a model reads each language."""
    model, rows = shared_language_model(name), list[list[str]]()
    for language, texts in DIALOGS.items():
        turns = [
            Turn("assistant" if place % 2 else "user", text) for place, text in enumerate(texts)
        ]
        dialog = Transcript(language, tuple(turns))
        table = run_answers(Answers((read_policy("fifo"),), (8192,)), model, [dialog], workers=1)
        nats = table[(table.policy == FULL) & (table.metric == "nats")].iloc[0]
        text = "".join(texts)
        tokens, loss = sum(model.tokens.count_by_turn(dialog)), nats.value * nats["count"]
        cells = [f"{tokens / len(text):.2f}", f"{nats.value:.2f}", f"{loss / len(text):.2f}"]
        rows.append([language, *cells, f"{loss / len(text.encode()):.2f}"])
    heads = ["language", "tokens/character", "nats/token", "nats/character", "nats/byte"]
    print(Grid(heads, rows).markdown())


if __name__ == "__main__":
    main(*sys.argv[1:])
