"""What the agent's author tests: that his adapter keeps Fabric's rules, whatever runs it."""

from pathlib import Path

from agent import answer

from dragent_stream.fabric import write_descriptor
from dragent_stream.testing.fabric import check_adapter


def test_the_source_keeps_the_rules() -> None:
    check_adapter(answer, slow="think", deadline=0.5)


def test_its_process_keeps_the_rules(tmp_path: Path) -> None:
    here = Path(__file__).parent
    check_adapter(write_descriptor(tmp_path, "example.echo", module="agent", pythonpath=here))
