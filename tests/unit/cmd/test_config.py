"""``config sample`` without some of the optional libraries."""

from types import SimpleNamespace

import pytest

from nodetracker.cmd import manage
from nodetracker.cmd.commands import config


def test_libraries_that_are_not_installed_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config, "SAMPLE_NAMESPACES", ("nodetracker", "absent.library"))
    monkeypatch.setattr(manage.ManageApp, "conf", SimpleNamespace())
    assert manage.main(["config", "sample"]) == 0
    captured = capsys.readouterr()
    assert "[compute]" in captured.out
    assert captured.err == "absent.library is not installed; its options are left out\n"
