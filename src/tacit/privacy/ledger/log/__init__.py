"""The log of a ledger, hash-chained, and the tables that follow from it."""
