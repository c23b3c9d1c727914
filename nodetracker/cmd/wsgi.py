"""The REST service as a WSGI application, for uWSGI, mod_wsgi and gunicorn.

``OS_NODETRACKER_CONFIG_FILES`` names configuration files, with ``;`` between them,
and ``OS_NODETRACKER_CONFIG_DIR`` a directory of them. Nothing is connected before
the first request, so a server may fork after it has imported this module.
"""

import os
from collections.abc import Mapping
from wsgiref.types import WSGIApplication

from oslo_config import cfg

from nodetracker.bootstrap.api import build_wsgi_application
from nodetracker.cmd.configuration import load_configuration
from nodetracker.cmd.program import start

PROGRAM = "nodetracker-api"


def make_application(conf: cfg.ConfigOpts, environment: Mapping[str, str]) -> WSGIApplication:
    """Build the application from the files that environment variables name.

    Raises:
        ConfigError: a file or value is invalid; the message names it.
    """
    files = environment.get("OS_NODETRACKER_CONFIG_FILES", "").split(";")
    arguments = [f"--config-file={name.strip()}" for name in files if name.strip()]
    directory = environment.get("OS_NODETRACKER_CONFIG_DIR", "").strip()
    if directory:
        arguments.append(f"--config-dir={directory}")
    load_configuration(conf, arguments, PROGRAM)
    return start(conf, build_wsgi_application)


application = make_application(cfg.CONF, os.environ)
