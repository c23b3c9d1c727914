"""Rows of MariaDB and MySQL are those that PyMySQL itself reads."""

from datetime import datetime
from typing import Any

from pymysql.connections import MySQLResult
from pymysql.protocol import MysqlPacket

from nodetracker.db.connection.pymysql_connection import _Result


def encode(value: bytes | None, first: int | None = None) -> bytes:
    """Return a column of the text protocol.

    Args:
        first: the first byte of its size, 252 to 254; None = that of the shortest form.
    """
    if value is None:
        return b"\xfb"
    size = len(value)
    if first is None:
        first = size if size < 251 else 252 if size < 2**16 else 253
    width = {252: 2, 253: 3, 254: 8}.get(first, 0)
    return bytes([first]) + size.to_bytes(8, "little")[:width] + value


def test_columns_of_every_size_are_read_and_converted() -> None:
    columns: list[tuple[bytes, str | None, Any]] = [
        (encode(b"7"), "ascii", int),
        (encode(None), "ascii", int),
        (encode(b""), "utf8", None),
        (encode(b"2026-11-26 11:03:00.000001"), "ascii", datetime.fromisoformat),
        *((encode(b"x" * size), "utf8", None) for size in (1, 250, 251, 252, 65535, 65536)),
        *((encode(b"short", first), "utf8", None) for first in (252, 253, 254)),
        (encode("straße".encode()), "utf8", None),
        (encode(b"\x00\xff"), None, None),
        (encode(None), None, None),
    ]
    data = b"".join(column for column, _, _ in columns)
    results = []
    for kind in (MySQLResult, _Result):
        result: Any = kind(None)  # type: ignore[no-untyped-call]
        result.converters = [(encoding, convert) for _, encoding, convert in columns]
        results.append(result._read_row_from_packet(MysqlPacket(data, "utf8")))
    assert results[0] == results[1]
    assert len(results[1]) == len(columns)
