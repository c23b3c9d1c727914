import io

from nodetracker.cmd.standalone import TablePrinter, name_manage
from nodetracker.model.audit import AuditReport


def test_a_closed_output_does_not_stop_the_agent():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    printer = TablePrinter(Closed())
    for _ in range(2):
        printer.audited(AuditReport(changes=(None,)))


def test_the_command_that_is_printed_works_in_any_directory(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nodetracker-manage").touch()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.argv", ["../bin/nodetracker-standalone"])
    assert name_manage() == f"{tmp_path}/bin/nodetracker-manage"
