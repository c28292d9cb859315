"""`make seen PAGE=docs/GLOSSARY.zh-CN.md`: this page says what its English page says today.

A page in Chinese is a file of its own, which nothing updates. translations/zh_CN/seen.txt has each
paragraph of both pages that somebody has compared: a hash, and the first words. A test names what
is another one since, in either language.
"""

import hashlib
import re
import sys

from .carry import ROOT

SEEN = ROOT / "translations" / "zh_CN" / "seen.txt"
FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
BETWEEN = re.compile(r"\n(?: *\n)+|\n(?=\|)")  # an empty line, or the next row of a table
# What commands write into both languages at the same time.
BY_COMMAND = re.compile(
    r"<!-- ([\w ]+) -->[\s\S]*?<!-- /\1 -->"
    r"|(?<=\| )\d+(?: \(\d+\))?(?= \|)"  # minutes
    r"|(?<=^### Lesson \d: )\d+|(?<=^### 第 \d 课：)\d+"
    r"|^English · \[中文\].*|^\[English\].*",
    re.MULTILINE,
)
FIRST_WORDS = 60


def main(names):
    stored, known = read(), [page_name(path) for path in pages()]
    for name in names:
        if name not in known:
            sys.exit(f"PAGE= is one of {', '.join(known)}, or several in quotes.")
        for what, texts in zip(("new", "gone"), changed(name), strict=True):
            for first_words in texts:
                print(f"{what}: {first_words}")
        stored |= {file: paragraphs(text_of(file)) for file in both(name)}
    files = [file for name in known for file in both(name)]
    SEEN.write_text("\n".join(written(file, stored[file]) for file in files), encoding="utf-8")
    print(f"Stored: {', '.join(names)} says what the English says today.")


def pages():
    return [ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.zh-CN.md"))]


def page_name(path):
    return path.relative_to(ROOT).as_posix()


def both(name):
    """The English page, then the one in Chinese."""
    return name.replace(".zh-CN", ""), name


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def parts(text):
    """Each paragraph and each row of a table, as one line."""
    for piece in FENCED.split(BY_COMMAND.sub("", text)):
        for part in [piece] if FENCED.match(piece) else BETWEEN.split(piece):
            if line := " ".join(part.split()):
                yield line


def paragraphs(text):
    """Dict from a hash to the first words, of each of its `parts`."""
    return {
        hashlib.sha256(line.encode()).hexdigest()[:8]: line[:FIRST_WORDS].strip()
        for line in parts(text)
    }


def read():
    """Dict from the name of a page to what `paragraphs` said of it."""
    text = SEEN.read_text(encoding="utf-8") if SEEN.exists() else ""
    parts = re.split(r"^# (.+)\n", text, flags=re.MULTILINE)
    return {
        name: dict(line.split(" ", 1) for line in lines.splitlines() if line)
        for name, lines in zip(parts[1::2], parts[2::2], strict=True)
    }


def written(name, found):
    return "\n".join([f"# {name}", *(f"{hashed} {words}" for hashed, words in found.items()), ""])


def changed(name):
    """The first words of what stands in the two pages and was not seen, and of what is gone."""
    stored, new, gone = read(), [], []
    for file in both(name):
        now, then = paragraphs(text_of(file)), stored.get(file, {})
        new += [now[hashed] for hashed in now if hashed not in then]
        gone += [then[hashed] for hashed in then if hashed not in now]
    return new, gone


if __name__ == "__main__":
    main(sys.argv[1:])
