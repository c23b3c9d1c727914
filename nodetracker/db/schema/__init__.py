"""Schema: tables as the code uses them, and the revisions that create them."""
