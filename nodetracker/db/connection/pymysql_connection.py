"""Connections to MariaDB and MySQL that are made in time; `engine` imports this when needed.

PyMySQL's own ``connect_timeout`` ends once the kernel has accepted the
connection, so a server that hangs is waited for as long as for a statement.
"""

from collections.abc import Mapping
from typing import Any

import pymysql


def connect(parameters: Mapping[str, Any]) -> Any:
    """Connect with PyMySQL's parameters; the greeting and the login count as connecting."""
    made_in = {**parameters, "read_timeout": parameters["connect_timeout"]}
    connection: Any = pymysql.connect(**made_in)  # type: ignore[no-untyped-call]
    # There is no public way to change it, nor to bound the greeting.
    connection._read_timeout = parameters["read_timeout"]
    return connection
