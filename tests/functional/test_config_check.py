"""config check and the programs: one decision, in the same words."""

import pytest

from tests.functional.servers.process import find_free_port
from tests.programs import Programs

AGENT, API, CONDUCTOR = ALL = ("nodetracker-compute", "nodetracker-api", "nodetracker-conductor")
STARTED = {AGENT: "is ready", API: "Serving on", CONDUCTOR: "Serving on"}
VALUES = """
state_path = state
report_interval = ten
log_dir = /nowhere/log
[compute]
probe_timeout = 0
initial_cpu_allocation_ratio = much
allow_power_actions = maybe
[api]
auth_strategy = none
public_url = ftp://u:s3cret@host/
[pci]
alias = {
[database]
max_pool_size = many
"""
TOKEN = "[conductor]\nuse_local = false\nendpoint = https://127.0.0.1:1\n"
DATABASE = "[database]\nconnection = sqlite:///{directory}/db.sqlite\n"
# What is in a file, and of each program that does not start with it what it names.
BAD = {
    "values of every kind": (
        VALUES,
        dict.fromkeys(
            ALL,
            (
                "[DEFAULT] state_path: 'state' is not an absolute path",
                "[DEFAULT] report_interval: 'ten' is not a whole number",
                "[DEFAULT] log_dir: /nowhere/log is not a directory",
                "[compute] probe_timeout: '0' is not a whole number from 1 to 2147483647",
                "[compute] initial_cpu_allocation_ratio: 'much' is not a number",
                "[compute] allow_power_actions: 'maybe' is neither true nor false",
                "[api] auth_strategy: 'none' is not one of http_basic, keystone, noauth",
                "[api] public_url: the value, which is not shown, is invalid",
                "[pci] alias: {: not valid JSON",
                "[database] max_pool_size: 'many' is not a whole number",
            ),
        ),
    ),
    "an interval without its limit": (
        f"report_interval = 30\n{DATABASE}",
        dict.fromkeys(ALL, ("[DEFAULT] report_interval: 30 is more than a third",)),
    ),
    "a database and a broker": (
        "transport_url = nonsense://u:s3cret@h/\n[database]\nconnection = oracle://u:s3cret@h/x\n",
        dict.fromkeys(
            ALL, ("[DEFAULT] transport_url: ", "[database] connection: oracle is not supported")
        ),
    ),
    "admission where guests that are off count": (
        f"[compute]\ncompute_driver = libvirt\nadmission = warn\n{DATABASE}",
        {AGENT: ("[compute] admission: needs [compute] inactive_guests = ignored",)},
    ),
    "admission of an engine where guests that are off count": (
        f"[compute]\ncompute_driver = docker\n[docker]\nadmission = warn\n{DATABASE}",
        {AGENT: ("[docker] admission: needs [compute] inactive_guests = ignored",)},
    ),
    "admission of several hypervisors": (
        "[compute]\ncompute_driver = libvirt\ninactive_guests = ignored\n"
        "[libvirt]\nadmission = enforce\nconnection_uris = a=qemu:///system, b=qemu:///session\n"
        + DATABASE,
        {AGENT: ("[libvirt] connection_uris: admission needs one hypervisor",)},
    ),
    "admission of several engines": (
        "[compute]\ncompute_driver = docker\ninactive_guests = ignored\n"
        "[docker]\nadmission = enforce\nbase_url = unix:///a.sock, unix:///b.sock\n" + DATABASE,
        {AGENT: ("[docker] admission: needs one engine, not 2",)},
    ),
    "an address for agents without TLS": (
        f"[conductor]\nlisten = 0.0.0.0\n{DATABASE}",
        {CONDUCTOR: ("[conductor] cert_file: not set, and HTTP on 0.0.0.0 shows",)},
    ),
    "files of certificates": (
        "[conductor]\ncert_file = /nowhere.pem\nkey_file = /nowhere.key\n"
        f"[api]\nkey_file = /nowhere.key\n{DATABASE}",
        {
            CONDUCTOR: (
                "[conductor] cert_file: /nowhere.pem: No such file or directory",
                "[conductor] key_file: /nowhere.key: No such file or directory",
            ),
            API: ("[api] key_file: /nowhere.key, but cert_file is not set",),
        },
    ),
    "conductors": (
        f"{TOKEN}, http://control\ncafile = /nowhere.pem\n".replace("1:1\n,", "1:1,"),
        {
            AGENT: (
                "[conductor] endpoint: 'http://control': HTTP shows",
                "[conductor] cafile: /nowhere.pem: No such file or directory",
            ),
            API: ("[conductor] use_local: false, but nodetracker-api needs the database",),
            CONDUCTOR: ("[database] connection: not set, and [conductor] use_local is false",),
        },
    ),
    "the REST service's users": (
        "[api]\nauth_strategy = noauth\nlisten = 0.0.0.0\n"
        f"[oslo_policy]\npolicy_file = /proc/version\n{DATABASE}",
        {API: ("[api] auth_strategy: noauth serves on a loopback", "[oslo_policy] policy_file")},
    ),
    "a state path below a file": (
        f"state_path = /proc/version/state\n{DATABASE}",
        {AGENT: ("[DEFAULT] state_path: /proc/version/state: /proc/version is not a directory",)},
    ),
    "drivers": (
        "[compute]\ncompute_driver = local, nosuch\ncompute_monitors = none\n"
        "cpu_shared_set = a\nreserved_huge_pages = node:x,size:2048,count:1\n"
        f"{DATABASE}",
        {
            AGENT: (
                "[compute] compute_driver: unknown driver 'nosuch'",
                "[compute] compute_monitors: unknown monitor 'none'",
                "[compute] cpu_shared_set: 'a' is not a CPU id",
                "[compute] reserved_huge_pages: node:x,size:2048,count:1: node: 'x' is not a whole",
            )
        },
    ),
}  # fmt: skip


