"""Turns DOT text into SVG, with or without Graphviz on the machine.

If there is a real `dot` on the PATH, it is used. Otherwise the wheel `pygraphviz`, which contains
Graphviz, draws in a child process, since its warnings would appear in the cell, and it can crash.

Run as a program, this file behaves like `dot`, as far as the library `graphviz` (and with it
torchviz) needs, so that a small script named `dot` can replace the program. Run it by its path:
`python -m` would import the package around it, and with it torch.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SECONDS = 10  # a picture that takes longer is given up
# Every script named `dot` that calls this file contains this word. `scripts/dot` does since its
# module has this name: pip writes "from dot_stand_in import main" into the script.
STAND_IN = "dot_stand_in"
# Set for any `dot` that is started from here: if that is a stand-in after all, it must draw by
# itself and not start the next one, and so on without end.
STARTED = "LESSONS_SRC_STARTED_DOT"
_never_freed: list[object] = []


class LayoutError(Exception):
    """There is no picture; the text is a sentence for the reader."""


def to_svg(dot_text: str) -> str:
    """Lay out a graph.

    Args:
        dot_text: str, a graph in the DOT language.

    Returns:
        str, the SVG.

    Raises:
        LayoutError: Graphviz is missing, failed, or took more than `SECONDS`.
    """
    picture = _laid_out(dot_text, "svg")
    if b"<svg" not in picture:
        raise LayoutError("No picture: dot wrote no SVG.")
    return picture.decode()


def to_png(dot_text: str) -> bytes:
    """Lay out a graph and return a PNG; raises as `to_svg`, also if this Graphviz writes no PNG."""
    picture = _laid_out(dot_text, "png")
    if not picture.startswith(b"\x89PNG"):
        raise LayoutError("No picture: this Graphviz writes no PNG. Save it as .svg.")
    return picture


def _laid_out(dot_text: str, picture_format: str) -> bytes:
    program = find_dot()
    # Run by its path, this file imports nothing else; -P keeps its folder off sys.path.
    command = [program] if program else [sys.executable, "-P", __file__]
    try:
        done = subprocess.run(
            [*command, f"-T{picture_format}"],
            input=dot_text.encode(),
            capture_output=True,
            timeout=SECONDS,
            env={**os.environ, STARTED: "1"},
        )
    except subprocess.TimeoutExpired:
        raise LayoutError(f"No picture: the layout took more than {SECONDS} seconds.") from None
    except OSError as error:
        raise LayoutError(f"No picture: {command[0]} does not start ({error}).") from None
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise LayoutError(f"No picture: {words[-1]}")
    return done.stdout


def find_dot() -> str | None:
    """The path of the first real `dot` on the PATH, or None. `STAND_IN` shows what is none."""
    endings = os.environ.get("PATHEXT", ".EXE").split(os.pathsep) if os.name == "nt" else [""]
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for ending in endings:
            file = Path(folder or os.curdir, f"dot{ending}")
            runs = file.is_file() and os.access(file, os.R_OK | os.X_OK)
            if runs and STAND_IN.encode() not in file.read_bytes():
                return str(file)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Behave like `dot`: read DOT from the files given or from stdin, write what -T asks for.

    Returns:
        int, the exit code.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    program = None if STARTED in os.environ else find_dot()
    if program:
        return subprocess.run([program, *arguments], env={**os.environ, STARTED: "1"}).returncode
    try:
        return _stand_in(arguments)
    except ModuleNotFoundError:
        print("No Graphviz here: install the program, or pip install pygraphviz", file=sys.stderr)
    except ImportError as error:  # the wheel takes GLib and X11's libraries from the system
        print(f"No Graphviz here: install the program; pygraphviz says {error}", file=sys.stderr)
    except (OSError, ValueError) as error:  # pygraphviz.DotError is a ValueError
        print(f"dot: {error}", file=sys.stderr)
    return 1


def _stand_in(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    if options.V:
        from pygraphviz import graphviz as gv

        parts = [gv.GRAPHVIZ_MAJOR_VERSION, gv.GRAPHVIZ_MINOR_VERSION, gv.GRAPHVIZ_PATCH_VERSION]
        print(f"dot - graphviz version {'.'.join(map(str, parts))} (pygraphviz)", file=sys.stderr)
        return 0
    for name in options.files or [None]:
        source = Path(name).read_bytes() if name else sys.stdin.buffer.read()
        picture = _draw(source.decode(), options.T, options.K)
        if options.o or (options.O and name):
            Path(options.o or f"{name}.{options.T}").write_bytes(picture)
        else:
            sys.stdout.buffer.write(picture)
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dot", description="Stand-in for Graphviz.")
    parser.add_argument("-K", default="dot", help="layout engine")
    parser.add_argument("-T", default="dot", help="format of the output")
    parser.add_argument("-o", help="file to write")
    parser.add_argument("-O", action="store_true", help="name the output after the input")
    parser.add_argument("-V", action="store_true", help="print the version")
    parser.add_argument("files", nargs="*")
    return parser.parse_args(arguments)


def _draw(dot_text: str, picture_format: str, engine: str) -> bytes:
    """The picture, drawn in this process by the wheel."""
    with _quiet():
        from pygraphviz import AGraph
        from pygraphviz import graphviz as gv

        graph, context = AGraph(string=dot_text), gv.gvContextWithBuiltins()
        if gv.gvLayout(context, graph.handle, engine.encode()):
            raise ValueError(f"no layout engine {engine} here")
        # Not AGraph.draw: it frees the layout afterwards, and that crashes now and then (2.0.4).
        answer = gv.gvRenderData(context, graph.handle, picture_format.encode())
        _never_freed.append((graph, context))
    if isinstance(answer, int):  # an error code alone, else (0, picture)
        raise ValueError(f"cannot write the format {picture_format}")
    return answer[1]


@contextmanager
def _quiet() -> Iterator[None]:
    """Send what native code writes to stderr (GLib, Fontconfig: with time and pid) nowhere."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # without the destructors of native code, see _draw
