"""What tests of refusals share."""

import pytest

from linkcal.exceptions import ArtifactError, InputError, NotFittedError, UnsupportedModelError


def _refusal(error):
    """Make a function that asserts that a call raises such an error of one line that matches a pattern."""

    def assert_refused(message, call, /, *args, **options):
        __tracebackhide__ = True
        with pytest.raises(error, match=message) as caught:
            call(*args, **options)
        assert "\n" not in str(caught.value)

    return assert_refused


refuses, unsupported = _refusal(InputError), _refusal(UnsupportedModelError)
damaged, unfitted = _refusal(ArtifactError), _refusal(NotFittedError)
