//! `tidegate serve`: runs until SIGTERM or SIGINT.

use std::io::Write;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{LogFormat, Outcome, ServeArgs};
use crate::{config::Config, server::Server};

pub(super) fn run(args: &ServeArgs) -> anyhow::Result<Outcome> {
    start_log(args)?;
    let config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(errors) => {
            let mut err = std::io::stderr().lock();
            for line in errors.lines() {
                writeln!(err, "{}: {line}", args.config.display())?;
            }
            return Ok(Outcome::Failed);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(config))?;
    // A task that is stuck must not hold up the end of the process.
    runtime.shutdown_background();
    Ok(Outcome::Well)
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let server = Server::start(config).await?;
    let stop = server.core.stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
        stop.cancel();
    });
    server.run().await?;
    tracing::info!("stopped");
    Ok(())
}

fn start_log(args: &ServeArgs) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&args.log).context("--log: is no filter")?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Text => log.with_ansi(false).try_init(),
        LogFormat::Json => log.json().try_init(),
    }
    .map_err(|e| anyhow::anyhow!("cannot start the log: {e}"))
}
