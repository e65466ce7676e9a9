from hypothesis import settings

# Imports and compilation fall into the first example of a property; times say nothing about correctness.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
