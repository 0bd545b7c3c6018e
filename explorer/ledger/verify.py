"""Verification of a ledger by somebody who trusts neither its writer nor its disk."""
