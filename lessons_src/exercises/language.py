"""In which language check and hint answer: that of COURSE_LANGUAGE, from zh_CN.mo beside this file,
which `make translations` writes, and from that of the tool. What has no translation stays English.
A teacher's answers to wrong answers have a folder of their own, which students' copies leave out.
"""

from pathlib import Path

from double_backward.phrases import FOLDERS, Phrase, in_language, joined, language

__all__ = ["Phrase", "in_language", "joined", "language", "sentences"]


def sentences(*parts: str) -> str:
    """One after another, without those that say nothing."""
    return joined("{} {}", filter(None, parts))


WRONG_ANSWERS = Path(__file__).parent / "wrong_answers"
FOLDERS += [each for each in (Path(__file__).parent, WRONG_ANSWERS) if each not in FOLDERS]
