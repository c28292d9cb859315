"""In which language check and hint answer: that of COURSE_LANGUAGE, from zh_CN.mo beside this file,
which `make translations` writes, and from that of the tool. What has no translation stays English.
"""

from pathlib import Path

from double_backward.phrases import FOLDERS, Phrase, in_language, joined, language

__all__ = ["Phrase", "in_language", "joined", "language", "sentences"]


def sentences(*parts: str) -> str:
    """One after another, without those that say nothing."""
    return joined("{} {}", filter(None, parts))


if Path(__file__).parent not in FOLDERS:
    FOLDERS.append(Path(__file__).parent)
