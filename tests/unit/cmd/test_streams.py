"""Standard streams that are closed, or that cannot be written."""

import os
import sys
from pathlib import Path

import pytest

from nodetracker.cmd import manage
from nodetracker.cmd.screen.streams import end_output, replace_closed_streams, write_output
from nodetracker.model.errors import RefusedError


def test_a_closed_input_is_empty(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    replace_closed_streams()
    with sys.stdin as stream:
        assert (stream.isatty(), stream.read()) == (False, "")


def test_a_reader_that_has_gone_needs_no_output(monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        print("buffered")
        write_output("more\n")


def test_output_that_cannot_be_written_is_an_error(monkeypatch):
    with Path("/dev/full").open("w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        print("buffered")
        with pytest.raises(RefusedError, match="the output cannot be written: No space left"):
            write_output()


@pytest.mark.parametrize(("code", "expected"), [(0, 1), (78, 78)])
def test_the_code_of_an_error_is_kept_when_output_cannot_be_written(monkeypatch, code, expected):
    with Path("/dev/full").open("w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        print("buffered")
        assert end_output(code) == expected


def test_a_command_whose_output_cannot_be_written_fails(monkeypatch, capsys):
    with Path("/dev/full").open("w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.setattr(manage.ManageApp, "run", lambda app, _: print("lost") or 0)
        assert manage.main(["node", "list"]) == 1
    expected = "the output cannot be written: No space left on device\n"
    assert capsys.readouterr().err == expected
