"""The options; `nodetracker.bootstrap.options.opts` gathers them and the drivers'."""
