//! Command line of the demo and the benches.

use std::net::SocketAddr;

use clap::{Parser, Subcommand, ValueEnum};
use tidegate_bench::ext_proc;

#[derive(Debug, Parser)]
#[command(name = "tidegate-bench", about = "Demo and side-by-side measurements")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure one thing and say whether its aim is met.
    Bench {
        name: Bench,
        /// Print one JSON object instead of tables.
        #[arg(long)]
        json: bool,
        /// How long to measure; each bench has its own default.
        #[arg(long)]
        seconds: Option<u64>,
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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Bench {
    /// Time of one decision at 8, 64, 512 and 4,096 endpoints.
    Pick,
    /// CPU time and latency that the filter adds to a request, next to its alternatives.
    Filter,
    /// Latency of five ways to balance, against the best that any could do.
    Tail,
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Bench { name, json, seconds } => {
            let _ = (name, json, seconds);
            Ok(())
        }
        Command::ExtProc { listen, endpoints } => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(ext_proc::serve(listen, endpoints)),
    }
}
