"""What NAT loads through its entry points: the agents, the front end, the converters, the identity of users."""

from dragent_stream.nat import frontend, identity, workflow
from dragent_stream.nat.converters import register_converters
from dragent_stream.nat.verify_ssl import patch_crewai_clients

__all__ = ["frontend", "workflow"]

identity.patch()
register_converters()
patch_crewai_clients()
