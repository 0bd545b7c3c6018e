"""Places: where a sweep is published for workers on other machines, and where their results come back."""
