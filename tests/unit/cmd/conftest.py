"""The configuration of commands that run in process."""

import pytest
from oslo_config import cfg

from nodetracker.bootstrap.options.opts import register_command_options
from nodetracker.cmd.configuration import load_configuration
from nodetracker.cmd.manage import PROGRAM


@pytest.fixture(scope="module")
def conf(tmp_path_factory):
    conf = cfg.ConfigOpts()
    load_configuration(conf, [], PROGRAM, [], register_command_options)
    conf.set_override("state_path", str(tmp_path_factory.mktemp("state")))
    return conf
