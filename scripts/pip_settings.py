"""What the reader's pip is told, said to uv: indexes, wheels on disk, proxy, certificates.

Syntax that an old Python can read: make_environment.py imports it before it looks at the version.
"""

import ast
import os
import re
import subprocess

# pip's name: uv's option, which may come several times.
OPTIONS = {
    "find-links": "--find-links",
    "constraint": "--constraints",
    "only-binary": "--only-binary",
    "no-binary": "--no-binary",
    "trusted-host": "--allow-insecure-host",
}
# pip's name: uv's variables. Addresses may hold a password, and others on a machine see options.
VARIABLES = {
    "index-url": ["UV_DEFAULT_INDEX"],
    "extra-index-url": ["UV_INDEX"],
    "proxy": ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"],
    "cert": ["SSL_CERT_FILE"],
    "client-cert": ["SSL_CLIENT_CERT"],
    "timeout": ["UV_HTTP_TIMEOUT"],
    "default-timeout": ["UV_HTTP_TIMEOUT"],
    "retries": ["UV_HTTP_RETRIES"],
}
# These change how pip speaks or where it keeps things, not what is installed from where.
WITHOUT_MEANING = {
    "break-system-packages", "cache-dir", "compile", "config-file", "disable-pip-version-check",
    "exists-action", "log", "no-cache-dir", "no-color", "no-compile", "no-input",
    "no-python-version-warning",
    "no-warn-conflicts", "no-warn-script-location", "prefer-binary", "progress-bar", "quiet",
    "require-virtualenv", "root-user-action", "user", "verbose",
}  # fmt: skip


def for_uv(python):
    """The options and the variables for uv that say what that Python's pip is told.

    None where pip is told something that has no translation here: pip must do it then.
    """
    return translated(told_to(python), os.environ)


def told_to(python):
    command = [python, "-I", "-m", "pip", "config", "list", "--disable-pip-version-check"]
    return told(subprocess.check_output(command, stderr=subprocess.DEVNULL).decode())


def told(listing):
    """pip's settings by name, from `pip config list`: a later section overrides an earlier one."""
    settings = {}
    for section in ("global", "install", ":env:"):
        for name, value in re.findall("(?m)^%s[.](.+?)=(.*)$" % section, listing):
            value = ast.literal_eval(value)
            if value:  # as pip does it: an empty one is no setting
                settings[name] = value
    return settings


def translated(settings, environment):
    options, variables = [], {}
    for name, value in settings.items():
        if name in OPTIONS:
            for part in value.split():
                options += [OPTIONS[name], part]
        elif name in VARIABLES:
            variables.update(dict.fromkeys(VARIABLES[name], " ".join(value.split())))
        elif name == "no-index":
            options += ["--no-index"] if value.lower() in ("1", "true", "yes", "on") else []
        elif name not in WITHOUT_MEANING:
            return None
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # pip's library reads these
        if environment.get(name):
            variables.setdefault("SSL_CERT_FILE", environment[name])
    if "SSL_CERT_FILE" not in variables:
        options.append("--system-certs")  # a company's own authority is known to the system only
    return options, variables
