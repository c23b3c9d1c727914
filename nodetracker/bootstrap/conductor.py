"""Build a conductor from its configuration."""

import uuid
from importlib.metadata import version

from oslo_config import cfg

from nodetracker.bootstrap.clients import Broker
from nodetracker.bootstrap.settings import check_conductor_values
from nodetracker.bootstrap.stores import build_purge, build_sql_store, require_database
from nodetracker.bootstrap.values import read_host_name
from nodetracker.compute.identity import read_incarnation
from nodetracker.conductor.client import CONDUCTOR
from nodetracker.conductor.service import BrokerWatch, ConductorService, SelfCall
from nodetracker.fleet.membership import Membership
from nodetracker.fleet.watch import FleetWatch, Watcher
from nodetracker.model.service import CONDUCTOR_BINARY
from nodetracker.notifying_store import notifying_store
from nodetracker.ports import Store
from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc.server import RpcServer


def build_conductor(conf: cfg.ConfigOpts) -> ConductorService:
    """Build a conductor; nothing is connected or started.

    Raises:
        ConfigError: a value is invalid; the message names it.
    """
    check_conductor_values(conf)
    require_database(conf)
    host, interval = read_host_name(conf), conf.report_interval
    broker = Broker(conf)
    broker.connect()
    # Each worker may hold a connection, and the heartbeat must never wait for one.
    workers = conf.conductor.workers
    store: Store = build_sql_store(conf, pool={"max_pool_size": workers + 1})
    notifier = broker.make_notifier(f"conductor:{host}")
    if notifier is not None:
        store = notifying_store(store, notifier)
    clock = DatabaseClock()
    server = RpcServer(broker.connect, CONDUCTOR, host, store, clock, workers, store.now)
    call_self = SelfCall(broker.connect, host, broker.caller)
    watch = BrokerWatch(call_self)
    incarnation = read_incarnation(str(uuid.uuid4()), interval)
    membership = Membership(
        store,
        host,
        CONDUCTOR_BINARY,
        CONDUCTOR.topic,
        version("nodetracker"),
        incarnation,
        clock,
        watch.state,
    )
    fleet = FleetWatch(store, host, conf.service_down_time)
    return ConductorService(
        host,
        store,
        (server, call_self.server),
        membership,
        watch,
        fleet,
        notifier,
        interval,
        conf.graceful_shutdown_timeout,
        build_purge(conf, store, Watcher(host, CONDUCTOR_BINARY, conf.service_down_time)),
    )
