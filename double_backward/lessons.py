"""The lessons that findings point to: their titles, and their address where there is one."""

from functools import cache
from importlib import metadata

TITLES = {
    1: "Saving an input",
    2: "Saving an output",
    3: "Saving intermediate results",
    4: "What not to do",
    5: "A backward that autograd cannot track",
    6: "Your own Function",
}
PAGES = {
    1: "1_saving_inputs",
    2: "2_saving_outputs",
    3: "3_saving_intermediates",
    4: "4_what_not_to_do",
    5: "5_untracked_backward",
    6: "6_your_own_function",
}


def lesson_mark(number: int) -> str:
    """`-> lesson 1, "Saving an input"`, and its address where the package names one."""
    address = _address()
    page = f" {address}/notebooks/{PAGES[number]}.html" if address else ""
    return f"-> {lesson_named(number)}{page}"


def lesson_named(number: int) -> str:
    """`lesson 1, "Saving an input"`."""
    return f'lesson {number}, "{TITLES[number]}"'


@cache
def _address() -> str:
    """What pyproject.toml names as `Documentation` among the project's addresses, or ""."""
    try:
        named = metadata.metadata("double-backward").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # a copy of the folder
        return ""
    urls = dict(entry.split(", ", 1) for entry in named)
    return urls.get("Documentation", "").rstrip("/")
