//! A fake libnvidia-ml.so.
