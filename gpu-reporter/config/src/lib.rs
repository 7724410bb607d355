//! Configuration of the GPU reporter.
