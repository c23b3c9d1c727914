"""``/v1/usages``."""

from nodetracker.accounting.reports.usages import describe_usages
from nodetracker.api.call import Answer, Call
from nodetracker.api.paging import next_links, page_of

_LIST = "nodetracker:usages:list"


def list_usages(call: Call) -> Answer:
    """Sum what workloads use by project, in order of the project."""
    call.require_hosts()
    project = call.select_project(_LIST, call.query.get("project"))
    wanted = page_of(call)
    usages = [
        usage
        for usage in describe_usages(call.store.sum_usage(call.query.get("host"), project))
        if wanted.marker is None or usage["project_id"] > wanted.marker
    ]
    shown = usages[: wanted.limit]
    last = shown[-1]["project_id"] if len(usages) > wanted.limit else None
    return Answer({"usages": shown, "links": next_links(call, last)})
