"""The command host capture."""

import argparse
import time
from pathlib import Path

from cliff.command import Command

from nodetracker.bootstrap.settings import build_roots
from nodetracker.cmd.commands.base import StoreCommand
from nodetracker.cmd.screen.progress import show_progress
from nodetracker.host.archive import SUFFIXES, name_folder, write_archive
from nodetracker.host.capture import capture_machine
from nodetracker.model.text import count_noun


class CaptureHost(StoreCommand, Command):
    """Write the files that the agent reads on this machine to a tar archive for a bug report.

    It contains only files below [host] procfs, sysfs and rootfs. Set these options
    to the unpacked archive's folder to read it like a machine.
    """

    example = "host capture compute-1.tar.xz"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the archive."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "file", metavar="FILE", type=Path, help=f"Archive to write ({', '.join(SUFFIXES)})."
        )
        parser.add_argument("--force", action="store_true", help="Replace an existing file.")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Read the machine, write the archive, and print what it contains and lacks."""
        path, stdout = parsed_args.file, self.app.stdout
        folder = name_folder(path)
        with show_progress("capturing the machine", self.app.stderr) as progress:
            capture = capture_machine(build_roots(self.app.conf), progress.report)
            progress.report(0, 0, f"writing {path}")
            size = write_archive(capture, path, parsed_args.force, time.time())
        files = count_noun(len(capture.files), "file")
        links = count_noun(len(capture.links), "link")
        stdout.write(f"{path}: {files} and {links} in the folder {folder}, {size} bytes\n")
        for name, reason in sorted(capture.unreadable.items()):
            stdout.write(f"not readable, left out: {name}: {reason}\n")
