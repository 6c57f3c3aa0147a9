"""The names of scales and units."""

from __future__ import annotations

from gaugeway.data_files import table

_TABLE = table("gaugeway.text.lexical", "units.toml")
SCALES: dict[str, int] = {word: int(power) for power, words in _TABLE["scales"].items() for word in words.split()}
UNITS: dict[str, tuple[str, int, str]] = {
    alias: (base, int(shift), aliases.split()[0])
    for base, by_shift in _TABLE["units"].items()
    for shift, aliases in by_shift.items()
    for alias in aliases.split()
}
"""What a unit may be called -> the unit compared, its power of ten, and what it counts as among the words."""
