//! Demo, benches and simulator: prepare, then become the program that does them.
//!
//! This process is replaced, so that Ctrl-C reaches that program alone and nothing waits in between.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::arguments::{PassedOn, Setup};
use crate::config::Workshop;
use crate::{process, setup, stages, wasm};

const BENCH: &str = "tidegate-bench";
const SIM: &str = "tidegate-sim";
/// Everything that runs in a demo or a bench, next to Envoy and the filter.
const PACKAGES: &[&str] = &[
    BENCH,
    "tidegate-control-plane",
    "tidegate-fake-nvml",
    "tidegate-gpu-reporter",
    "tidegate-model-server",
];

pub(crate) fn demo(shop: &Workshop, passed_on: &PassedOn) -> Result<ExitCode> {
    become_bench(shop, "demo", &passed_on.arguments)
}

pub(crate) fn bench(shop: &Workshop, passed_on: &PassedOn) -> Result<ExitCode> {
    become_bench(shop, "bench", &passed_on.arguments)
}

/// The simulator needs nothing but itself.
pub(crate) fn sim(shop: &Workshop, passed_on: &PassedOn) -> Result<ExitCode> {
    build(shop, &[SIM])?;
    let mut command = shop.command(shop.target.join("release").join(SIM));
    let error = command.args(&passed_on.arguments).exec();
    Err(error).with_context(|| format!("{SIM} could not be started"))
}

fn become_bench(shop: &Workshop, what: &str, arguments: &[String]) -> Result<ExitCode> {
    let asks = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if asks("--help") || asks("-h") {
        build(shop, &[BENCH])?;
    } else {
        setup::run(shop, Setup { all: false, real_model: asks("--real-model") })?;
        eprintln!("{}", wasm::build(shop)?);
        if what == "bench" && asks("filter") {
            wasm::build_empty(shop)?;
        }
        build(shop, PACKAGES)?;
    }
    let bin_dir = shop.target.join("release");
    let mut command = shop.command(bin_dir.join(BENCH));
    stages::name_the_tools(shop, &mut command, &bin_dir);
    let error = command.arg(what).args(arguments).exec();
    Err(error).with_context(|| format!("{BENCH} could not be started"))
}

fn build(shop: &Workshop, packages: &[&str]) -> Result<()> {
    let mut cargo = shop.cargo(["build", "--release"]);
    for package in packages {
        cargo.args(["--package", package]);
    }
    process::chatter(&mut cargo)
}
