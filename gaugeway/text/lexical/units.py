"""The names of scales and units."""

from __future__ import annotations

# Powers of ten. "Billion" is the English one: the German 10^12 is rare, and written "Billionen" mostly.
SCALES: dict[str, int] = {
    word: power
    for power, words in (
        (2, "hundred hundert"),
        (3, "thousand k tausend tsd mille mil mila \u5343 \ucc9c"),
        (4, "\u4e07 \u842c \ub9cc"),
        (5, "lakh"),
        (6, "million millions mn mio millionen mill\u00f3n millones milione milioni milh\u00f5es miljoen"),
        (7, "crore"),
        (8, "\u5104 \u4ebf \uc5b5"),
        (9, "billion billions bn b milliard milliards milliarde milliarden mrd miljard miliardi"),
        (12, "trillion trillions tn billionen billones \u5146"),
    )
    for word in words.split()
}
# What a unit may be called -> the unit compared, its power of ten, and what it counts as among the words. Words of
# several meanings ("pound", "won") stay out.
UNITS: dict[str, tuple[str, int, str]] = {
    alias: (base, shift, aliases.split()[0])
    for base, shift, aliases in (
        ("percent", 0, "percent % pct prozent pourcent procent"),
        ("permille", 0, "permille \u2030 promille"),
        ("usd", 0, "usd $ dollar dollars dólares"),
        ("eur", 0, "eur \u20ac euro euros"),
        ("gbp", 0, "gbp \u00a3"),
        ("jpy", 0, "jpy \u00a5 yen"),
        ("inr", 0, "inr \u20b9 rupee rupees"),
        ("krw", 0, "krw \u20a9"),
        ("chf", 0, "chf franken"),
        ("cent", 0, "cent cents"),
        ("m", 0, "m metre metres meter meters metern metros mètres mètre"),
        ("m", 3, "km kilometre kilometres kilometer kilometers kilometern kilómetros kilomètres"),
        ("m", -2, "cm centimetre centimetres centimeter centimeters zentimeter"),
        ("m", -3, "mm millimetre millimetres millimeter millimeters"),
        ("mile", 0, "mile miles meilen"),
        ("foot", 0, "ft foot feet"),
        ("inch", 0, "inch inches zoll"),
        ("kg", 0, "kg kilogram kilograms kilogramm kilo kilos"),
        ("kg", -3, "g gram grams gramm grammes gramos"),
        ("kg", -6, "mg milligram milligrams"),
        ("kg", 3, "tonne tonnes tonnen"),
        ("litre", 0, "l litre litres liter liters litern litros"),
        ("litre", -3, "ml millilitre millilitres milliliter"),
        ("km/h", 0, "km/h kmh kph"),
        ("mph", 0, "mph"),
        ("watt", 0, "w watt watts"),
        ("watt", 3, "kw kilowatt kilowatts"),
        ("watthour", 3, "kwh"),
        ("byte", 3, "kb kilobyte kilobytes"),
        ("byte", 6, "mb megabyte megabytes"),
        ("byte", 9, "gb gigabyte gigabytes"),
        ("byte", 12, "tb terabyte terabytes"),
        ("hertz", 0, "hz hertz"),
        ("hertz", 6, "mhz"),
        ("hertz", 9, "ghz"),
        ("celsius", 0, "celsius \u00b0c"),
        ("fahrenheit", 0, "fahrenheit \u00b0f"),
        ("degree", 0, "degree \u00b0 degrees grad degrés grados"),
        ("second", -3, "ms millisecond milliseconds millisekunden"),
        ("second", 0, "sec secs second seconds sekunde sekunden seconde secondes segundo segundos"),
        ("minute", 0, "min mins minute minutes minuten minuto minutos"),
        ("hour", 0, "h hr hrs hour hours stunde stunden heure heures hora horas"),
        ("day", 0, "day days tag tage tagen jour jours día días"),
        ("week", 0, "week weeks woche wochen semaine semaines semana semanas"),
        ("month", 0, "month months monat monate monaten mois mes meses"),
        ("year", 0, "year years yr yrs jahr jahre jahren ans année années año años"),
    )
    for alias in aliases.split()
}
