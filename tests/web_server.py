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
        cut_after: send only this many bytes of each answer; None: all.
        has_ranges: whether Range requests are supported.
        has_versions: whether answers have an ETag.
        requests: path and Range header of each request so far.
    """

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    has_ranges: bool = True
    has_versions: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def asked_for(self) -> list[str]:
        """The paths of the requests."""
        return [path for path, _ in self.requests]


@contextlib.contextmanager
def serving() -> Iterator[WebServer]:
    """A server that runs until the block ends. Used as a proxy, it serves files for any host."""
    state = WebServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            path = asked.path + (f"?{asked.query}" if asked.query else "")
            state.requests.append((path, self.headers["Range"]))
            if path in state.redirects:
                self.send_response(302)
                self.send_header("Location", state.redirects[path])
                self.end_headers()
            elif path not in state.files:
                self.send_error(404)
            else:
                self.send_file(state.files[path])

        def send_file(self, content: bytes) -> None:
            version = f'"{hashlib.md5(content).hexdigest()}"'
            first, asked = 0, self.headers["Range"]
            if asked and state.has_ranges and self.headers["If-Range"] == version:
                first = int(asked.removeprefix("bytes=").removesuffix("-"))
                if first >= len(content):
                    self.send_error(416)
                    return
            self.send_response(206 if first else 200)
            if first:
                self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/*")
            if state.has_versions:
                self.send_header("ETag", version)
            self.send_header("Content-Length", str(len(content) - first))
            self.end_headers()
            self.wfile.write(content[first:][: state.cut_after])

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        state.address = f"http://127.0.0.1:{server.server_port}"
        yield state
        server.shutdown()
        thread.join()
