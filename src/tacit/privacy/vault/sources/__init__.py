"""Readers of private records: arrays, Datasets, tables, CSV files and folders of images.

Outside the vault only the functions that build streams are used: `open_declared`, `from_arrays`, `from_frame` and
`from_datasets`. The tasks of these streams hold descriptions of private rows, which `Vault.admit` opens.
"""
