"""What is installed at the engines of a host, so that they ask the agent before a guest starts.

`ask` and the other programs are copied to the host and run there by the system's Python, with its
standard library alone. They import nothing of nodetracker, and need neither its package nor its
environment. `libvirt` and `docker` install and remove them, by `files`.
"""
