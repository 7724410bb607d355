//! A server that looks like vLLM on GPUs of several types and breaks on demand.
//!
//! One process serves many simulated GPUs, each on its own port, on one thread: a thousand requests
//! a second cost a fraction of a core, and one thread keeps a seed's faults in their order.

mod capacity;
mod config;
mod fault;
mod gpu;
mod ledger;
mod load;
mod metrics;
mod openai;
mod profile;
mod routes;
mod serve;
mod socket;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::gpu::Gpu;
use crate::load::LoadFile;

#[derive(Parser)]
#[command(name = "tidegate-model-server", version, about)]
struct Arguments {
    /// Which GPUs to simulate, as JSON.
    #[arg(long)]
    config: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let config = Config::load(&Arguments::parse().config)?;
    let epoch = Instant::now();
    let mut tasks = JoinSet::new();
    let mut gpus = Vec::new();
    let mut files: BTreeMap<PathBuf, Vec<Arc<Gpu>>> = BTreeMap::new();
    for gpu_config in &config.gpus {
        let gpu = Gpu::new(gpu_config.clone(), config.seed, epoch)?;
        let listener = serve::bind(gpu.address())?;
        tasks.spawn(serve::gpu(Arc::clone(&gpu), listener));
        tokio::spawn(Arc::clone(&gpu).drive());
        if let Some(path) = gpu_config.load_file.as_ref().or(config.load_file.as_ref()) {
            files.entry(path.clone()).or_default().push(Arc::clone(&gpu));
        }
        gpus.push(gpu);
    }
    for (path, gpus) in files {
        tokio::spawn(LoadFile::new(path, gpus).keep());
    }
    if let Some(address) = config.control_listen {
        tasks.spawn(serve::control(gpus.into(), serve::bind(address)?));
    }
    tracing::info!(gpus = config.gpus.len(), "ready");
    // A listener ends only when its port cannot be taken again.
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
