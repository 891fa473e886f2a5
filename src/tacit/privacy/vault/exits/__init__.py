"""The exits of the vault: one file for each mechanism by which private records influence a released value."""
