"""Connect to MariaDB and MySQL within a timeout; `engine` imports this module on demand.

PyMySQL's own ``connect_timeout`` applies only until the kernel has accepted the
connection. Without this module the greeting of a hung server is awaited as long as a statement.
"""

from collections.abc import Mapping
from typing import Any

import pymysql


def connect(parameters: Mapping[str, Any]) -> Any:
    """Connect with PyMySQL's parameters; ``connect_timeout`` includes greeting and login."""
    made_in = {**parameters, "read_timeout": parameters["connect_timeout"]}
    connection: Any = pymysql.connect(**made_in)  # type: ignore[no-untyped-call]
    # PyMySQL has no public way to change it, nor to limit the greeting.
    connection._read_timeout = parameters["read_timeout"]
    return connection
