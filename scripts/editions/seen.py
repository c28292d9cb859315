"""`make seen PAGE=docs/GLOSSARY.zh-CN.md`: this page says what its English page says today.

A page in Chinese is a file of its own, which nothing updates. translations/zh_CN/seen.txt has below
its name each paragraph of the English page that somebody has compared it with: a hash, and the
first words. A test names what is another one since.
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
    r"|(?<=\| )\d+(?: \(\d+\))?(?= \|)|(?<=^### Lesson \d: )\d+"  # minutes
    r"|^English · \[中文\].*",
    re.MULTILINE,
)
FIRST_WORDS = 60


def main(names):
    stored, known = read(), [page_name(path) for path in pages()]
    for name in names:
        if name not in known:
            sys.exit(f"PAGE= is one of {', '.join(known)}, or several in quotes.")
        stored[name] = paragraphs(english_of(name))
    SEEN.write_text("\n".join(written(name, stored[name]) for name in known), encoding="utf-8")
    print(f"Stored: {', '.join(names)} says what the English says today.")


def pages():
    return [ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.zh-CN.md"))]


def page_name(path):
    return path.relative_to(ROOT).as_posix()


def english_of(name):
    return (ROOT / name.replace(".zh-CN", "")).read_text(encoding="utf-8")


def paragraphs(text):
    """Dict from a hash to the first words, of each paragraph and each row of a table."""
    found = {}
    for piece in FENCED.split(BY_COMMAND.sub("", text)):
        for part in [piece] if FENCED.match(piece) else BETWEEN.split(piece):
            if line := " ".join(part.split()):
                hashed = hashlib.sha256(line.encode()).hexdigest()[:8]
                found[hashed] = line[:FIRST_WORDS].strip()
    return found


def read():
    """Dict from the name of a page to what `paragraphs` said of its English."""
    text = SEEN.read_text(encoding="utf-8") if SEEN.exists() else ""
    parts = re.split(r"^# (.+)\n", text, flags=re.MULTILINE)
    return {
        name: dict(line.split(" ", 1) for line in lines.splitlines() if line)
        for name, lines in zip(parts[1::2], parts[2::2], strict=True)
    }


def written(name, found):
    return "\n".join([f"# {name}", *(f"{hashed} {words}" for hashed, words in found.items()), ""])


def changed(name):
    """The first words of what stands in the English page and was not seen, and of what is gone."""
    now, then = paragraphs(english_of(name)), read().get(name, {})
    return [now[h] for h in now if h not in then], [then[h] for h in then if h not in now]


if __name__ == "__main__":
    main(sys.argv[1:])
