"""A method, a dataset and a model for Explorer."""
