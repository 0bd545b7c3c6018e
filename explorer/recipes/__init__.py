"""Recipes as plain values: the task, the settings of training, and the machine that decides the last bits."""
