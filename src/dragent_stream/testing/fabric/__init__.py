"""Tests of Fabric adapters without Fabric: a strict listener for one turn, and the check of a whole adapter.

```python
from dragent_stream.testing.fabric import check_adapter


def test_my_adapter() -> None:
    check_adapter("acme.support.fabric-adapter.json")  # or the source itself, or an adapter of the common host
```
"""

from __future__ import annotations

from dragent_stream.testing.fabric.conformance import ADAPTER_RULES, check_adapter
from dragent_stream.testing.fabric.sink import FakeSink

__all__ = ("ADAPTER_RULES", "FakeSink", "check_adapter")
