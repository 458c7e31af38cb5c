"""Puts this folder on the path, so that tests in folders below find what several of them use."""
