"""Certificates for people who file them: a document of one page, a registry's entry, and a comparison of two."""
