"""The commands help and completion bash."""

import argparse
import io

from cliff.command import Command
from cliff.complete import CompleteBash, CompleteDictionary

from nodetracker.cmd.commands.base import StoreCommand, argument


class ShowHelp(StoreCommand, Command):
    """Show the help of a command, as --help after it does."""

    example = "help node list"
    arguments = (argument("cmd", nargs="*", metavar="COMMAND", help="Words of the command."),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.app.stdout.write(self.app.render_help(parsed_args.cmd))


class CompleteInBash(StoreCommand, Command):
    """Print the script with which bash completes commands and options.

    It is installed in share/bash-completion/completions.
    """

    example = "completion bash > /etc/bash_completion.d/nodetracker-manage"

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        words = CompleteDictionary()
        for name, _ in self.app.command_manager:
            parser = self.app.build_parser(name)
            options = [action for action in parser._actions if action.option_strings]
            words.add_command(name.split(), options)
        output = io.StringIO()
        CompleteBash(self.app.NAME, output).write(words.get_commands(), words.get_data())
        text = "\n".join(line.rstrip() for line in output.getvalue().split("\n"))
        self.app.stdout.write(text)
