"""What run folders say, as frozen values; damaged folders included."""
