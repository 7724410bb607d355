//! The simulated GPUs that demo and benches share, and Tidegate's side of a comparison: drivers, reporters, control plane.
//!
//! Eight unlike GPUs: four of speed 1.0 on one node, four of speed 0.45 on another, eight slots each, no slow-down in a
//! batch. With a mean work of 1 s at speed 1.0 they end 46.4 requests a second. It is the fleet of the reference figures
//! for the balancing policies, so that what is measured can be held against them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_tests::control_plane::{ControlPlane, Entry};
use tidegate_tests::models::{ModelGpu, Models};
use tidegate_tests::reporter::{Reporter, Workload};
use tidegate_tests::scenario::Scenario;
use tidegate_tests::{Bootstrap, Client, Envoy, Tools, ports, until};

use crate::ideal;

/// What the filter learned from the control plane, and what it did with requests.
const UPDATES: &str = "tidegate_updates_total";
const REQUESTS: &str = "tidegate_requests_total";

pub const SERVICE: &str = "llm";
pub const SLOTS: u32 = 8;
/// Of a request, at speed 1.0.
pub const WORK_MEAN_MS: f64 = 1_000.0;
/// Of the logarithm of the work: answers of very unlike length, as a chat has them.
pub const WORK_SIGMA: f64 = 1.0;

/// One simulated GPU, whatever serves at its address.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    pub node: &'static str,
    pub index: usize,
    pub profile: &'static str,
    pub speed: f64,
    pub address: SocketAddr,
}

impl Gpu {
    pub fn name(&self) -> String {
        format!("{}/{}", self.node, self.index)
    }

    pub fn model(&self) -> ideal::Gpu {
        ideal::Gpu { speed: self.speed, slots: SLOTS }
    }
}

const NODES: [(&str, &str, f64); 2] = [("node-a", "a100-80gb", 1.0), ("node-b", "v100-32gb", 0.45)];
const GPUS_PER_NODE: usize = 4;

/// The fleet, on free ports.
pub fn fleet() -> Vec<Gpu> {
    NODES
        .into_iter()
        .flat_map(|(node, profile, speed)| {
            (0..GPUS_PER_NODE).map(move |index| Gpu {
                node,
                index,
                profile,
                speed,
                address: ports::free(),
            })
        })
        .collect()
}

/// Requests a second that the fleet ends when all its slots are taken.
pub fn capacity_per_s(gpus: &[Gpu]) -> f64 {
    gpus.iter().map(|gpu| gpu.model().capacity_per_s(WORK_MEAN_MS)).sum()
}

/// One model server process for all GPUs; `load_file` says where the driver of a node looks for its load.
pub async fn models(
    tools: &Tools,
    dir: &Path,
    gpus: &[Gpu],
    load_file: impl Fn(&str) -> Option<PathBuf>,
) -> anyhow::Result<Models> {
    let all = gpus
        .iter()
        .map(|gpu| ModelGpu {
            listen: gpu.address,
            gpu_index: gpu.index,
            profile: gpu.profile.to_owned(),
            load_file: load_file(gpu.node),
            speed: Some(gpu.speed),
            slots: Some(SLOTS),
            beta: Some(0.0),
        })
        .collect();
    Models::start(tools, dir, "models", all).await
}

/// How often the parts of Tidegate talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub report_ms: u64,
    pub publish_ms: u64,
}

/// As shipped.
pub const DEFAULT_PACE: Pace = Pace { report_ms: 500, publish_ms: 500 };

/// What Tidegate knows and how: a reporter over a simulated driver on each node, and the control plane.
#[derive(Debug)]
pub struct Brain {
    pub control_plane: ControlPlane,
    pub reporters: Vec<Reporter>,
}

impl Brain {
    /// The drivers of the nodes, before anything runs: the model servers want to know where to write their load.
    pub fn drivers(dir: &Path) -> anyhow::Result<Vec<Scenario>> {
        NODES
            .into_iter()
            .map(|(node, profile, _)| {
                let folder = dir.join(node);
                std::fs::create_dir_all(&folder)?;
                Scenario::write(
                    &folder.join("scenario.json"),
                    node,
                    &vec![profile.to_owned(); GPUS_PER_NODE],
                )
            })
            .collect()
    }

