"""Managers of fabrics that answer as documented: a UFM, a NetQ and an NMX, over http or https on loopback.

Each looks at the credentials, speaks JSON, and can be told to misbehave. `requests` is what was asked.
"""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kube.pki import Pair

USER, PASSWORD = "reader", "s3cret-of-the-manager"
TOKEN, CHOSEN = "token-of-the-login", "token-of-the-premises"


@dataclass
class Manager:
    """`answers`: by path, what is there. `says`: in place of an answer, what goes over the wire."""

    answers: dict[str, Any] = field(default_factory=dict)
    premises: dict[int, str] = field(default_factory=dict)
    graphs: dict[int, Any] = field(default_factory=dict)
    says: Callable[[BaseHTTPRequestHandler], None] | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    def respond(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
        path = request.path.partition("?")[0]
        self.requests.append((request.command, path))
        if path == "/api/netq/auth/v1/login":
            said = json.loads(body)
            if (said["username"], said["password"]) != (USER, PASSWORD):
                return 401, {"message": f"no such user {said}"}
            premises = [{"opid": opid, "name": name} for opid, name in self.premises.items()]
            return 200, {"access_token": TOKEN, "premises": premises}
        shown = request.headers.get("Authorization", "")
        if path.startswith("/api/netq/auth/v1/select/opid/"):
            if shown != f"Bearer {TOKEN}":
                return 403, {}
            return 200, {"access_token": f"{CHOSEN}-{path.rpartition('/')[2]}"}
        if path == "/api/netq/telemetry/v1/object/topologygraph/fetch-topology":
            token, _, opid = shown.removeprefix("Bearer ").rpartition("-")
            if token != CHOSEN or json.loads(body)["subgroupNestingDepth"] != 2:
                return 403, {}
            return 200, self.graphs[int(opid)]
        if shown != "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode():
            return 401, {"message": f"not {shown}"}
        return (200, self.answers[path]) if path in self.answers else (404, {})


@contextmanager
def serving(manager: Manager, pair: Pair | None = None) -> Iterator[Manager]:
    """On a free port of loopback, until the end of the block; `pair`: with TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if manager.says is not None:
                self.close_connection = True
                manager.says(self)
                return
            status, answer = manager.respond(self, body)
            text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET  # noqa: N815 - as http.server looks for it

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that go away
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    scheme = "https" if pair is not None else "http"
    manager.url = f"{scheme}://localhost:{server.server_address[1]}"
    try:
        yield manager
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def credentials(folder: Path, user: str = USER, password: str = PASSWORD) -> Path:
    """A folder as a Secret is mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "username").write_text(user + "\n")
    (folder / "password").write_text(password)
    return folder


def ufm(answers: Mapping[str, Any]) -> Manager:
    """With what `hyperscout_sim.readings.ufm` makes."""
    return Manager({f"/ufmRest/resources/{what}": found for what, found in answers.items()})


def nmx(nodes: Any, gpus: Any) -> Manager:
    return Manager({"/nmx/v1/compute-nodes": nodes, "/nmx/v1/gpus": gpus})
