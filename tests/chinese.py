"""What is still English in a text that a reader of Chinese alone is shown."""

import re

# Code, and what torch, Python or the reader's own code says.
QUOTED = re.compile(r"`[^`]*`|报错(?:：| \w+: )[^（]*|“[^”]*”")
SENTENCE = re.compile(r"[A-Za-z]{2,}(?: [A-Za-z]{2,}){2,}")
HAN = re.compile("[\u4e00-\u9fff]")


def english_in(text):
    """Three English words in a row, or more, that are no code."""
    return SENTENCE.findall(QUOTED.sub("`x`", " ".join(text.split())))


def columns(line):
    return len(line) + len(re.findall("[\u2e80-\u9fff\uff00-\uff60]", line))
