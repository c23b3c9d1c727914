"""The schema: tables as the code uses them, and the migrations that make them."""
