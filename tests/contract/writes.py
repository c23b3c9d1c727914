"""All writes of a store, each on rows that it concerns and others that it does not."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from nodetracker.model.change import ItemDiff
from nodetracker.model.claim import MigrationStatus, PlacedRequest
from nodetracker.model.guest import Guest, WorkloadKind
from nodetracker.model.provider import RemovalQuery
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, AuditState, ServiceChange
from nodetracker.model.warning import WarningKind
from nodetracker.ports import AgentKey
from tests.builders import (
    create,
    delete,
    key_of,
    make_device,
    make_guest,
    make_incarnation,
    measure,
    take_service,
    update,
)
from tests.contract.scene import (
    ADDRESSES,
    CPU,
    CUT_OFF,
    PAST,
    POLICY,
    Scene,
    ask,
    ask_move,
    expire,
    fail,
    list_devices,
    list_guests,
    node_uuid,
    uuid_of,
)

ALWAYS_DOWN = -1


Touched = dict[str, set[str] | None]


@dataclass(frozen=True)
class Write:
    """A call of a store.

    Attributes:
        touched: pattern of rows that it changes -> the columns that change,
            None = any.
        is_audit: the row is what an audit decided, so its usage is not checked.
    """

    method: str
    case: str
    call: Callable[[Scene], Any]
    touched: Touched
    is_audit: bool = False

    @property
    def id(self) -> str:
        return f"{self.method}-{self.case.replace(',', '').replace(' ', '-')}"


def rows(*patterns: str) -> Touched:
    return dict.fromkeys(patterns)


def warning_id(scene: Scene) -> int:
    (found,) = (x for x in scene.store.list_warnings("alpha") if x.warning.kind is CUT_OFF.kind)
    return found.id


def conductor_of(scene: Scene, host: str) -> AgentKey:
    return key_of(scene.service(host, CONDUCTOR_BINARY))


def register(scene: Scene, binary: str) -> None:
    take_service(scene.store, "alpha", make_incarnation("another"), binary)


def update_children(scene: Scene) -> None:
    record = scene.record("a1")
    bare, queue = record.guests[uuid_of("bare")], record.guests[uuid_of("queue")]
    changed, removed = (record.devices[address] for address in ADDRESSES[:2])
    guests = ItemDiff(
        (make_guest("added", uuid=uuid_of("added")),),
        (dataclasses.replace(queue, name="Queue"),),
        (bare,),
    )
    devices = ItemDiff(
        (make_device("0000:82:00.0"),), (dataclasses.replace(changed, driver="new"),), (removed,)
    )
    scene.apply(update(record, guests, devices))


def expire_claim(scene: Scene) -> None:
    record = scene.record("a1")
    scene.apply(dataclasses.replace(update(record), claims=(expire(record, "new a1"),)))


def fail_move(scene: Scene) -> None:
    record = scene.record("a1")
    scene.apply(dataclasses.replace(update(record), moves=(fail(record, "web"),)))


def create_node(scene: Scene, nodename: str, uuid: str) -> None:
    """Create a node of alpha."""
    guests, devices = list_guests("a1"), list_devices("a1")
    scene.apply(create(scene.agents["alpha"], nodename, None, guests, devices, uuid))


def rename(scene: Scene) -> None:
    scene.store.rename_host("alpha", "omega", COMPUTE_BINARY, scene.service("alpha"))


def claim(name: str, label: str) -> Callable[[Scene], None]:
    return lambda scene: scene.claim(ask(name), label)


STARTED = Guest(uuid_of("started"), "started", WorkloadKind.INSTANCE, 1000, 256, 0)


def admit(scene: Scene) -> Any:
    """Admit a guest that is about to start on b2."""
    return scene.store.admit_start(STARTED, "beta", "n2", uuid_of("started b2"), POLICY)


def of_claim(method: str, name: str) -> Callable[[Scene], Any]:
    return lambda scene: getattr(scene.store, method)(uuid_of(name))


GENERATION = {"generation", "limits_generation"}


CHILDREN_OF_G1 = rows("guest g1 *", "device g1 *", "claim past g1", "claim passed g1", "removal g1")


PAST_CLAIMS = rows("claim past *", "claim moved a2", "claim moved b2", "move of moved")
WRITES = [
    Write(
        "register_agent",
        "agent",
        lambda scene: register(scene, COMPUTE_BINARY),
        {**rows("service alpha compute"), "node a1": {"epoch"}, "node a2": {"epoch"}}
        | rows("history alpha  service *"),
    ),
    Write(
        "register_agent",
        "conductor",
        lambda scene: register(scene, CONDUCTOR_BINARY),
        rows("service alpha conductor") | rows("history alpha  service *"),
    ),
    Write(
        "report_state",
        "agent",
        lambda scene: scene.store.report_state(
            scene.agents["alpha"], 2, AuditState(1.0, by_conductor=True)
        ),
        rows("service alpha compute"),
    ),
    Write(
        "report_state",
        "conductor",
        lambda scene: scene.store.report_state(
            conductor_of(scene, "alpha"), 2, AuditState(1.0, by_conductor=True)
        ),
        rows("service alpha conductor"),
    ),
    Write(
        "mark_service",
        "agent",
        lambda scene: scene.store.mark_service(scene.agents["alpha"], "AUTO: away"),
        {
            "service alpha compute": {
                "disabled",
                "disabled_at",
                "disabled_reason",
                "updated_at",
            }
        }
        | rows("history alpha  service changed *"),
    ),
    Write(
        "set_service",
        "conductor",
        lambda scene: scene.store.set_service(
            "alpha", CONDUCTOR_BINARY, ServiceChange(maintenance=True)
        ),
        {
            "service alpha conductor": {
                "maintenance",
                "maintenance_at",
                "updated_at",
            }
        }
        | rows("history alpha  service changed *"),
    ),
    Write(
        "delete_service",
        "agent",
        lambda scene: scene.store.delete_service("gamma", COMPUTE_BINARY, ALWAYS_DOWN),
        rows("service gamma compute", "node g1", "warning gamma *")
        | rows("history gamma n1 delete 1", "history gamma  delete 1")
        | CHILDREN_OF_G1,
    ),
    Write(
        "delete_service",
        "conductor",
        lambda scene: scene.store.delete_service("gamma", CONDUCTOR_BINARY, ALWAYS_DOWN),
        rows("service gamma conductor") | rows("history gamma  service retired *"),
    ),
    Write(
        "rename_host",
        "agent",
        rename,
        rows(
            *("service alpha compute", "service omega compute", "node a1", "node a2"),
            *("history alpha *", "history omega *", "warning alpha *", "warning omega *"),
            *("move of *", "removal gone alpha", "credential alpha", "credential omega"),
        ),
    ),
    Write(
        "take_over_node",
        "of a host that is down",
        lambda scene: scene.store.take_over_node("beta", "n2", "gamma", ALWAYS_DOWN),
        {
            "node b2": {"host", "updated_at"} | GENERATION,
            "move of *": {"dest_host"},
        }
        | rows("history gamma n2 update 1", "warning beta fact_held n2 *"),
    ),
    Write(
        "delete_node",
        "idle",
        lambda scene: scene.store.delete_node("gamma", "n1"),
        rows("node g1", "history gamma n1 delete 1") | CHILDREN_OF_G1,
    ),
    Write(
        "purge_host",
        "with moves from and to another",
        lambda scene: scene.store.purge_host("beta", ALWAYS_DOWN),
        {"node a1": GENERATION, "node a2": GENERATION}
        | {f"move of {name}": {"status", "updated_at"} for name in ("web", "db", "stray", "astray")}
        | rows("node b?", "guest b? *", "device b? *", "claim * b?", "removal b?")
        | rows("warning beta fact_held *", "history beta n? delete 1")
        | rows("history beta n? claim released *", "history alpha n? move cancelled *"),
    ),
    Write(
        "apply_changes",
        "update",
        update_children,
        rows(
            *("node a1", "guest a1 added", "guest a1 queue", "guest a1 bare"),
            *(f"device a1 {address}" for address in (*ADDRESSES[:2], "0000:82:00.0")),
            "history alpha n1 update *",
        ),
        is_audit=True,
    ),
    Write(
        "apply_changes",
        "measurement",
        lambda scene: scene.apply(measure(scene.record("a1"), mem_available=1)),
        {"node a1": {"mem_available", "updated_at"}},
    ),
    Write(
        "apply_changes",
        "expired claim",
        expire_claim,
        rows("node a1", "claim new a1", "history alpha n1 update *")
        | rows("history alpha n1 claim released *"),
        is_audit=True,
    ),
    Write(
        "apply_changes",
        "move in error",
        fail_move,
        {"move of web": {"status", "updated_at"}, "node b1": GENERATION}
        | rows("node a1", "history alpha n1 update *")
        | rows("history alpha n1 move error *"),
    ),
    Write(
        "apply_changes",
        "creation",
        lambda scene: create_node(scene, "n3", uuid_of("a3")),
        rows("node a3", "guest a3 *", "device a3 *", "history alpha n3 create 1"),
        is_audit=True,
    ),
    Write(
        "apply_changes",
        "deletion",
        lambda scene: scene.apply(delete(scene.record("a2"))),
        rows(
            *("node a2", "guest a2 *", "device a2 *", "history alpha n2 delete 1"),
            *("claim stray a2", "claim astray a2", "claim moved a2", "removal a2"),
        ),
    ),
    Write(
        "sync_warnings",
        "one kept, one resolved, one raised again",
        lambda scene: scene.store.sync_warnings(scene.agents["alpha"], [CPU, PAST]),
        {
            "warning alpha clock_skew": {"resolved_at"},
            "warning alpha fact_held n2 cpu": {"earlier", "first_seen", "last_seen", "resolved_at"},
        }
        | rows("history alpha  warning resolved *", "history alpha n2 warning raised *"),
    ),
    Write(
        "raise_warning",
        "again",
        lambda scene: scene.store.raise_warning("alpha", CUT_OFF),
        {"warning alpha agent_unreachable": {"count", "last_seen"}},
    ),
    Write(
        "create_call",
        "one",
        lambda scene: scene.store.create_call("gamma", "reboot", {}, "api:c", timedelta(hours=1)),
        {"service gamma compute": {"calls"}} | rows("call gamma", "call expired"),
    ),
    Write(
        "take_news",
        "own",
        lambda scene: scene.store.take_news(scene.agents["alpha"]),
        {"call alpha": {"taken_at"}},
    ),
    Write(
        "answer_call",
        "own",
        lambda scene: scene.store.answer_call("alpha", scene.call_id, {"value": 1.0}),
        {"call alpha": {"answer", "answered_at"}},
    ),
    Write(
        "resolve_warnings",
        "of one kind",
        lambda scene: scene.store.resolve_warnings(WarningKind.AGENT_UNREACHABLE),
        {"warning * agent_unreachable": {"resolved_at"}} | rows("history *  warning resolved *"),
    ),
    Write(
        "silence_warning",
        "one",
        lambda scene: scene.store.silence_warning(warning_id(scene), "known", 60, "amy"),
        {"warning alpha agent_unreachable": {"silenced_until", "silenced_reason", "silenced_by"}}
        | rows("history alpha  warning silenced *"),
    ),
    Write(
        "create_claim",
        "of a guest",
        claim("queue a2", "a2"),
        rows("claim queue a2", "node a2", "guest a2 queue", "device a2 *")
        | rows("history alpha n2 claim *"),
    ),
    Write(
        "create_claim",
        "without a guest",
        claim("fresh b2", "b2"),
        rows("claim fresh b2", "node b2", "device b2 *") | rows("history beta n2 claim created *"),
    ),
    Write(
        "create_claims",
        "without a guest",
        lambda scene: scene.store.create_claims(
            [PlacedRequest(ask("fresh b2"), "beta", "n2")], POLICY
        ),
        rows("claim fresh b2", "node b2", "device b2 *") | rows("history beta n2 claim created *"),
    ),
    Write(
        "try_claim",
        "of a guest",
        lambda scene: scene.store.try_claim(ask("queue a2"), "alpha", "n2", POLICY),
        {},
    ),
    Write(
        "admit_start",
        "of a guest",
        lambda scene: admit(scene),
        rows("claim started b2", "node b2") | rows("history beta n2 claim created *"),
    ),
    Write(
        "end_start",
        "of a guest",
        lambda scene: (admit(scene), scene.store.end_start(STARTED.uuid, "beta", "n2")),
        rows("claim started b2", "node b2") | rows("history beta n2 claim *"),
    ),
    Write(
        "confirm_claim",
        "held",
        of_claim("confirm_claim", "new a1"),
        rows("claim new a1", "node a1", "device a1 *") | rows("history alpha n1 claim confirmed *"),
    ),
    Write(
        "renew_claim",
        "held",
        lambda scene: scene.store.renew_claim(uuid_of("new a1"), POLICY),
        {"claim new a1": {"expires_at", "updated_at"}, "node a1": GENERATION},
    ),
    Write(
        "abort_claim",
        "of a guest with claims elsewhere",
        of_claim("abort_claim", "web b2"),
        rows("claim web b2", "node b2", "guest b2 web", "device b2 *")
        | rows("history beta n2 claim released *"),
    ),
    Write(
        "abort_claim",
        "of a guest and a device that are missing",
        of_claim("abort_claim", "lost a1"),
        rows("claim lost a1", "node a1", "guest a1 lost", "device a1 *")
        | rows("history alpha n1 claim released *"),
    ),
    Write(
        "abort_claim",
        "destination of a move",
        of_claim("abort_claim", "web b1"),
        {"node a1": GENERATION}
        | rows("claim web b1", "node b1", "guest b1 web", "device b1 *", "move of web")
        | rows("history beta n1 claim released *", "history alpha n1 move cancelled *"),
    ),
    Write(
        "create_migration",
        "to another host",
        lambda scene: scene.claim(ask_move("queue a2", "queue b1"), "a2"),
        {"node b1": GENERATION}
        | rows("claim queue a2", "move of queue", "node a2", "guest a2 queue", "device a2 *")
        | rows("history alpha n2 claim *", "history beta n1 move started *"),
    ),
    Write(
        "confirm_migration",
        "between two hosts",
        of_claim("confirm_migration", "move of web"),
        rows(
            *("move of web", "claim web a1", "node a1", "node b1"),
            *("guest a1 web", "device a1 *"),
        )
        | rows("history * claim *", "history alpha n1 move confirmed *"),
    ),
    Write(
        "revert_migration",
        "between two hosts",
        of_claim("revert_migration", "move of web"),
        {"node a1": GENERATION}
        | rows("move of web", "claim web b1", "node b1", "guest b1 web", "device b1 *")
        | rows("history beta n1 claim released *", "history alpha n1 move reverted *"),
    ),
    Write(
        "set_migration_status",
        "between two hosts",
        lambda scene: scene.store.set_migration_status(
            uuid_of("move of web"), MigrationStatus.MIGRATING
        ),
        {
            "move of web": {"status", "updated_at"},
            "node a1": GENERATION,
            "node b1": GENERATION,
        }
        | rows("history alpha n1 move migrating *"),
    ),
    Write(
        "purge",
        "of the past",
        lambda scene: scene.store.purge(scene.cut),
        {"node *": GENERATION} | PAST_CLAIMS | rows("history *", "warning * fact_held n2 cpu"),
    ),
    Write(
        "purge",
        "of everything that has ended",
        lambda scene: scene.store.purge(scene.store.now() + timedelta(seconds=1)),
        {"node *": GENERATION}
        | PAST_CLAIMS
        | rows("claim passed *", "history *", "warning * fact_held n2 *", "removal gone alpha"),
    ),
    Write(
        "sample_trends",
        "of all nodes",
        lambda scene: scene.store.sample_trends(),
        rows("trend 3600 fleet", "trend 3600 nodes"),
    ),
    Write(
        "adopt_uuid",
        "of one node",
        lambda scene: scene.store.adopt_uuid("alpha", "n1", node_uuid("a1"), uuid_of("new a1")),
        rows("node *", "* a1 *", "claim *", "history alpha n1 update *"),
    ),
    Write(
        "accept_node",
        "of one node",
        lambda scene: scene.store.accept_node("alpha", "n1"),
        {"node a1": {"updated_at"} | GENERATION} | rows("history alpha n1 update *"),
    ),
    Write(
        "take_provider_removals",
        "of one host",
        lambda scene: scene.store.take_provider_removals(RemovalQuery(host="alpha")),
        {"removal gone alpha": {"attempts", "lease_until"}},
    ),
    Write(
        "fail_provider_removal",
        "of one provider",
        lambda scene: scene.store.fail_provider_removal(uuid_of("gone beta"), "in use", 60.0),
        {"removal gone beta": {"error", "lease_until"}},
    ),
    Write(
        "finish_provider_removal",
        "of one provider",
        lambda scene: scene.store.finish_provider_removal(uuid_of("gone beta")),
        rows("removal gone beta"),
    ),
]
