"""Settings of all tests."""

from hypothesis import settings

# A first example compiles kernels and machines are shared: how long an example takes says nothing about its subject.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")
