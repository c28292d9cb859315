"""A home folder of somebody who has Jupyter, IPython and matplotlib set up in their own way."""

FILES = {
    ".config/matplotlib/matplotlibrc": "figure.facecolor: red\nfont.size: 30\n",
    ".ipython/profile_default/startup/start.py": "print('the start-up file of the reader')\n",
    ".ipython/profile_default/ipython_config.py": "c.InteractiveShell.ast_node_interactivity='all'",
    ".jupyter/jupyter_server_config.py": "raise SystemExit('the reader configures Jupyter')\n",
    ".jupyter/lab/workspaces/default-37a8.jupyterlab-workspace": "{}",
    ".local/share/jupyter/kernels/python3/kernel.json": '{"argv": ["false"], "language": "python", '
    '"display_name": "the kernel of the reader"}',
}
# For programs that look for the home folder's parts by name.
PARTS = {"HOME": "", "XDG_CACHE_HOME": ".cache", "XDG_CONFIG_HOME": ".config"}


def make_home(folder):
    """Write that home into an empty folder; return the variables that make it one's own."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {name: str(folder / part) for name, part in PARTS.items()}


def contents(folder):
    """Every file and folder there; a file with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }
