"""Runs cells in a real kernel, as JupyterLab does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_SECS = 120


@dataclass
class Shown:
    """What a cell shows: its value as text, its streams, and the exception that it raised."""

    text: str = ""
    stdout: str = ""
    stderr: str = ""
    error: str = ""


class Kernel:
    """A kernel with a notebook's cells."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, code: str, cell_id: str | None = None) -> Shown:
        """Run a cell. JupyterLab sends a cell's identity along; other front ends do not."""
        request = self._client.session.msg(
            "execute_request",
            {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False},
            metadata={} if cell_id is None else {"cellId": cell_id},
        )
        self._client.shell_channel.send(request)
        shown = Shown()
        while True:
            message = self._client.get_iopub_msg(timeout=_SECS)
            if message["parent_header"].get("msg_id") != request["header"]["msg_id"]:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                setattr(shown, content["name"], getattr(shown, content["name"]) + content["text"])
            elif kind in ("execute_result", "display_data"):
                shown.text = content["data"].get("text/plain", "")
            elif kind == "error":
                shown.error = f"{content['ename']}: {content['evalue']}"
            elif kind == "status" and content["execution_state"] == "idle":
                return shown


@contextmanager
def kernel() -> Iterator[Kernel]:
    """Start a kernel with the Python that runs the tests, and stop it."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(startup_timeout=_SECS, kernel_name="python3")
    try:
        yield Kernel(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
