# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Docker engine that only says which containers it has, at a socket of its own."""

from __future__ import annotations

import json
import socketserver
import threading
import typing as t
from http.server import BaseHTTPRequestHandler

if t.TYPE_CHECKING:
    from pathlib import Path


class Engine:
    """An engine with this ID, and what it was asked."""

    def __init__(self, place: Path, identity: str) -> None:
        self.identity = identity
        self.containers: list[dict[str, t.Any]] = []
        self.asked: list[str] = []
        self.url = f"unix://{place}/{identity}.sock"
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                engine.asked.append(self.path)
                answers = {
                    "version": {"ApiVersion": "1.44"},
                    "info": {"ID": engine.identity},
                    "json": engine.containers,
                }
                text = json.dumps(answers[self.path.partition("?")[0].rpartition("/")[2]]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def address_string(self) -> str:
                return engine.identity

            def log_message(self, *_: object) -> None:
                pass

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self._server = Server(self.url.removeprefix("unix://"), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def run(self, mark: str, gpus: str, state: str = "running") -> None:
        """Has a container of a server."""
        self.containers.append({"State": state, "Labels": {"cudahub.server": mark, "cudahub.gpus": gpus}})

    def close(self) -> None:
        """Goes away."""
        self._server.shutdown()
        self._server.server_close()
