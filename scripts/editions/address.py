"""The addresses that pyproject.toml names, once the course is published; as long as none is, "".

`[project.urls]` with `Repository = "https://github.com/owner/name"` turns on whatever needs one:
badges, links to Colab and to edit a page, the citation's line.
`Documentation`, where the website is, makes the tool's reports name it.
"""

import re
import sys
import tomllib

from .carry import ROOT


def repository():
    """owner/name on GitHub, or ""."""
    address = named("Repository")
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", address)
    if address and not found:
        sys.exit(
            "Repository in pyproject.toml is https://github.com/owner/name, and not "
            f"{address!r}: the links to Colab are made from it."
        )
    return found[1] if found else ""


def named(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get(name, "")


def put_into_citation(text, repository):
    """CITATION.cff with the repository's address, in the place of an older one."""
    text = re.sub(r"^repository-code: .*\n", "", text, flags=re.M)
    line = f'repository-code: "https://github.com/{repository}"\n'
    return text.replace("authors:\n", line + "authors:\n", 1)
