"""Changes of audits: decided against locked rows, written in batches."""
