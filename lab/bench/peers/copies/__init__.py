"""Caches that copy pages: pages are stored, found and loaded, and processes are killed.
`python -m peers.copies` measures them beside kvlease."""
