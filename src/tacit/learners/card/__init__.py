"""The model card of a release: a `README.md` in the format of the Hugging Face Hub."""
