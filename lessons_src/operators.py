"""Names for registered operators."""

from itertools import count

_numbers = count(1)


def new_name(name):
    """A name for an operator that no other has, such as "lesson::cube_3".

    What is registered under a name that is taken replaces the older operator everywhere.

    Args:
        name: str, what to call it.

    Returns:
        The name with a namespace before it and a number behind.
    """
    return f"lesson::{name}_{next(_numbers)}"
