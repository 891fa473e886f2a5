"""Features of frozen public backbones: made, cached and read from files."""
