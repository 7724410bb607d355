use clap::{Args, Parser, Subcommand};

/// Sets up, builds, tests, demonstrates and measures Tidegate.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Lists the tools: found or not, which version, how to get it. Fails only if a required one is missing
    Doctor,
    /// Gets the pinned tools into .tools/; what is already there is left alone
    Setup(Setup),
    /// Builds the filter for Envoy, checks what it imports, prints its size
    Wasm(Wasm),
    /// Rewrites what is generated: proto code, JSON schemas, reference tables of README.md
    Gen(Gen),
    /// Runs the demo: simulated GPUs behind Envoy with Tidegate, and behind plain Envoy
    #[command(after_help = DEMO_HELP)]
    Demo(PassedOn),
    /// Runs every check; the last line is `N passed, N failed, N skipped`
    #[command(after_help = TEST_HELP)]
    Test(Test),
    /// Runs one bench, each a ratio within one run
    #[command(after_help = BENCH_HELP)]
    Bench(PassedOn),
    /// Simulates whole fleets: the policies that ship against baselines and an ideal; a seed gives the same bytes
    #[command(after_help = SIM_HELP)]
    Sim(PassedOn),
}

#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// Also what only the whole test run needs: wasm-bindgen-cli, cargo-fuzz, buf (some ten minutes once)
    #[arg(long)]
    pub(crate) all: bool,
    /// Also the small language model of `demo --real-model` (200 MB)
    #[arg(long)]
    pub(crate) real_model: bool,
}

#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Wasm {
    /// Also writes tidegate_filter.opt.wasm, shrunk by wasm-opt -O3
    #[arg(long)]
    pub(crate) opt: bool,
}

#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Gen {
    /// Changes nothing; fails if a generated file is not what its source says
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Test {
    /// A skip is a failure: what a build machine wants
    #[arg(long)]
    pub(crate) strict: bool,
    /// Leaves out the end-to-end tests and the fuzz targets
    #[arg(long)]
    pub(crate) fast: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PassedOn {
    /// Passed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<String>,
}

const DEMO_HELP: &str = "\
Prepares what is missing (tools, filter, release binaries), then hands over to the demo.
The demo's own flags: cargo xtask demo -- --help";

const BENCH_HELP: &str = "\
Prepares what is missing (tools, filter, release binaries), then hands over to the bench:
  cargo xtask bench pick --json
The benches and their own flags: cargo xtask bench -- --help";

const SIM_HELP: &str = "\
Builds the simulator and hands over to it; needs no Envoy and no other tool:
  cargo xtask sim --seed 7 --json
  cargo xtask sim --scenario tests/sim/scenarios/sinkhole.json
The simulator's own flags: cargo xtask sim -- --help";

const TEST_HELP: &str = "\
Stages, in this order: set-up, format, lints, build, filter build, unit and integration tests, doc
tests, structure and manifests, generated files, end to end, policy tests as wasm under Node, fuzz
targets (a minute each), wire rules. A stage whose tool is missing counts as skipped and is named at
the end. A stage that is no test run (format, lints, builds, wire rules) counts as one check, and so
does each fuzz target.";
