//! The GPU reporter.
