"""Documents about finished work: self-contained, readable offline, made from the store and the run directories."""
