"""What is installed in the environment that runs the tests, and what of it needs what."""

import importlib.metadata

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

INSTALLED = {
    canonicalize_name(package.metadata["Name"]): package
    # Found twice, the first is what an import takes.
    for package in reversed(list(importlib.metadata.distributions()))
}


def needs(name, extras, surroundings):
    """What an installed package needs where it is installed with these extras."""
    for text in INSTALLED[name].requires or []:
        requirement = Requirement(text)
        asked = requirement.marker is None or any(
            requirement.marker.evaluate(surroundings | {"extra": extra}) for extra in extras
        )
        if asked:
            yield canonicalize_name(requirement.name), ("", *requirement.extras)


def reached(roots, surroundings=None):
    """The packages that come along with the roots, as far as it is known here what they need.

    What torch alone needs is left out: on Linux that is CUDA, of the versions that torch names.
    """
    surroundings = surroundings or default_environment()
    found, waiting = set(), list(roots)
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) not in found:
            found.add((name, extras))
            if name in INSTALLED and name != "torch":
                waiting += needs(name, extras, surroundings)
    return {name for name, _ in found}
