"""`make preview`: docs/pictures/front.png, which other sites show beside a link to this one.

The first figure of the website's front page in two states, with its title and its numbers, drawn by
Chromium. The file says in itself what it was made of, so that a test can tell whether that is still
true; its pixels depend on the fonts of the machine.
"""

import hashlib
import os
import re
import shutil
import struct
import sys
import zlib

import front_pictures
from editions.carry import ROOT
from same_outputs import comparable

PICTURE = ROOT / "docs" / "pictures" / "front.png"
FRONT = ROOT / "docs" / "site" / "front.md"
SIZE = 1200, 630  # px, what those who show it ask for
NAMES = "sinh_squared.svg", "sinhbad_squared.svg"
CAPTION = re.compile("<figcaption>(.*?)</figcaption>")
PAGE = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; overflow: hidden; background: white; color: #1a1a1a; text-align: center;
       font: 30px/1.2 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { margin: 0; padding: 22px 0 14px; font-size: 46px; }
div { display: flex; justify-content: space-around; }
svg { height: 430px; width: auto; }
p { margin: 6px 0 0; }
b { font-size: 44px; }
section:last-child b { border-bottom: 6px solid #c01515; }
</style>"""


def page():
    front, svgs = FRONT.read_text(encoding="utf-8"), front_pictures.drawn()
    sections = [
        f"<section>{svgs[name]}<p>{told}</p></section>"
        for name, told in zip(NAMES, CAPTION.findall(front), strict=True)
    ]
    title = front.splitlines()[0].removeprefix("# ")
    return f"{PAGE}<h1>{title}</h1><div>{''.join(sections)}</div>"


def digest(html):
    """The same wherever the graphs are the same, whatever laid them out."""
    return hashlib.sha256(comparable(html).encode()).hexdigest()


def photographed(html):
    from playwright.sync_api import sync_playwright  # a test that reads the file needs no browser

    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if chromium is None:
        sys.exit("No Chromium on the PATH: install one to draw the picture.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        window.set_content(html)
        taken = window.screenshot()
        browser.close()
    return taken


def signed(png, words):
    """The PNG with a piece of text behind its header, which is its first 33 bytes."""
    content = b"tEXtSource\0" + words.encode()
    length, check = struct.pack(">I", len(content) - 4), struct.pack(">I", zlib.crc32(content))
    return png[:33] + length + content + check + png[33:]


def main():
    html = page()
    PICTURE.write_bytes(signed(photographed(html), digest(html)))
    print(f"{os.path.relpath(PICTURE, ROOT)} shows the front page's graphs of today.")


if __name__ == "__main__":
    main()
