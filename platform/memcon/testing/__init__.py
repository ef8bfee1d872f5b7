"""Contract bodies and fakes for every port; shipped, so that plug-in authors run the same suites."""
