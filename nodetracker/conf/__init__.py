"""The options; `nodetracker.conf.opts` gathers them and the drivers'."""
