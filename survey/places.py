"""Where a Function is defined and where its package applies it, read from the source."""

import ast
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """File and line, both from the folder that holds the packages.

    Attributes:
        defined: "package/file.py:12".
        applied: names of what applies it, "Class.method" or "function"; "" for a module itself.
    """

    defined: str
    applied: tuple[str, ...]


def places(function):
    """`Places` of "package.module.Function"; the module is read, not imported."""
    module, name = function.rsplit(".", 1)
    while module.rsplit(".", 1)[-1][0].isupper():  # a class around it
        module = module.rsplit(".", 1)[0]
    file = found(module)
    lines = [
        node.lineno
        for node in ast.walk(tree(file))
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name
    ]
    root = folder(module)
    if not lines:
        raise LookupError(f"{function} is not defined in {file}")
    applied = sorted({who for path in root.rglob("*.py") for who in appliers(path, name)})
    first = min(lines)  # of several with that name
    return Places(f"{file.relative_to(root.parent).as_posix()}:{first}", tuple(applied))


def found(module):
    """The file of a module; packages around it are not imported."""
    _, *rest = module.split(".")
    path = folder(module)
    for part in rest[:-1]:
        path = path / part
    if not rest:
        return path / "__init__.py"
    one = path / f"{rest[-1]}.py"
    return one if one.exists() else path / rest[-1] / "__init__.py"


def folder(module):
    spec = importlib.util.find_spec(module.split(".")[0])
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8", errors="replace"))


def appliers(path, name):
    """Names of the functions in a file that have `name.apply`, outside the class itself."""
    if name not in path.read_text(encoding="utf-8", errors="replace"):
        return
    try:
        top = tree(path)
    except SyntaxError:
        return
    yield from within(top, name, ())


def within(node, name, around):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and child.name == name:
            continue
        if isinstance(child, ast.Assign) and not around:  # as in `logm = Logm.apply`
            if any(is_applied(each, name) for each in ast.walk(child.value)):
                yield from (each.id for each in child.targets if isinstance(each, ast.Name))
            continue
        if is_applied(child, name):
            yield ".".join(around)
        named = isinstance(child, (ast.ClassDef, ast.FunctionDef))
        yield from within(child, name, (*around, child.name) if named else around)


def is_applied(node, name):
    if not (isinstance(node, ast.Attribute) and node.attr == "apply"):
        return False
    owner = node.value
    return (isinstance(owner, ast.Name) and owner.id == name) or (
        isinstance(owner, ast.Attribute) and owner.attr == name
    )
