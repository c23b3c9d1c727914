"""Draw what people see on a terminal.

`terminal` finds out what the terminal can show and makes text safe to print, `lines` has
pieces of text with a style, `table`, `fields` and `bars` arrange and draw values, and `output`
writes lines. Everything but `output` and `streams` is pure, and only `output`, `progress` and
`terminal` use rich.
"""
