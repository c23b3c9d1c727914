import io

from nodetracker.cmd.standalone import TablePrinter
from nodetracker.model.audit import AuditReport


def test_a_closed_output_does_not_stop_the_agent():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    printer = TablePrinter(Closed())
    for _ in range(2):
        printer.audited(AuditReport(changes=(None,)))
