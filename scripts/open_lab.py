"""Open JupyterLab on lesson 1, among the reader's own copies: `make lab`."""

import json
import os
import secrets
import socket
import sys
import threading
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from own_settings import keep_apart
from said import spoken

SETTINGS = Path(__file__).resolve().parent / "lab_settings"


def main(folder=None, extra=()):
    with a_dot_a_second(spoken("Starting JupyterLab")):
        from lesson_copies import LANGUAGE, MY_LESSONS, copy_lessons, jupyter_folder, lessons
    folder = folder or MY_LESSONS
    copy_lessons(folder)
    (first,) = (lesson for lesson in lessons() if lesson.name.startswith("1_"))
    port, token, page = free_port(), secrets.token_hex(24), f"/lab/tree/{first.name}"
    # Some browsers may not read hidden folders, where the page lies that they are sent to first.
    home = folder.parents[1 if LANGUAGE else 0]
    keep_apart(jupyter_folder(folder), runtime=home / "build" / "jupyter")
    speak(LANGUAGE, jupyter_folder(folder))
    os.environ["JUPYTER_TOKEN"] = token  # not among the arguments, which others on a machine see
    with a_dot_a_second():
        from jupyterlab.labapp import LabApp  # looks at its folders while it is imported
    print(f"\n    http://127.0.0.1:{port}{page}?token={token}\n")
    if has_display():
        print(spoken("JupyterLab opens in your browser; if not, open the address above."))
    else:
        print(
            spoken("There is no display here: open the address above in a browser on this machine.")
        )
    print(spoken("Ctrl+C in this window ends it; what you saved in my_lessons/ stays."), flush=True)
    LabApp.launch_instance(arguments(folder, port, page) + list(extra))


def speak(language, folder):
    """Choose the language of JupyterLab's menus where it is installed, until the reader chooses."""
    chosen = folder / "config/lab/user-settings/@jupyterlab/translation-extension"
    file = chosen / "plugin.jupyterlab-settings"
    if language and find_spec("jupyterlab_language_pack_" + language) and not file.exists():
        chosen.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"locale": language}))


@contextmanager
def a_dot_a_second(title=""):
    """So long as what is done here takes: a slow machine imports JupyterLab for many seconds."""
    print(title, end=" ", flush=True)
    done = threading.Event()

    def dots():
        while not done.wait(1):
            print(".", end="", flush=True)

    thread = threading.Thread(target=dots, daemon=True)  # a Ctrl+C before the try ends it too
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def arguments(folder, port, page):
    return [
        f"--ServerApp.root_dir={folder}",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",  # another port would not be the one in the address
        f"--ServerApp.allow_root={hasattr(os, 'geteuid') and os.geteuid() == 0}",
        "--ServerApp.answer_yes=True",  # one Ctrl+C is enough
        f"--LabApp.open_browser={has_display()}",
        f"--LabApp.default_url={page}",
        f"--LabApp.app_settings_dir={SETTINGS}",  # no news pop-up, no look for updates
        "--KernelManager.transport_encryption=auto",  # a kernel that is not encrypted says so
        "--LanguageServerManager.autodetect=False",  # its search writes into npm's folder at home
        "--Application.log_level=ERROR",  # its warnings are about its own parts
    ]


def free_port(first=8888, tries=50):
    for port in range(first, first + tries):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    last = first + tries - 1
    sys.exit(spoken("Ports {} to {} are all taken: end one of those programs.", first, last))


def has_display():
    """Whether a browser could open here; on Linux, a session over SSH usually has none."""
    return sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


if __name__ == "__main__":
    main(extra=sys.argv[1:])
