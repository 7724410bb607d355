//! `tidegate`: the control plane and the command line tool; see `tidegate --help`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_control_plane::cli::main()
}
