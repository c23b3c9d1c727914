"""Connect to MariaDB and MySQL so that no greeting is awaited for ever, and read rows quickly.

`sessions` imports this on demand. PyMySQL reads each column by three calls and each time by a
regular expression, which was half of the CPU time of a list.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pymysql.connections import Connection, MySQLResult
from pymysql.constants import FIELD_TYPE
from pymysql.converters import conversions

from nodetracker.process.time_limit import find_limit


def _parse_time(text: str) -> Any:
    """Return a datetime, or the text of a time that Python cannot have, such as ``0000-00-00``."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


_CONVERTERS: dict[Any, Any] = {**conversions, FIELD_TYPE.DATETIME: _parse_time}
_NULL = 251
_SIZES = {252: 2, 253: 3, 254: 8}
"""First byte of a column of more than 250 bytes -> bytes of its size."""


class _Result(MySQLResult):
    def _read_row_from_packet(self, packet: Any) -> tuple[Any, ...]:
        """Return a row of the text protocol, with PyMySQL's decoding and conversion."""
        data: bytes = packet.get_all_data()
        row: list[Any] = []
        end = 0
        for encoding, convert in self.converters:
            size, start = data[end], end + 1
            if size == _NULL:
                row.append(None)
                end = start
                continue
            if size > _NULL:
                size, start = _read_size(data, size, start)
            end = start + size
            value: Any = data[start:end]
            if encoding is not None:
                value = value.decode(encoding)
            row.append(value if convert is None else convert(value))
        return tuple(row)


def _read_size(data: bytes, first: int, start: int) -> tuple[int, int]:
    """Return the size of a long column, and where the column starts."""
    end = start + _SIZES[first]
    return int.from_bytes(data[start:end], "little"), end


class _Connection(Connection):
    """A connection whose timeouts may change, for which PyMySQL has no public way.

    Attributes:
        read_timeout: seconds in which each part of an answer arrives.
        write_timeout: seconds in which each part of a statement is sent.
    """

    read_timeout = write_timeout = 0.0

    @property
    def _read_timeout(self) -> float:
        """What PyMySQL applies to the next packet."""
        return find_limit().cut(self.read_timeout)

    @_read_timeout.setter
    def _read_timeout(self, seconds: float) -> None:
        self.read_timeout = seconds

    @property
    def _write_timeout(self) -> float:
        return find_limit().cut(self.write_timeout)

    @_write_timeout.setter
    def _write_timeout(self, seconds: float) -> None:
        self.write_timeout = seconds

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        """Read the whole answer to a statement; no cursor of SQLAlchemy's reads it in parts."""
        self._result = None
        result: Any = _Result(self)  # type: ignore[no-untyped-call]
        result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return result.affected_rows


def connect(parameters: Mapping[str, Any]) -> _Connection:
    """Connect with PyMySQL's parameters; ``connect_timeout`` includes greeting and login.

    PyMySQL's own applies only until the kernel has accepted the connection, and then awaits
    the greeting of a hung server as long as a statement.
    """
    seconds = find_limit().cut(parameters["connect_timeout"])
    own = {"conv": _CONVERTERS, "connect_timeout": seconds, "read_timeout": seconds}
    connection = _Connection(**{**parameters, **own})  # type: ignore[no-untyped-call]
    connection.read_timeout = parameters["read_timeout"]
    return connection
