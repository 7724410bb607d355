//! The control plane over real sockets: clients as reporters and filters are, and the binary itself.

mod admin;
mod cli;
mod common;
mod limits;
mod streams;
