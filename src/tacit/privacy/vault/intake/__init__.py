"""The intake of the vault: private records, the public handles to them, and how they are read and kept."""
