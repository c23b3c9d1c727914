"""The commands help and completion."""

import argparse
from collections.abc import Iterable, Sequence
from typing import ClassVar

from nodetracker.cmd.command_table import COMMANDS
from nodetracker.cmd.commands.base import StoreCommand, argument
from nodetracker.model.errors import NodetrackerError
from nodetracker.process.daemon import EXIT_USAGE

_SCRIPTS = {
    "bash": """\
_nodetracker_manage()
{
  local IFS=$'\\n'
  COMPREPLY=($(nodetracker-manage completion words -- \\
    "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -F _nodetracker_manage nodetracker-manage
""",
    "zsh": """\
#compdef nodetracker-manage
_nodetracker_manage()
{
  compadd -- "${(@f)$(nodetracker-manage completion words -- \\
    "${(@)words[2,CURRENT]}" 2>/dev/null)}"
}
if [ "$funcstack[1]" = "_nodetracker-manage" ]; then
  _nodetracker_manage
else
  compdef _nodetracker_manage nodetracker-manage
fi
""",
    "fish": """\
function __nodetracker_manage
  set -l typed (commandline -opc) (commandline -ct)
  nodetracker-manage completion words -- $typed[2..-1] 2>/dev/null
end
complete -c nodetracker-manage -f -a '(__nodetracker_manage)'
""",
}
"""By shell; each requests the words that may follow from ``completion words``."""


class ShowHelp(StoreCommand):
    example = "help node list"
    arguments = (argument("cmd", nargs="*", metavar="COMMAND", help="Words of the command."),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        try:
            self.app.stdout.write(self.app.render_help(parsed_args.cmd))
        except ValueError as error:
            self.app.stderr.write(str(error))
            self.exit_code = EXIT_USAGE


class _CompletionScript(StoreCommand):
    """Base of the commands that print a shell's script."""

    shell: ClassVar[str]

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.app.stdout.write(_SCRIPTS[self.shell])


class CompleteInBash(_CompletionScript):
    details = "It is installed in share/bash-completion/completions."
    example = "completion bash > /etc/bash_completion.d/nodetracker-manage"
    shell = "bash"


class CompleteInZsh(_CompletionScript):
    details = "It is installed in share/zsh/site-functions."
    example = "completion zsh > /usr/local/share/zsh/site-functions/_nodetracker-manage"
    shell = "zsh"


class CompleteInFish(_CompletionScript):
    details = "It is installed in share/fish/vendor_completions.d."
    example = "completion fish > ~/.config/fish/completions/nodetracker-manage.fish"
    shell = "fish"


class CompleteWords(StoreCommand):
    details = "While the database does not answer, no hosts and nodes are known."
    example = "completion words -- node describe compu"
    arguments = (argument("words", nargs="*", metavar="WORD", help="After the program's name."),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        *typed, last = parsed_args.words or [""]
        while len(typed) > 1 and typed[0] in ("--config-file", "--config-dir"):
            option, value, *typed = typed
            getattr(self.app.options, option[2:].replace("-", "_")).append(value)
        found = (word for word in self._list_words(typed, last) if word.startswith(last))
        self.app.stdout.write("".join(f"{word}\n" for word in found if word.isprintable()))

    def _list_words(self, typed: Sequence[str], last: str) -> Iterable[str]:
        parts = [name.split() for name in COMMANDS]
        name = next((part for part in parts if part == list(typed[: len(part)])), None)
        if name is None:
            start = list(typed)
            longer = (part for part in parts if part[: len(start)] == start)
            return sorted({part[len(start)] for part in longer})
        parser = self.app.build_parser(name)
        return self._list_arguments(parser, typed[len(name) :], last)

    def _list_arguments(
        self, parser: argparse.ArgumentParser, typed: Sequence[str], last: str
    ) -> Iterable[str]:
        options = {text: action for action in parser._actions for text in action.option_strings}
        positional = [action for action in parser._actions if not action.option_strings]
        values: list[str] = []
        hosts: list[str] = []
        expected: argparse.Action | None = None
        for word in typed:
            if expected is not None:
                hosts += [word] * (expected.dest == "of_host")
                expected = None
            elif word in options:
                takes_value = options[word].nargs != 0
                expected = options[word] if takes_value else None
            else:
                values.append(word)
        if expected is None and (last.startswith("-") or len(values) >= len(positional)):
            return sorted(options)
        action = expected or positional[len(values)]
        hosts_at = next((n for n, each in enumerate(positional) if each.dest == "host"), 0)
        try:
            return self._list_values(action, hosts or values[hosts_at:])
        except NodetrackerError:
            return ()

    def _list_values(self, action: argparse.Action, hosts: Sequence[str]) -> Iterable[str]:
        if action.choices is not None:
            return map(str, action.choices)
        if action.dest in ("host", "of_host"):
            return sorted({service.host for service in self.reader.list_services()})
        if action.dest in ("nodename", "of_node") and hosts:
            return sorted(node.nodename for node in self.reader.list_nodes(hosts[0]))
        return ()
