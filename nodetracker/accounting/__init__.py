"""Pure decisions: values in, values out, without files, clocks, logs or libraries."""
