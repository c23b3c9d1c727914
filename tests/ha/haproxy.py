"""HAProxy in front of a Galera cluster, configured as the documentation says."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.functional.servers.mariadb import PASSWORD, MariaDB
from tests.functional.servers.process import ServerProcess, is_listening, require

PAGE = Path(__file__).parent.parent.parent / "docs/galera.md"


class HAProxy:
    """Leads to the first member that is usable; `url` is that of a database."""

    def __init__(self, members: Sequence[MariaDB]) -> None:
        require("haproxy")
        self.process = ServerProcess("haproxy")
        folder = self.process.directory
        configuration, check = re.findall(r"```(?:text|sh)\n(.*?)```", PAGE.read_text(), re.S)[:2]
        configuration = configuration.replace("127.0.0.1:3306", f"127.0.0.1:{self.process.port}")
        for number, member in enumerate(members, 1):
            documented = f"192.0.2.1{number}:3306"
            assert documented in configuration
            configuration = configuration.replace(documented, f"127.0.0.1:{member.process.port}")
        files = {
            "haproxy.cfg": configuration.replace("/etc/haproxy", str(folder)),
            "check-galera": check.replace("/etc/haproxy", str(folder)),
            "galera.cnf": f"[client]\nuser=nodetracker\npassword={PASSWORD}\n",
        }
        for name, text in files.items():
            (folder / name).write_text(text)
        (folder / "check-galera").chmod(0o755)
        self.process.launch(
            ["haproxy", "-db", "-f", folder / "haproxy.cfg"],
            lambda: is_listening(self.process.port),
        )

    def url(self, through_member: str, member: MariaDB) -> str:
        """Return the URL of a database through HAProxy, given that through a member."""
        return through_member.replace(f":{member.process.port}/", f":{self.process.port}/")

    def remove(self) -> None:
        """Stop it and delete its files."""
        self.process.remove()
