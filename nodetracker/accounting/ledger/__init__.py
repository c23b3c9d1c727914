"""Claims: requests, admission, grants, moves and their reconciliation with listings."""
