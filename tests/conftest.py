"""What pytest leaves out here."""

# A package of somebody else: its tests need it installed, and run in tests/e2e/test_contract_bodies.py.
collect_ignore = ["third_party"]
