"""JSON schemas (Draft 2020-12) of the documents that callers send, one noun per module.

The command line and RPC check documents against them. Each ``description``
states what a value must be; errors quote it after "expected".
"""
