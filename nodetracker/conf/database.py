"""Options of the ``[database]`` group in addition to those of the database library."""

from oslo_config import cfg

GROUP = "database"

_MOST_DAYS = 36500

OPTIONS = (
    cfg.IntOpt(
        "released_claims_days",
        default=0,
        min=0,
        max=_MOST_DAYS,
        help="Days after which released claims and migrations that ended are deleted; 0 = never. "
        "The first by name of the conductors and API services that are up deletes them, so all "
        "of these need the same value. A claim that a migration still refers to is kept.",
    ),
    cfg.IntOpt(
        "history_days",
        default=0,
        min=0,
        max=_MOST_DAYS,
        help="Days after which history, resolved warnings and removals of providers that nobody "
        "attempted are deleted, by the same service; 0 = never.",
    ),
)
