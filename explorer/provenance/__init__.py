"""Provenance: classes of data, who may vouch for them, and which of them may train which layer."""
