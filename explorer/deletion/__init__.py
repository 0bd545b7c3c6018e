"""Deletion: what it would take, what was done, and a certificate that strangers can check. No torch."""
