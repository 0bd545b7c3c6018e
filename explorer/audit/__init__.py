"""Judging run directories without trusting them. No torch: an audit needs no training code."""
