//! The model servers: one process with a port for each simulated GPU.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::Client;
use crate::config::Tools;
use crate::ports;
use crate::process::Process;

const READY_WITHIN: Duration = Duration::from_secs(10);

/// One simulated GPU with its model server.
#[derive(Clone, Debug)]
pub struct ModelGpu {
    pub listen: SocketAddr,
    pub gpu_index: usize,
    pub profile: String,
    pub load_file: Option<PathBuf>,
    pub speed: Option<f64>,
    pub slots: Option<u32>,
    pub beta: Option<f64>,
}

/// What a model server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    Error500,
    Error503,
    Hang,
    Reset,
    CutStream,
    Slow,
    Refuse,
}

impl Fault {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Error500 => "error_500",
            Self::Error503 => "error_503",
            Self::Hang => "hang",
            Self::Reset => "reset",
            Self::CutStream => "cut_stream",
            Self::Slow => "slow",
            Self::Refuse => "refuse",
        }
    }
}

/// What one model server saw.
#[derive(Clone, Debug, Deserialize)]
pub struct Ledger {
    pub address: SocketAddr,
    pub fault: String,
    pub running: u64,
    pub waiting: u64,
    pub started: u64,
    pub finished: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub in_flight: u64,
    pub by_status: BTreeMap<String, u64>,
    pub faulted: u64,
    pub steering_header_seen: u64,
    pub last_request_unix_ms: Option<u64>,
    pub last_request_age_ms: Option<u64>,
}

#[derive(Debug)]
pub struct Models {
    pub process: Process,
    pub gpus: Vec<ModelGpu>,
    control: SocketAddr,
    client: Client,
}

impl Models {
    /// # Errors
    /// The process does not start.
    pub async fn start(
        tools: &Tools,
        dir: &Path,
        name: &str,
        gpus: Vec<ModelGpu>,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let control = ports::free();
        let config = dir.join(format!("{name}.json"));
        let page = json!({"seed": 1, "control_listen": control,
            "gpus": gpus.iter().map(entry).collect::<Vec<_>>()});
        std::fs::write(&config, serde_json::to_vec_pretty(&page)?)?;
        let mut command = Command::new(tools.bin("tidegate-model-server"));
        command.arg("--config").arg(&config);
        let mut process = Process::spawn(name, dir, command)?;
        let (client, url) = (Client::new(), format!("http://{control}/ledger"));
        process.ready(READY_WITHIN, async || Ok(client.get(&url).await?.status == 200)).await?;
        Ok(Self { process, gpus, control, client })
    }

    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.gpus.iter().map(|gpu| gpu.listen).collect()
    }

    /// # Errors
    /// The control port does not answer.
    pub async fn ledgers(&self) -> anyhow::Result<Vec<Ledger>> {
        let reply = self.client.get(&format!("http://{}/ledger", self.control)).await?;
        Ok(serde_json::from_slice(&reply.body)?)
    }

    /// # Errors
    /// The control port does not answer, or knows no such GPU.
    pub async fn ledger(&self, of: SocketAddr) -> anyhow::Result<Ledger> {
        let url = format!("http://{}/gpus/{of}/ledger", self.control);
        Ok(serde_json::from_slice(&self.client.get(&url).await?.body)?)
    }

    /// Requests that arrived at each, by address.
    ///
    /// # Errors
    /// The control port does not answer.
    pub async fn started(&self) -> anyhow::Result<BTreeMap<SocketAddr, u64>> {
        let all = self.ledgers().await?;
        Ok(all.into_iter().map(|ledger| (ledger.address, ledger.started)).collect())
    }

    /// Orders anything that `/control` of the model server takes.
    ///
    /// # Errors
    /// The order is refused.
    pub async fn order(&self, of: SocketAddr, order: Value) -> anyhow::Result<()> {
        let url = format!("http://{}/gpus/{of}/control", self.control);
        let reply = self.client.post(&url, order.to_string()).await?;
        ensure!(reply.status == 200, "{url} refuses {order}: {}", reply.text());
        Ok(())
    }

    /// # Errors
    /// The order is refused.
    pub async fn fault(&self, of: SocketAddr, fault: Fault) -> anyhow::Result<()> {
        self.order(of, json!({"fault": fault.as_str()})).await
    }

    /// Factor on the GPU's own speed.
    ///
    /// # Errors
    /// The order is refused.
    pub async fn speed(&self, of: SocketAddr, factor: f64) -> anyhow::Result<()> {
        self.order(of, json!({ "speed": factor })).await
    }
}

fn entry(gpu: &ModelGpu) -> Value {
    let mut entry =
        json!({"listen": gpu.listen, "gpu_index": gpu.gpu_index, "profile": gpu.profile});
    let optional = [
        ("load_file", json!(gpu.load_file)),
        ("speed", json!(gpu.speed)),
        ("slots", json!(gpu.slots)),
        ("beta", json!(gpu.beta)),
    ];
    for (name, value) in optional {
        if !value.is_null() {
            entry[name] = value;
        }
    }
    entry
}
