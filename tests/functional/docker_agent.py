"""An agent beside a Docker engine."""

import time
from pathlib import Path
from typing import Any

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.errors import StoreError
from nodetracker.model.node import NodeRecord
from tests.functional.servers.engines import IMAGE, SLEEP
from tests.programs import Programs, Running, wait_until

HOST = "host-1"


class RunningAgent:
    """A running agent on one engine, and its row in the database."""

    def __init__(
        self,
        directory: Path,
        url: str,
        host: str = HOST,
        driver: str = "docker",
        extra: str = "",
        **options: Any,
    ) -> None:
        docker = {"base_url": url, "timeout": 5} | options
        lines = "\n".join(f"{name} = {value}" for name, value in docker.items())
        self.programs = Programs(
            directory,
            host=host,
            extra=f"{extra}[docker]\n{lines}",
            driver=driver,
            probe_timeout=5,
            update_resources_interval=2,
        )
        self.programs.make_schema()
        self.store: SqlStore = open_store(DatabaseSettings(self.programs.connection))
        self.running: Running = self.programs.start()

    def node(self) -> NodeRecord | None:
        """Return the row, None while it does not exist."""
        try:
            nodes = self.store.load_nodes(self.programs.host)
        except StoreError:
            return None
        return nodes[0] if nodes else None

    def wait(self, condition: Any, timeout: float = 60) -> float:
        """Wait until the row fulfils a condition; return how long it took."""
        began = time.monotonic()

        def holds() -> bool:
            node = self.node()
            return node is not None and bool(condition(node))

        wait_until(holds, timeout, 0.02)
        return time.monotonic() - began

    def stop(self) -> None:
        """Stop the agent."""
        self.running.__exit__()
        self.store.close()


def create(client: Any, name: str, **config: Any) -> str:
    host_config = client.create_host_config(
        network_mode="none", **{"mem_limit": "64m", "cpu_shares": 512} | config
    )
    return client.create_container(IMAGE, SLEEP, name=name, host_config=host_config)["Id"]


def guest_of(node: NodeRecord, name: str) -> Any:
    return next((guest for guest in node.guests.values() if guest.name == name), None)
