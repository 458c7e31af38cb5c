"""The NeMo Agent Toolkit (NAT) 1.6 to 1.9: a tool-calling agent that streams AG-UI, and a front end that serves it.

NAT loads this package through its entry points (`nat.plugins`, `nat.front_ends`); there is nothing to import by hand.
The package can be deleted without touching the rest of the library.
"""
