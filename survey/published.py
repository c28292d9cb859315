"""Where a package's published files can be read, line by line, without fetching the package.

`inspector.pypi.io` shows what lies in a file of PyPI. Its addresses follow from PyPI's own of that
file, a wheel or, where there is none, the source archive. They are looked up once for each pin, by
`make survey`, and stored in `published.csv`.
"""

import csv
import io
import json
import tarfile
import urllib.request
from pathlib import Path

CSV = Path(__file__).parent / "published.csv"
INDEX = "https://pypi.org/simple/{}/"
FILES = "https://files.pythonhosted.org/"
INSPECTOR = "https://inspector.pypi.io/project/{}/{}/"
# torch's wheels are too large to be shown there.
TORCH = "https://github.com/pytorch/pytorch/blob/v{}"


def link(source, package, version, folders):
    """Address of "package/file.py:12" in that version of the package."""
    file, _, line = source.rpartition(":")
    if package == "torch":
        return f"{TORCH.format(version.partition('+')[0])}/{file}#L{line}"
    return f"{folders[package, version]}/{file}#line.{line}"


def read():
    """(package, version) -> the address of the folder in which its files lie."""
    if not CSV.exists():
        return {}
    with CSV.open(newline="", encoding="utf-8") as file:
        return {(row["package"], row["version"]): row["folder"] for row in csv.DictReader(file)}


def look_up(rows):
    """Find the folder of each package of the rows of the survey, store them, drop other pins."""
    known, sources = read(), {(row["package"], row["version"]): row["source"] for row in rows}
    sources = {key: source for key, source in sources.items() if key[0] != "torch"}
    folders = {
        key: known.get(key) or folder(*key, source.rpartition(":")[0])
        for key, source in sources.items()
    }
    with CSV.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["package", "version", "folder"])
        table.writerows([*key, folders[key]] for key in sorted(folders))


def folder(package, version, file):
    """The address of the folder under which `file` lies in what PyPI has of that version."""
    inside = INSPECTOR.format(package, version)
    published = files(package, version)
    wheels = sorted(name for name in published if name.endswith(".whl"))
    if wheels:
        name, top = wheels[-1], ""  # "py3" comes after "cp310"
    else:
        (name,) = (name for name in published if name.endswith((".tar.gz", ".tgz")))
        top = "/" + folder_in_archive(fetched(published[name]), file)
    return published[name].replace(FILES, inside) + top


def files(package, version):
    """File name -> address, of what PyPI has of a version."""
    request = urllib.request.Request(
        INDEX.format(package), headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    listed = json.loads(fetched(request))["files"]
    stems = f"-{version}-", f"-{version}.tar.gz", f"-{version}.tgz"
    return {e["filename"]: e["url"] for e in listed if any(s in e["filename"] for s in stems)}


def folder_in_archive(archive, file):
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        (member,) = (name for name in opened.getnames() if name.endswith(f"/{file}"))
    return member.removesuffix(f"/{file}")


def fetched(what):
    with urllib.request.urlopen(what, timeout=60) as answer:
        return answer.read()
