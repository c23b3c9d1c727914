"""A Prometheus that scrapes a few targets every two seconds, in which each has to answer."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tests.functional.servers.process import ServerProcess, require


class Prometheus(ServerProcess):
    """A Prometheus.

    Args:
        targets: job -> port of its target on 127.0.0.1.
    """

    def __init__(self, targets: Mapping[str, int]) -> None:
        require("prometheus")
        super().__init__("prometheus")
        jobs = [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
            for job, port in targets.items()
        ]
        self._path = self.directory / "prometheus.yml"  # JSON is YAML
        self._path.write_text(
            json.dumps({"global": {"scrape_interval": "2s"}, "scrape_configs": jobs})
        )
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = (
            "prometheus",
            f"--config.file={self._path}",
            f"--storage.tsdb.path={self.directory}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        )
        self.launch(command, self._is_ready)

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer.

        Raises:
            ValueError: the answer is an error, whose text it has.
        """
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode()) from None

    def query(self, expression: str) -> list[Any]:
        """Return the result of an instant query; raises as `ask`."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=1):
                return True
        except OSError:
            return False
