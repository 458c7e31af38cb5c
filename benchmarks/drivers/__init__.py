"""One module per peer, imported only in that peer's environment by `worker.py`."""
