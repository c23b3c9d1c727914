"""Ledger transactions: claims and migrations on locked nodes."""
