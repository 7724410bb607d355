//! Starts real processes for the tests.
