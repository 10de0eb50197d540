"""What a thread is doing while a program's own calls are replaced (`roundwise.integrations`)."""

from __future__ import annotations

import threading


class Inside(threading.local):
    """Whether this thread is inside a replaced call.

    NumPy's and SciPy's functions are their own there, so that Roundwise may call them; and few
    right digits are raised, not warned of, because the original function is then asked instead.
    """

    replaced = False


INSIDE = Inside()
