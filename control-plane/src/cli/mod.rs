//! The command line.
//!
//! Results go to standard output, logs and errors to standard error. Exit codes: 0 it is well, 1 it
//! failed, 2 wrong usage, 3 the fleet is degraded or the control plane cannot be reached.

mod client;
mod explain;
mod output;
mod serve;
mod status;

use std::{io::Write, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::check;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Well,
    Failed,
    Degraded,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Well => Self::SUCCESS,
            Outcome::Failed => Self::from(1),
            Outcome::Degraded => Self::from(3),
        }
    }
}

/// Sends each AI request to the GPU that can serve it soonest.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    after_help = "Exit codes: 0 well, 1 failed, 2 wrong usage, 3 degraded or unreachable."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the control plane
    Serve(ServeArgs),
    /// Show the fleet: one line per endpoint, node and proxy
    Status(AskArgs),
    /// Show each factor of an endpoint's weight as a number
    Explain {
        /// Address of the endpoint, ip:port
        endpoint: String,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Check a configuration file, offline; prints everything that is wrong with it
    Check(CheckArgs),
    /// Show the version
    Version {
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Configuration file, YAML
    #[arg(long, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// Which log lines: a level, or a filter such as info,tidegate_control_plane=debug
    #[arg(long, env = "TIDEGATE_LOG", value_name = "FILTER", default_value = "info")]
    log: String,
    /// Form of log lines
    #[arg(long, env = "TIDEGATE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Args)]
struct AskArgs {
    /// Where the control plane's admin listener is
    #[arg(
        long,
        env = "TIDEGATE_ADMIN",
        value_name = "URL",
        default_value = "http://127.0.0.1:9001"
    )]
    admin: String,
    /// Longest wait for an answer
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 5_000,
        value_parser = clap::value_parser!(u64).range(1..=600_000)
    )]
    timeout_ms: u64,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Debug, Args)]
struct OutputArgs {
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
    /// Plain text without colours, also on a terminal; any value counts
    #[arg(long, env = "NO_COLOR", hide_env_values = true, num_args = 0..=1, default_missing_value = "1")]
    no_color: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    Json,
    Yaml,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// File to check; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// What the file is; found out from its content if not given
    #[arg(long, value_enum)]
    kind: Option<check::FileKind>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command that the arguments name.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = std::io::stdout().lock();
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Status(ask) => status::run(&ask, &mut out),
        Command::Explain { endpoint, ask } => explain::run(&endpoint, &ask, &mut out),
        Command::Check(args) => output::check(&args, &mut out),
        Command::Version { output } => output::version(&output, &mut out),
    };
    let flushed = out.flush();
    match result {
        // A reader that has seen enough (`| head`) is no failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Ok(outcome) if flushed.is_ok() => outcome.into(),
        Ok(_) => Outcome::Failed.into(),
        Err(error) => {
            // Nobody is left to tell when standard error is closed.
            let _ = writeln!(std::io::stderr(), "tidegate: {error:#}");
            let unreachable = error.downcast_ref::<client::Unreachable>().is_some();
            if unreachable { Outcome::Degraded.into() } else { Outcome::Failed.into() }
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
