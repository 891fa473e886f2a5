"""The page while runs go on: an HTTP server for this machine only, which reads the run folders again when they change.

The address has a random part, so that another user of the machine cannot guess it; requests for another host name are
refused, so that no web page can reach it through a name of its own. Like the file, the page contains public and charged
values only.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import cast

from tacit.errors import ConfigError
from tacit.report.page import FILE, content, page
from tacit.report.reading.run_data import Collection
from tacit.report.reading.run_folders import no_run, read_folders

HOST = "127.0.0.1"
TOKEN_BYTES = 16
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class LiveReport:
    """A server of the page about some folders. It answers requests of this machine only.

    Args:
        folders: Folders of runs, sweeps or endless streams, or a folder in which such folders will be.
        port: The port; 0 chooses a free one.

    Raises:
        ConfigError: A folder does not exist, or the port cannot be used.
    """

    def __init__(self, folders: Sequence[str | Path], port: int = 0) -> None:
        state = _State(folders=tuple(Path(folder) for folder in folders))
        state.read()  # a folder that does not exist is refused now
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        handler = type("Handler", (_Handler,), {"state": state, "token": self._token})
        try:
            self._server = ThreadingHTTPServer((HOST, port), handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"cannot serve at port {port}: {why}; pass another --port, or 0 for a free one") from None
        self._server.daemon_threads = True

    def __repr__(self) -> str:
        return f"LiveReport(port={self._server.server_port})"

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{HOST}:{self._server.server_port}/{self._token}/"

    def serve(self) -> None:
        """Answer requests until `stop` is called, or an exception such as KeyboardInterrupt is raised."""
        try:
            self._server.serve_forever(poll_interval=0.2)
        finally:
            self._server.server_close()

    def stop(self) -> None:
        """End `serve`, which runs in another thread."""
        self._server.shutdown()


@dataclass(kw_only=True)
class _State:
    """What the folders contain, read again when a file of theirs has changed."""

    folders: tuple[Path, ...]
    lock: Lock = field(default_factory=Lock)
    version: str = ""
    answer: bytes = b""

    def read(self) -> Collection:
        """The runs; none while there are none."""
        try:
            return read_folders(self.folders)
        except ConfigError:
            if not all(folder.is_dir() for folder in self.folders):
                raise
        name = self.folders[0].resolve().name if len(self.folders) == 1 else f"{len(self.folders)} folders"
        return Collection(title=name, missing=(f"{no_run(self.folders[0])}; this page shows a run once it has begun",))

    def whole(self) -> bytes:
        """The page, as it is first sent."""
        with self.lock:
            version = self.fingerprint()
            return page(self.read(), live=version).encode()

    def changed(self, known: str) -> tuple[str, bytes | None]:
        """The version of the folders, and the new content if it is not the known one."""
        with self.lock:
            version = self.fingerprint()
            if version == known:
                return version, None
            if version != self.version:
                # Before the files are read: one that changes meanwhile has another version at the next request.
                self.answer = json.dumps(content(self.read()), allow_nan=False).encode()
                self.version = version
            return version, self.answer

    def fingerprint(self) -> str:
        """A hash of the names, sizes and times of all files that a report can read."""
        found = hashlib.sha256()
        for folder in self.folders:
            for line in _files(folder):
                found.update(line)
        return f'"{found.hexdigest()[:32]}"'


def _files(folder: Path) -> Iterator[bytes]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "private")
        for name in sorted(names):
            if name == FILE or name.endswith(".safetensors"):
                continue
            path = Path(place, name)
            try:
                status = path.stat()
            except OSError:  # deleted meanwhile
                continue
            yield b"%s\0%d\0%d\n" % (os.fsencode(path), status.st_size, status.st_mtime_ns)


class _Handler(BaseHTTPRequestHandler):
    """GET of the page and of its content; nothing else."""

    state: _State
    token: str
    timeout = 30
    server_version = "tacit"
    sys_version = ""

    def do_GET(self) -> None:
        port = cast(ThreadingHTTPServer, self.server).server_port
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self._send(
                HTTPStatus.FORBIDDEN, b"this server answers its own address only; forward a port to the same number\n"
            )
            return
        _, token, *rest = self.path.partition("?")[0].split("/", 2)
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            self._send(HTTPStatus.NOT_FOUND, b"open the address that tacit report --watch printed\n")
            return
        try:
            if rest == [""]:
                self._send(HTTPStatus.OK, self.state.whole(), "text/html; charset=utf-8")
            elif rest == ["content"]:
                version, answer = self.state.changed(self.headers.get("If-None-Match", ""))
                status = HTTPStatus.NOT_MODIFIED if answer is None else HTTPStatus.OK
                self._send(status, answer or b"", "application/json", {"ETag": version})
            else:
                self._send(HTTPStatus.NOT_FOUND, b"there is no such page\n")
        except ConfigError as error:  # a folder was deleted
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""

    def _send(
        self,
        status: HTTPStatus,
        body: bytes,
        kind: str = "text/plain; charset=utf-8",
        more: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, **(more or {})}.items():
            self.send_header(name, value)
        if status is not HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status is not HTTPStatus.NOT_MODIFIED:
            self.wfile.write(body)
