"""Builds the package. Its metadata is in pyproject.toml, except for what needs the address of the repository."""

import atexit
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
# An address of a page, or of what git clones.
_REMOTE = re.compile(r"(?:https://(?:[^@/]+@)?|ssh://git@|git@)([\w.-]+)[:/]([\w./~-]+?)(?:\.git)?/?")


def repository():
    """Return the address of the repository's page, without a slash at the end; "" if it is not public.

    It is in the remote `origin` of a clone, and in the metadata of a source distribution.
    """
    try:
        text = (ROOT / "PKG-INFO").read_text(encoding="utf-8")
    except FileNotFoundError:
        if not (ROOT / ".git").exists() or shutil.which("git") is None:
            return ""
        command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
        url = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    else:
        url = "".join(re.findall(r"^Project-URL: Repository, (\S+)$", text, re.MULTILINE))
    found = _REMOTE.fullmatch(url)
    return f"https://{found[1]}/{found[2]}" if found else ""


def readme(url):
    """Return README.md as package indexes show it, where a link within the repository leads nowhere."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?![a-z]+:|#)([^)]+)\)", rf"]({url}/blob/HEAD/\1)", text) if url else text


# Not ./build, where files of earlier builds remain: modules deleted since then would still be installed.
build_base = tempfile.mkdtemp(prefix="staging_tf1-build-")
atexit.register(shutil.rmtree, build_base, ignore_errors=True)

home = repository()
pages = {"Repository": "", "Documentation": "/blob/HEAD/docs/index.md", "Changelog": "/blob/HEAD/CHANGELOG.md"}
setup(
    options={"build": {"build_base": build_base}},
    long_description=readme(home),
    long_description_content_type="text/markdown",
    project_urls={name: home + page for name, page in pages.items()} if home else {},
)
