"""What NAT's loader imports for its group `nat.front_ends`: `frontend`, or a stand-in; see `entry_plugins`."""

try:
    from dragent_stream.nat import frontend as frontend
except ImportError as error:
    from dragent_stream.nat.absent import stand_in_for_front_end

    stand_in_for_front_end(error)
