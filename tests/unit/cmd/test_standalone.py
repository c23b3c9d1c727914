import io

from nodetracker.cmd.standalone import TablePrinter
from nodetracker.model.audit import AuditReport


def test_whoever_stops_reading_the_table_stops_nothing():
    class Closed(io.StringIO):
        def isatty(self):
            return True

        def write(self, text):
            raise BrokenPipeError

    printer = TablePrinter(Closed())
    for _ in range(2):
        printer.audited(AuditReport())
