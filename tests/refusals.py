"""What tests of refusals share."""

import pytest

from linkcal.exceptions import InputError


def refuses(message, call, /, *args, **options):
    """Assert that a call raises an InputError of one line that matches `message`."""
    __tracebackhide__ = True
    with pytest.raises(InputError, match=message) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)
