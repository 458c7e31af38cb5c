"""Check a stream of AG-UI events against everything a correct producer must do.

The verify rules of the JavaScript client are here (V), the shapes its schema refuses (S), what its reducer does with
ids (I), and the duties that no client checks but some client suffers from (D). `RULES` says each rule in a sentence. A
stream without a violation is accepted by `@ag-ui/client` 1.0.0 and shown as it was meant; judged with its request, also
by 0.0.59.

Pure, and in memory bound to the number of ids and the arguments of open calls, not to the text.
"""

from dragent_stream.check.checker import EventChecker, check_events
from dragent_stream.check.rules import RULES, Violation
from dragent_stream.check.wire import EventLike

__all__ = ("RULES", "EventChecker", "EventLike", "Violation", "check_events")
