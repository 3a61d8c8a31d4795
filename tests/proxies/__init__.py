"""One oracle for each proxy: a slow, obvious second version."""

import pytest

pytest.register_assert_rewrite("tests.proxies.nets")
