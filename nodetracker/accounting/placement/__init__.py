"""Pure decisions on what placement should have of a node: descriptions and steps."""
