"""What MkDocs needs to make the documentation site of this repository (`make docs`)."""
