"""The options, one group a file; `nodetracker.conf.opts` gathers them and the drivers'."""
