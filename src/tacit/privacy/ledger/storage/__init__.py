"""The database of a ledger: tables, triggers, migrations, anchor and integrity."""
