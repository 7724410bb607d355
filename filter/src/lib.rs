//! The proxy-wasm filter.
