"""Pure decisions: values in, values out; no file, clock, log or library."""
