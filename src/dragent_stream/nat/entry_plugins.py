"""What NAT's loader imports for its group `nat.plugins`: `register`, or stand-ins where the extra's packages are absent.

An entry point that raises is a traceback on every `nat` command, also of those who use NAT for something else.
"""

try:
    from dragent_stream.nat import register as register
except ImportError as error:
    from dragent_stream.nat.absent import stand_in_for_agents

    stand_in_for_agents(error)
