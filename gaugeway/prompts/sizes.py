"""The sizes, counts and shares by which the rules of prompt reading judge texts.

A rule takes the nearest of these instead of a number of its own: none was found to need a finer one.
"""

WORD = 12
"""Characters of a long word: a shorter text is no passage, and too short to be known again."""
LABEL = 40
"""Characters of a label, a name or a short title."""
LINE = 120
"""Characters of a line that may be a title, a field or a mark; a longer one is running text."""
PARAGRAPH = 400
"""Characters of a paragraph, or of a question."""
PAGE = 2_000
"""Characters of a long passage, or of instructions."""
CHAPTER = 65_536
"""Characters of a prompt with many passages."""
BOOK = 250_000
"""Characters of the longest text that is read."""

FEW = 3
"""What happens so often is no coincidence."""
SEVERAL = 8
"""Some things of one kind: lines around a passage, words of a title, attempts."""
MANY = 40
"""More things of one kind than the rules need to see."""
CROWD = 400
"""More than any prompt has that a person would read."""
REMEMBERED = 2_000
"""Entries of a cache."""

TENTH, QUARTER, HALF, MOSTLY, NEARLY_ALL = 0.1, 0.25, 0.5, 0.8, 0.9
"""Shares."""

OBJECT = 200
"""Bytes of a small object and its place in a dictionary, for estimates of what is held."""
