//! The GPU reporter: starts the threads and tasks, and ends them in time.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

use std::{
    io::{IsTerminal, Write},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use anyhow::Context;
use clap::Parser;
use tidegate_gpu_reporter::{
    config::{Args, Output, node_name, part_name},
    engine::{Engines, Scraper, ScraperSettings},
    host::HostReading,
    http::{self, Pages},
    nvml::leave_process,
    once,
    shared::{Sampling, Shared},
    uplink::{Sources, Uplink, UplinkCounts},
    watchdog::{EventWatch, Watchdog},
    workload::{WorkloadFile, WorkloadList},
};
use tidegate_reporter_config::{GpuName, ReporterConfig};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing_subscriber::EnvFilter;

/// Longest goodbye; with it the process is gone within two seconds of a signal.
const GOODBYE: Duration = Duration::from_millis(1_500);
/// Period of the rounds of `--once`.
const ONCE_INTERVAL_MS: u64 = 200;
const EXIT_USAGE: i32 = 2;

fn main() {
    let args = Args::parse();
    let config = match args.settings() {
        Ok(config) => config,
        Err(problems) => {
            for problem in problems {
                eprintln!("{problem}");
            }
            std::process::exit(EXIT_USAGE);
        }
    };
    // One sample speaks for itself, so it comes without the daemon's log unless that is asked for.
    let level = if args.once && args.log.is_none() { "off" } else { &config.log };
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no event loop: {error}");
            std::process::exit(once::EXIT_TROUBLE);
        }
    };
    let code = runtime.block_on(async {
        let ended =
            if args.once { run_once(&config, args.output).await } else { serve(&config).await };
        ended.unwrap_or_else(|error| {
            eprintln!("{error:#}");
            once::EXIT_TROUBLE
        })
    });
    let _ = std::io::stdout().flush();
    // Threads may be inside driver calls that never return, so nothing is joined or dropped.
    leave_process(code);
}

fn sources(config: &ReporterConfig, shared: Arc<Shared>) -> Sources {
    Sources {
        node: node_name(config),
        shared,
        workloads: WorkloadList::default(),
        engines: Engines::default(),
        host: HostReading::default(),
    }
}

fn scraper(config: &ReporterConfig, sources: &Sources) -> Scraper {
    let settings = ScraperSettings {
        shared: Arc::clone(&sources.shared),
        timeout: Duration::from_millis(config.scrape_timeout_ms),
    };
    Scraper::new(settings, sources.engines.clone())
}

async fn serve(config: &ReporterConfig) -> anyhow::Result<i32> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let listener = http::listen(config.listen)
        .await
        .with_context(|| format!("listen: {} cannot be listened on", config.listen))?;
    let shared = Shared::new(Sampling::from(config), config.interval_ms);
    let watchdog = Watchdog::start(Arc::clone(&shared), EventWatch::On).context("no thread")?;
    let sources = sources(config, shared);
    let counts = Arc::new(UplinkCounts::default());
    let mut scrape_failures = Arc::new(AtomicU64::new(0));
    if let Some(path) = &config.workloads {
        let scraper = scraper(config, &sources);
        scrape_failures = scraper.failures();
        let file = WorkloadFile::new(path.into(), sources.workloads.clone());
        tokio::spawn(file.run(scraper));
    }
    let pages = Pages {
        sources: sources.clone(),
        counts: Arc::clone(&counts),
        scrape_failures,
        has_control_plane: config.control_plane.is_some(),
    };
    tokio::spawn(watchdog.run());
    tokio::spawn(sources.host.clone().run());
    tokio::spawn(http::serve(listener, pages));
    tracing::info!(node = %sources.node, listen = %config.listen, "reporting");
    let stop = watch::Sender::new(false);
    let uplink = config.control_plane.clone().map(|url| {
        let uplink = Uplink::new(sources, part(config), counts);
        let stopped = stop.subscribe();
        tokio::spawn(async move { uplink.run(url.as_str(), stopped).await })
    });
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("leaving");
    stop.send_replace(true);
    if let Some(uplink) = uplink {
        let _ = tokio::time::timeout(GOODBYE, uplink).await;
    }
    Ok(once::EXIT_FINE)
}

/// The names that `--gpus` was given, as the part of the node that this reporter covers.
fn part(config: &ReporterConfig) -> String {
    let names: Vec<String> = config
        .gpus
        .iter()
        .map(|name| match name {
            GpuName::Index(index) => index.to_string(),
            GpuName::Uuid(uuid) => uuid.clone(),
        })
        .collect();
    part_name(&names)
}

async fn run_once(config: &ReporterConfig, output: Output) -> anyhow::Result<i32> {
    let mut sampling = Sampling::from(config);
    // Every tier with every round, so that rates are there after two.
    sampling.medium = Duration::ZERO;
    let shared = Shared::new(sampling, ONCE_INTERVAL_MS);
    let sources = sources(config, Arc::clone(&shared));
    if let Some(path) = &config.workloads {
        let list = sources.workloads.clone();
        let mut file = WorkloadFile::new(path.into(), list.clone());
        let mut scraper = scraper(config, &sources);
        if file.look() {
            scraper.follow(&list.current());
        }
        // Its tasks end with the process.
        std::mem::forget(scraper);
    }
    let watchdog = Watchdog::start(Arc::clone(&shared), EventWatch::On).context("no thread")?;
    tokio::spawn(watchdog.run());
    tokio::spawn(sources.host.clone().run());
    once::wait(&shared).await;
    let snapshot = sources.snapshot();
    let text = match output {
        Output::Json => serde_json::to_string_pretty(&snapshot)? + "\n",
        Output::Table => once::table(&snapshot),
    };
    if output == Output::Json || !snapshot.gpus.is_empty() {
        std::io::stdout().write_all(text.as_bytes())?;
    }
    if let Some(trouble) = once::trouble(&snapshot) {
        eprintln!("{trouble}");
    }
    Ok(once::exit_code(&snapshot))
}
