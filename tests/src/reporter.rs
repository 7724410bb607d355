//! The shipped reporter over the simulated driver of one node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::config::Tools;
use crate::ports;
use crate::process::Process;
use crate::scenario::{Scenario, replace};

const READY_WITHIN: Duration = Duration::from_secs(10);

/// One model server of the node.
#[derive(Clone, Debug)]
pub struct Workload {
    pub service: String,
    pub endpoint: SocketAddr,
    pub gpu: usize,
    pub slots: Option<u32>,
}

/// One node: its driver and its reporter.
#[derive(Debug)]
pub struct Reporter {
    pub node: String,
    pub scenario: Scenario,
    /// Where its own health and metrics are.
    pub listen: SocketAddr,
    pub process: Process,
    tools: Tools,
    dir: PathBuf,
    control_plane: SocketAddr,
    interval_ms: u64,
}

impl Reporter {
    /// Writes the workloads of the node and starts the reporter.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(
        tools: &Tools,
        dir: &Path,
        scenario: Scenario,
        node: &str,
        control_plane: SocketAddr,
        workloads: &[Workload],
        interval_ms: u64,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        set_workloads(dir, workloads)?;
        let listen = ports::free();
        let process = spawn(tools, dir, &scenario, node, control_plane, listen, interval_ms)?;
        let mut reporter = Self {
            node: node.to_owned(),
            scenario,
            listen,
            process,
            tools: tools.clone(),
            dir: dir.to_path_buf(),
            control_plane,
            interval_ms,
        };
        reporter.alive().await?;
        Ok(reporter)
    }

    async fn alive(&mut self) -> anyhow::Result<()> {
        let (client, url) = (Client::new(), format!("http://{}/healthz", self.listen));
        self.process.ready(READY_WITHIN, async || Ok(client.get(&url).await?.status == 200)).await
    }

    /// Starts it again after its end.
    ///
    /// # Errors
    /// It does not start.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill();
        self.process = spawn(
            &self.tools,
            &self.dir,
            &self.scenario,
            &self.node,
            self.control_plane,
            self.listen,
            self.interval_ms,
        )?;
        self.alive().await
    }

    /// Replaces the workloads file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_workloads(&self, workloads: &[Workload]) -> anyhow::Result<()> {
        set_workloads(&self.dir, workloads)
    }
}

fn set_workloads(dir: &Path, workloads: &[Workload]) -> anyhow::Result<()> {
    let all: Vec<Value> = workloads.iter().map(entry).collect();
    let page = json!({"version": 1, "workloads": all});
    replace(&dir.join("workloads.yaml"), &serde_json::to_vec_pretty(&page)?)
}

fn entry(workload: &Workload) -> Value {
    let endpoint = workload.endpoint.to_string();
    let mut entry = json!({"endpoint": endpoint, "service": workload.service,
        "gpus": [workload.gpu], "metrics_url": format!("http://{endpoint}/metrics")});
    if let Some(slots) = workload.slots {
        entry["slots"] = json!(slots);
    }
    entry
}

fn spawn(
    tools: &Tools,
    dir: &Path,
    scenario: &Scenario,
    node: &str,
    control_plane: SocketAddr,
    listen: SocketAddr,
    interval_ms: u64,
) -> anyhow::Result<Process> {
    let mut command = Command::new(tools.bin("tidegate-gpu-reporter"));
    command.env("TIDEGATE_FAKE_NVML", scenario.path());
    command.args(["--node", node, "--control-plane", &format!("http://{control_plane}")]);
    command.arg("--nvml-lib").arg(tools.fake_nvml());
    command.arg("--workloads").arg(dir.join("workloads.yaml"));
    command.args(["--interval-ms", &interval_ms.to_string(), "--listen", &listen.to_string()]);
    Process::spawn(&format!("reporter-{node}"), dir, command)
}