    pub async fn start(
        tools: &Tools,
        dir: &Path,
        gpus: &[Gpu],
        drivers: Vec<Scenario>,
        pace: Pace,
    ) -> anyhow::Result<Self> {
        let entries: Vec<Entry> = gpus
            .iter()
            .map(|gpu| Entry {
                service: SERVICE.to_owned(),
                address: gpu.address,
                gpu: Some((gpu.node.to_owned(), gpu.index)),
                draining: false,
            })
            .collect();
        let settings = json!({"period_ms": pace.publish_ms});
        let control_plane = ControlPlane::start(tools, dir, &entries, &settings).await?;
        let mut reporters = Vec::new();
        for ((node, ..), driver) in NODES.into_iter().zip(drivers) {
            let workloads: Vec<Workload> = gpus
                .iter()
                .filter(|gpu| gpu.node == node)
                .map(|gpu| Workload {
                    service: SERVICE.to_owned(),
                    endpoint: gpu.address,
                    gpu: gpu.index,
                    slots: Some(SLOTS),
                })
                .collect();
            let folder = dir.join(node);
            let grpc = control_plane.grpc;
            reporters.push(
                Reporter::start(tools, &folder, driver, node, grpc, &workloads, pace.report_ms)
                    .await?,
            );
        }
        Ok(Self { control_plane, reporters })
    }

    /// The reporter of a node, and through it the node's driver.
    pub fn node(&mut self, node: &str) -> Option<&mut Reporter> {
        self.reporters.iter_mut().find(|reporter| reporter.node == node)
    }

    /// The shipped Envoy configuration for this fleet; `policy` is the filter's.
    pub fn bootstrap(
        &self,
        tools: &Tools,
        gpus: &[Gpu],
        policy: &str,
    ) -> anyhow::Result<Bootstrap> {
        let addresses: Vec<SocketAddr> = gpus.iter().map(|gpu| gpu.address).collect();
        let mut bootstrap = Bootstrap::shipped(tools)?;
        bootstrap.set_endpoints(SERVICE, &addresses)?;
        bootstrap.set_control_plane(self.control_plane.grpc)?;
        bootstrap
            .edit_plugin(|plugin: &mut Value| plugin["services"][0]["policy"] = json!(policy))?;
        Ok(bootstrap)
    }
}

/// Model servers, drivers, reporters and control plane of one fleet.
pub async fn informed_fleet(
    tools: &Tools,
    dir: &Path,
    gpus: &[Gpu],
    pace: Pace,
) -> anyhow::Result<(Brain, Models)> {
    let drivers = Brain::drivers(dir)?;
    let load_files: HashMap<&str, PathBuf> = NODES
        .into_iter()
        .zip(&drivers)
        .map(|((node, ..), driver)| (node, driver.load_file()))
        .collect();
    let models = models(tools, dir, gpus, |node| load_files.get(node).cloned()).await?;
    let brain = Brain::start(tools, dir, gpus, drivers, pace).await?;
    Ok((brain, models))
}

/// Share of a request's work after which its first token is out. The model servers count a token of prompt as 1/100
/// of a token of output; the question has five.
pub fn first_token_share(tokens: u32) -> f64 {
    let prompt = 5.0 / 100.0;
    (prompt + 1.0) / (prompt + f64::from(tokens))
}

/// Waits until the filter of every Envoy steers: until a request for the model servers' health page was steered, since
/// a worker reads what the stream brought at its next tick.
pub async fn informed(envoys: &[Envoy], within: Duration) -> anyhow::Result<()> {
    let client = Client::new();
    for envoy in envoys {
        let page = format!("http://{}/health", envoy.address);
        until(within, "the filter steers by what the control plane says", async || {
            let stats = envoy.stats().await?;
            if stats.tidegate(UPDATES, &[]) == 0.0 {
                return Ok(false);
            }
            client.get(&page).await?;
            Ok(envoy.stats().await?.tidegate(REQUESTS, &["decision=steered"]) > 0.0)
        })
        .await?;
    }
    Ok(())
}
