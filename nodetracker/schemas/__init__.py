"""JSON schemas (Draft 2020-12) of the documents that callers send, one noun a module.

The command line and RPC check documents against them. Each ``description``
says what a value must be; errors quote it after "expected".
"""
