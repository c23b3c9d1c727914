"""Conductors and hosts without a database, for functional tests."""

import json
from pathlib import Path
from typing import Any

from tests.functional.servers.process import find_free_port
from tests.programs import Programs, Running

NO_DATABASE = "mysql+pymysql://nobody@127.0.0.1:1/none"
NODE = {"nodename": "node-1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}


class Conductor(Programs):
    """A conductor with a database."""

    def __init__(self, directory: Path, connection: str, host: str = "c-1", **options: Any) -> None:
        self.port = find_free_port()
        self.scheme = "http"
        extra = f"[conductor]\nport = {self.port}"
        super().__init__(directory, connection, host, extra=extra, **options)

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def use_tls(self, certificate: Path, key: Path) -> None:
        """Serve HTTPS by a certificate of 127.0.0.1."""
        self.scheme = "https"
        with self.path.open("a") as file:
            file.write(f"[conductor]\ncert_file = {certificate}\nkey_file = {key}\n")

    def start_conductor(self) -> Running:
        """Start it and wait until it answers."""
        running = self.start("nodetracker-conductor")
        running.wait_for("is ready")
        return running

    def make_token(self, *options: str) -> str:
        """Return a join token."""
        done = self.manage("agent", "token", "create", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


class Remote(Programs):
    """A host without a database, with its own node."""

    def __init__(
        self, directory: Path, endpoints: str, token: str, host: str = "host-1", **options: Any
    ) -> None:
        extra = (
            f"[conductor]\nuse_local = false\nendpoint = {endpoints}\n"
            f"join_token_file = {directory / 'token'}"
        )
        super().__init__(directory, NO_DATABASE, host, extra=extra, **options)
        (directory / "token").write_text(token)
        self.inventory.write_text(json.dumps({"nodes": [NODE]}))

    def trust(self, authority: Path) -> None:
        """Trust the certificates of an authority."""
        with self.path.open("a") as file:
            file.write(f"[conductor]\ncafile = {authority}\n")
