"""Draw what people see on a terminal.

`terminal` finds out what the terminal can show, `text` makes text safe to print,
`lines` has pieces of text with a style, `values`, `states` and `bars` draw single
values, `table` and `fields` arrange them, and `output` writes lines. Everything but
`output` is pure, and nothing else imports rich.
"""
