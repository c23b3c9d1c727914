"""Find options in configuration files that nothing reads, and invalid values of libraries' options.

The library that reads the files ignores unknown options, and checks the values of those
only that are registered when it reads them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oslo_config import cfg

from nodetracker.bootstrap.clients import list_messaging_options
from nodetracker.bootstrap.options.agent import PLACEMENT
from nodetracker.bootstrap.options.opts import is_group, list_placement_options
from nodetracker.bootstrap.values import explain_invalid, is_secret

_DEFAULT = "DEFAULT"
_Options = Mapping[str, Mapping[str, Sequence[Any]]]
"""Group -> name -> the options that libraries have under it."""


def find_problems(conf: cfg.ConfigOpts) -> Iterable[str]:
    """Yield a line for each unknown group or option, and each invalid value of a library's option.

    Imports all libraries that have options. Values of options that are registered were
    checked when the files were read.
    """
    from nodetracker.api.library_options import list_options as list_api_options

    registered = _list_registered(conf)
    libraries = _by_name(
        [*list_messaging_options(), *list_api_options(), (PLACEMENT.name, list_placement_options())]
    )
    for path, group, options in _read_groups(conf):
        if group not in registered and group not in libraries:
            yield f"{path}: unknown group [{group}]"
            continue
        for name, values in options.items():
            if name in registered.get(group, ()):
                continue
            found = libraries.get(group, {}).get(name)
            if found is None:
                yield f"{path}: unknown option [{group}] {name}"
            elif problem := _find_invalid(found, values):
                yield f"{path}: [{group}] {name}: {problem}"


def find_ignored(conf: cfg.ConfigOpts) -> Iterable[str]:
    """Yield a line for each unknown option in nodetracker's own groups.

    Other groups may be those of libraries or of other programs. A library whose options
    share a group is imported only for a name that nodetracker does not have.
    """
    registered = _list_registered(conf)
    for path, group, options in _read_groups(conf):
        unknown = [name for name in options if name not in registered.get(group, (name,))]
        if unknown and group == _DEFAULT:
            shared = _by_name(list_messaging_options()).get(group, {})
            unknown = [name for name in unknown if name not in shared]
        elif unknown and group == PLACEMENT.name:
            shared = _by_name([(group, list_placement_options())]).get(group, {})
            # Without the library, nobody can know.
            unknown = [name for name in unknown if shared and name not in shared]
        for name in unknown:
            yield f"{path}: unknown option [{group}] {name} is ignored"


def find_exposures(conf: cfg.ConfigOpts) -> Iterable[str]:
    """Yield a line for each file whose mode lets everybody on this machine in."""
    exposed: dict[Path, str] = {}
    for path, group, options in _read_groups(conf):
        for name, values in options.items():
            if path not in exposed and is_secret(name, values[-1]) and _mode_of(path) & 0o004:
                exposed[path] = f"[{group}] {name}"
    for path, name in exposed.items():
        yield f"{path}: has a password ({name}), and all users may read it; use mode 0640"
    users = Path(conf.api.http_basic_auth_user_file)
    if conf.api.auth_strategy == "http_basic" and _mode_of(users) & 0o002:
        yield f"{users}: all users may write it, and so administer; use mode 0640"


def _mode_of(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _list_registered(conf: cfg.ConfigOpts) -> dict[str, set[str]]:
    """Return group -> names of its registered options."""
    names = {_DEFAULT: set(conf)}
    for group in conf:
        if is_group(conf, group):
            names.setdefault(group, set()).update(conf[group])
    return names


def _by_name(listed: Iterable[tuple[str | None, Sequence[Any]]]) -> _Options:
    """Return options by group and name, their deprecated names included."""
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for group, options in listed:
        for option in options:
            found[group or _DEFAULT][option.dest].append(option)
            for old in getattr(option, "deprecated_opts", ()):
                found[old.group or group or _DEFAULT][
                    (old.name or option.dest).replace("-", "_")
                ].append(option)
    return found


def _read_groups(conf: cfg.ConfigOpts) -> Iterator[tuple[Path, str, dict[str, list[str]]]]:
    """Yield file, group, and its options in that file: name -> values as written."""
    files = [Path(name) for name in conf.config_file or ()]
    for directory in conf.config_dir or ():
        files += sorted(Path(directory).glob("*.conf"))
    for path in files:
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(str(path), sections).parse()
        for group, options in sections.items():
            yield path, group, {name.replace("-", "_"): found for name, found in options.items()}


def _find_invalid(options: Sequence[Any], values: Sequence[str]) -> str | None:
    """Return why the values suit none of the options of their name; None if they suit one."""
    problems = [explain_invalid(option, values) for option in options]
    return None if None in problems else problems[-1]
