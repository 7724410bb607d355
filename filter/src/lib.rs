//! The proxy-wasm filter: glue between Envoy and `tidegate-policy`, which decides everything.
//!
//! `root` and `worker` are one VM, `http` one request, `host` all of Envoy's side, `watch` the stream to the control
//! plane, `wire` the messages. The modules that are public know nothing of the host.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod host;
mod http;
mod root;
pub mod settings;
pub mod stats;
pub mod upstream;
mod watch;
pub mod wire;
mod worker;

use proxy_wasm::types::LogLevel;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|_| Box::new(root::Root::default()));
}}
