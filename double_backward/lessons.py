"""The lessons that findings point to: their titles, and their address where there is one."""

from functools import cache
from importlib import metadata

from .phrases import Phrase

LESSONS = {  # number -> its title, its page
    1: (Phrase("Saving an input"), "1_saving_inputs"),
    2: (Phrase("Saving an output"), "2_saving_outputs"),
    3: (Phrase("Saving intermediate results"), "3_saving_intermediates"),
    4: (Phrase("What not to do"), "4_what_not_to_do"),
    5: (Phrase("A backward that autograd cannot track"), "5_untracked_backward"),
    6: (Phrase("Your own Function"), "6_your_own_function"),
}


def lesson_mark(number: int) -> str:
    """`-> lesson 1, "Saving an input"`, and its address where the package names one."""
    address = website()
    page = f" {address}/notebooks/{LESSONS[number][1]}.html" if address else ""
    return f"-> {lesson_named(number)}{page}"


def lesson_named(number: int) -> str:
    """`lesson 1, "Saving an input"`."""
    return Phrase('lesson {}, "{}"', number, LESSONS[number][0])


@cache
def website() -> str:
    """What pyproject.toml names as `Documentation` among the project's addresses, or ""."""
    try:
        named = metadata.metadata("double-backward").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # a copy of the folder
        return ""
    urls = dict(entry.split(", ", 1) for entry in named)
    return urls.get("Documentation", "").rstrip("/")
