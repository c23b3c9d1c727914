"""Run alembic's revisions on the connection that `revisions` provides."""

from alembic import context

if hasattr(context, "config"):  # not when anything but alembic imports this file
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=None,
        render_as_batch=True,
        on_version_apply=context.config.attributes["on_version_apply"],
    )
    with context.begin_transaction():
        context.run_migrations()