def write(directory, text):
    programs = Programs(directory)
    text = text.format(directory=directory) if "{directory}" in text else text
    own = "" if "state_path" in text else f"state_path = {directory}\nhost = host-1\n"
    programs.path.write_text(f"[DEFAULT]\n{own}{text}\n")
    programs.path.chmod(0o600)
    ports = {"api": find_free_port(), "conductor": find_free_port(), "metrics": find_free_port()}
    env = {f"OS_{group}__PORT".upper(): str(port) for group, port in ports.items()}
    return programs, env


def check(programs, env, *program):
    """Return the exit code, the problems, the warnings and the output of a check."""
    done = programs.run("nodetracker-manage", "config", "check", *program, **env)
    assert "s3cret" not in done.stderr
    lines = done.stderr.splitlines()
    warnings = [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]
    return (
        done.returncode,
        [line for line in lines if not line.startswith("warning: ")],
        warnings,
        done.stdout,
    )


def start(programs, program, env):
    """Start a program that is to run, and end it; return what it logged."""
    with programs.start(program, **env) as running:
        running.wait_for(STARTED[program])
        assert running.stop() == 0
        return running.output()


@pytest.mark.parametrize("name", BAD)
def test_programs_start_if_the_check_says_so_and_name_the_same_problems(tmp_path, name):
    text, words = BAD[name]
    programs, env = write(tmp_path, text)
    programs.make_schema()
    for program in ALL:
        code, problems, _, output = check(programs, env, program)
        if program not in words:
            assert (code, f"the configuration of {program} is valid" in output) == (0, True)
            if "use_local" not in text:
                start(programs, program, env)
            continue
        assert code == 78
        assert len(problems) == len(words[program]), problems
        for word in words[program]:
            assert sum(problem.startswith(word) for problem in problems) == 1, (word, problems)
        done = programs.run(program, **env)
        assert done.returncode == 78, done.stderr
        lines = [line for line in done.stderr.splitlines() if line.startswith(f"{program}: ")]
        assert sorted(line.removeprefix(f"{program}: ") for line in lines) == sorted(problems)
        assert "s3cret" not in done.stderr


def test_what_an_agent_survives_is_a_warning_of_the_check_and_of_its_log(tmp_path):
    files = tmp_path / "provider_config"
    files.mkdir()
    (files / "a.yaml").write_text(
        "meta: {schema_version: '1.0'}\nproviders: [{identification: {name: node-1}}]\n"
    )
    programs, env = write(
        tmp_path,
        "[compute]\ncompute_driver = fake\ncpu_dedicated_set = 0\n"
        f"provider_config_location = {files}\n[fake]\ninventory_file = {tmp_path}/none\n"
        f"{TOKEN}join_token_file = {tmp_path}/token\n",
    )
    expected = [
        f"[fake] inventory_file: {tmp_path}/none is not a file",
        "[compute] cpu_shared_set: not set, while cpu_dedicated_set is: no CPU is left",
        f"{files}/a.yaml: provider node-1: adds neither a resource class nor a trait",
        f"[conductor] join_token_file: {tmp_path}/token: No such file or directory; this host",
    ]
    code, _, warnings, _ = check(programs, env, AGENT)
    assert (code, len(warnings)) == (0, len(expected)), warnings
    with programs.start(AGENT, **env) as agent:
        for text, line in zip(expected, warnings, strict=True):
            assert line.startswith(text)
            agent.wait_for(line)
    (tmp_path / "credential").write_text("a" * 64)
    assert "join_token_file" not in "".join(check(programs, env, AGENT)[2])


def test_without_a_program_a_compute_host_is_checked_as_that(tmp_path):
    programs, env = write(tmp_path, f"{TOKEN}join_token = s3cret\n")
    code, problems, _, output = check(programs, env)
    assert (code, problems) == (0, [])
    assert output == f"the configuration of {AGENT} is valid ({programs.path})\n"


def test_without_a_program_agent_and_rest_service_are_checked_where_a_database_is(tmp_path):
    programs, env = write(
        tmp_path, f"[api]\nkey_file = /nowhere\n[compute]\ncompute_driver =\n{DATABASE}"
    )
    code, problems, _, _ = check(programs, env)
    assert (code, problems) == (
        78,
        [
            f"{AGENT}: [compute] compute_driver: must not be empty",
            f"{API}: [api] key_file: /nowhere, but cert_file is not set",
        ],
    )
