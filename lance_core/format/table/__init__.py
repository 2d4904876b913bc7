"""Bytes of versions to frozen values and back: manifests, fragments, transactions, references, deletions."""
