"""A local file server that can simulate the faults of real servers."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class WebServer:
    """The files and behaviour of a server.

    Attributes:
        address: URL of the server, without a final slash.
        files: contents by path.
        redirects: target path by path, answered with 302.
        status: the status of answers with a file.
        headers: further headers of answers.
        cut_after: send only this many bytes of the next answers.
        requests: path of each request so far.
        passwords: Authorization header of each request so far.
    """

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    passwords: list[str | None] = field(default_factory=list)


@contextlib.contextmanager
def serving() -> Iterator[WebServer]:
    """A server that runs until the block ends. Used as a proxy, it serves files for any host."""
    state = WebServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            path = asked.path + (f"?{asked.query}" if asked.query else "")
            state.requests.append(path)
            state.passwords.append(self.headers["Authorization"])
            if path in state.redirects:
                self.send_response(302)
                self.send_header("Location", state.redirects[path])
                self.end_headers()
            elif path not in state.files:
                self.send_error(404)
            else:
                self.send_file(state.files[path])

        do_HEAD = do_GET

        def send_file(self, content: bytes) -> None:
            self.send_response(state.status)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("Content-Length", str(len(content)))
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                cut = state.cut_after.pop(0) if state.cut_after else None
                self.wfile.write(content[:cut])

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        state.address = f"http://127.0.0.1:{server.server_port}"
        yield state
        server.shutdown()
        thread.join()
