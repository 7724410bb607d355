//! Command line of the demo and the benches.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidegate_bench::bench::{self, tail::Choice};
use tidegate_bench::demo::{self, WHAT_ENVOY_HAS, real_model};
use tidegate_bench::ext_proc;
use tidegate_bench::form::Findings;
use tidegate_bench::stand::{self, Pace};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Parser)]
#[command(name = "tidegate-bench", about = "Demo and side-by-side measurements")]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run Tidegate and plain Envoy side by side while things go wrong.
    #[command(after_help = WHAT_ENVOY_HAS)]
    Demo {
        /// Length of the load; the events stand at fixed shares of it.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=3_600))]
        seconds: u64,
        /// Print one JSON object at the end and nothing else.
        #[arg(long)]
        json: bool,
        /// Leave everything running after the end, until Ctrl-C, and say where it is.
        #[arg(long)]
        keep: bool,
        /// Ask a real small language model one question through the same path, instead of simulated GPUs.
        #[arg(long)]
        real_model: bool,
        /// Envoys on each side.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
        sidecars: u16,
    },
    /// Measure one thing and say whether its aim is met.
    Bench {
        name: Bench,
        /// Print one JSON object instead of tables.
        #[arg(long)]
        json: bool,
        /// How long to measure; each bench has its own default.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..=3_600))]
        seconds: Option<u64>,
        #[command(flatten)]
        tail: TailOnly,
    },
    /// The ext_proc picker that the filter bench compares with.
    #[command(hide = true)]
    ExtProc {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long, value_delimiter = ',')]
        endpoints: Vec<SocketAddr>,
    },
}

/// Of the tail bench: a part of it, and another pace.
#[derive(Debug, Args)]
struct TailOnly {
    /// tail: only the stages with so many Envoys (1 or 16).
    #[arg(long)]
    envoys: Option<u16>,
    /// tail: only the stages with this load (0.7 or 0.85).
    #[arg(long)]
    load: Option<f64>,
    /// tail: how often the reporters report.
    #[arg(long, default_value_t = stand::DEFAULT_PACE.report_ms)]
    report_ms: u64,
    /// tail: how often the control plane publishes.
    #[arg(long, default_value_t = stand::DEFAULT_PACE.publish_ms)]
    publish_ms: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Bench {
    /// Time of one decision at 8, 64, 512 and 4,096 endpoints.
    Pick,
    /// CPU time and latency that the filter adds to a request, next to its alternatives.
    Filter,
    /// Latency of five ways to balance, against the best that any could do.
    Tail,
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run() -> anyhow::Result<ExitCode> {
    let builder = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match CommandLine::parse().command {
        Command::Demo { json, keep, real_model: true, .. } => {
            builder()?.block_on(until_stopped(real_model::run(json, keep)))
        }
        Command::Demo { seconds, json, keep, sidecars, .. } => builder()?
            .block_on(until_stopped(demo::run(demo::Options { seconds, json, keep, sidecars }))),
        Command::Bench { name, json, seconds, tail } => builder()?
            .block_on(until_stopped(async { measure(name, seconds, &tail).await?.print(json) })),
        Command::ExtProc { listen, endpoints } => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(ext_proc::serve(listen, endpoints))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn measure(bench: Bench, seconds: Option<u64>, only: &TailOnly) -> anyhow::Result<Findings> {
    match bench {
        Bench::Pick => Ok(bench::pick::run(seconds)),
        Bench::Filter => bench::filter::run(seconds).await,
        Bench::Tail => {
            let pace = Pace { report_ms: only.report_ms, publish_ms: only.publish_ms };
            let choice = Choice { seconds, envoys: only.envoys, load: only.load, pace };
            bench::tail::run(choice).await
        }
    }
}

/// Runs `work` unless a signal ends it: dropped half-way it ends every process it started.
async fn until_stopped(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => done.map(|()| ExitCode::SUCCESS),
        _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(130)),
        _ = terminate.recv() => Ok(ExitCode::from(143)),
    }
}
