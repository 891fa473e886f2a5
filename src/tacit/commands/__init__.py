"""The command line: one file for each command or group of commands; those about budgets, ledgers,
certificates, keys and policies are in `privacy/`.

Modules here import only what is fast to import; torch, the accountants and the ledger are imported inside the commands
that need them, so that `tacit --help` and tab completion answer at once.
"""
