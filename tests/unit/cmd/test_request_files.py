"""Files of requests, which people name."""

import pytest

from nodetracker.cmd.commands.claim import read_json
from nodetracker.model.errors import RequestError


def test_a_file_that_cannot_be_read_is_named_once(tmp_path):
    path = str(tmp_path / "claim.json")
    with pytest.raises(RequestError) as caught:
        read_json(path)
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"


def test_a_file_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "claim.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(RequestError, match="cannot be read: not valid UTF-8$"):
        read_json(str(path))


def test_a_file_that_never_ends_is_not_read_for_ever():
    with pytest.raises(RequestError, match="^/dev/zero: has more than 1048576 characters$"):
        read_json("/dev/zero")
