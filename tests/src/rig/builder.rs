//! What a rig is made of, and its start.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::Rig;
use crate::bootstrap::Bootstrap;
use crate::client::Client;
use crate::config::Tools;
use crate::control_plane::{ControlPlane, Entry};
use crate::envoy::Listener;
use crate::models::{ModelGpu, Models};
use crate::ports;
use crate::reporter::{Reporter, Workload};
use crate::scenario::Scenario;

/// One simulated GPU with its model server.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuSpec {
    pub node: String,
    pub service: String,
    pub profile: String,
    pub speed: Option<f64>,
    pub slots: Option<u32>,
    pub beta: Option<f64>,
    /// Whether the discovery file names it from the start.
    pub is_in_fleet: bool,
    /// Whether its node's reporter knows of its model server.
    pub is_reported: bool,
}

impl GpuSpec {
    /// A GPU of a type that the model server knows, on node `node-a`, for service `llm`.
    #[must_use]
    pub fn new(profile: &str) -> Self {
        Self {
            node: "node-a".to_owned(),
            service: "llm".to_owned(),
            profile: profile.to_owned(),
            speed: None,
            slots: None,
            beta: None,
            is_in_fleet: true,
            is_reported: true,
        }
    }

    #[must_use]
    pub fn on(mut self, node: &str) -> Self {
        self.node = node.to_owned();
        self
    }

    #[must_use]
    pub fn service(mut self, service: &str) -> Self {
        self.service = service.to_owned();
        self
    }

    #[must_use]
    pub fn speed(mut self, speed: f64) -> Self {
        self.speed = Some(speed);
        self
    }

    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }

    #[must_use]
    pub fn beta(mut self, beta: f64) -> Self {
        self.beta = Some(beta);
        self
    }

    /// Discovery names its endpoint alone: no node, no GPU, no report.
    #[must_use]
    pub fn unreported(mut self) -> Self {
        self.is_reported = false;
        self
    }

    /// Its model server runs, but discovery does not name it yet.
    #[must_use]
    pub fn later(mut self) -> Self {
        self.is_in_fleet = false;
        self
    }
}

type Edit = Box<dyn Fn(&mut Bootstrap) -> anyhow::Result<()> + Send + Sync>;

pub struct Builder {
    tools: Tools,
    dir: PathBuf,
    gpus: Vec<GpuSpec>,
    envoys: usize,
    concurrency: u32,
    listener: Listener,
    edits: Vec<Edit>,
    control_plane: Option<Value>,
    control_plane_at: Option<std::net::SocketAddr>,
    reports: bool,
    interval_ms: u64,
}

impl Builder {
    pub(super) fn new(tools: &Tools, name: &str) -> Self {
        Self {
            tools: tools.clone(),
            dir: tools.work_dir.join(name),
            gpus: Vec::new(),
            envoys: 1,
            concurrency: 2,
            listener: Listener::Static,
            edits: Vec::new(),
            control_plane: Some(json!({})),
            control_plane_at: None,
            reports: true,
            interval_ms: 200,
        }
    }

    /// Adds `count` such GPUs.
    #[must_use]
    pub fn gpus(mut self, count: usize, spec: GpuSpec) -> Self {
        self.gpus.extend(std::iter::repeat_n(spec, count));
        self
    }

    /// Envoys that share the control plane.
    #[must_use]
    pub fn envoys(mut self, envoys: usize) -> Self {
        self.envoys = envoys;
        self
    }

    /// Worker threads of each Envoy.
    #[must_use]
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.concurrency = concurrency;
        self
    }

    #[must_use]
    pub fn listener(mut self, listener: Listener) -> Self {
        self.listener = listener;
        self
    }

    /// A change of the Envoy configuration; pools and addresses are already set.
    #[must_use]
    pub fn edit(
        mut self,
        edit: impl Fn(&mut Bootstrap) -> anyhow::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.edits.push(Box::new(edit));
        self
    }

    /// A change of the filter's configuration.
    #[must_use]
    pub fn plugin(self, edit: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.edit(move |bootstrap| bootstrap.edit_plugin(&edit))
    }

    /// Fields of the control plane's configuration.
    #[must_use]
    pub fn control_plane(mut self, settings: Value) -> Self {
        self.control_plane = Some(settings);
        self
    }

    /// No control plane and no reporter: Envoy is pointed at a port where nobody listens.
    #[must_use]
    pub fn without_control_plane(mut self) -> Self {
        self.control_plane = None;
        self
    }

    /// No control plane of the rig's: Envoy is pointed at this one, and nobody reports.
    #[must_use]
    pub fn control_plane_at(mut self, address: std::net::SocketAddr) -> Self {
        self.control_plane_at = Some(address);
        self.without_control_plane()
    }

    /// Nobody reports: the control plane knows only what discovery says.
    #[must_use]
    pub fn without_reporters(mut self) -> Self {
        self.reports = false;
        self
    }

    /// Period of the reporters; 200 ms unless set.
    #[must_use]
    pub fn interval_ms(mut self, interval_ms: u64) -> Self {
        self.interval_ms = interval_ms;
        self
    }

    /// Starts everything and waits until each part answers.
    ///
    /// # Errors
    /// A part does not start.
    pub async fn start(self) -> anyhow::Result<Rig> {
        // Logs of an earlier run would mislead.
        let _ = std::fs::remove_dir_all(&self.dir);
        std::fs::create_dir_all(&self.dir)?;
        let (models, scenarios) = self.start_models().await?;
        let entries = self.entries(&models);
        let named: Vec<Entry> = (entries.iter().zip(&self.gpus))
            .filter(|(_, spec)| spec.is_in_fleet)
            .map(|(entry, _)| entry.clone())
            .collect();
        let control_plane = match &self.control_plane {
            Some(settings) => {
                let dir = self.dir.join("control-plane");
                Some(ControlPlane::start(&self.tools, &dir, &named, settings).await?)
            }
            None => None,
        };
        let control_plane_address = control_plane
            .as_ref()
            .map(|one| one.grpc)
            .or(self.control_plane_at)
            .unwrap_or_else(ports::free);
        let mut reporters = Vec::new();
        if self.reports && control_plane.is_some() {
            for (node, scenario) in scenarios {
                let workloads = self.workloads(&node, &models);
                let dir = self.dir.join(&node);
                let reporter = Reporter::start(
                    &self.tools,
                    &dir,
                    scenario,
                    &node,
                    control_plane_address,
                    &workloads,
                    self.interval_ms,
                );
                reporters.push(reporter.await?);
            }
        }
        let mut rig = Rig {
            envoys: Vec::new(),
            reporters,
            control_plane,
            models,
            gpus: self.gpus,
            entries,
            client: Client::new(),
            tools: self.tools,
            dir: self.dir,
            control_plane_address,
        };
        for _ in 0..self.envoys {
            let mut bootstrap = rig.bootstrap()?;
            for edit in &self.edits {
                edit(&mut bootstrap)?;
            }
            rig.add_envoy(bootstrap, self.concurrency, self.listener).await?;
        }
        Ok(rig)
    }

    /// One process for all model servers, and a driver's scenario for each node.
    async fn start_models(&self) -> anyhow::Result<(Models, Vec<(String, Scenario)>)> {
        let mut nodes: Vec<&str> = Vec::new();
        for spec in &self.gpus {
            if !nodes.contains(&spec.node.as_str()) {
                nodes.push(&spec.node);
            }
        }
        let mut scenarios = Vec::new();
        for node in nodes {
            let of_node = self.gpus.iter().filter(|spec| spec.node == node);
            let profiles: Vec<String> = of_node.map(|spec| spec.profile.clone()).collect();
            let dir = self.dir.join(node);
            std::fs::create_dir_all(&dir)?;
            let scenario = Scenario::write(&dir.join("scenario.json"), node, &profiles)?;
            scenarios.push((node.to_owned(), scenario));
        }
        let mut gpus: Vec<ModelGpu> = Vec::new();
        for (place, spec) in self.gpus.iter().enumerate() {
            let gpu_index = self.gpus[..place].iter().filter(|one| one.node == spec.node).count();
            let scenario = scenarios.iter().find(|(node, _)| *node == spec.node);
            gpus.push(ModelGpu {
                listen: ports::free(),
                gpu_index,
                profile: spec.profile.clone(),
                load_file: scenario.map(|(_, scenario)| scenario.load_file()),
                speed: spec.speed,
                slots: spec.slots,
                beta: spec.beta,
            });
        }
        let models = Models::start(&self.tools, &self.dir, "model-servers", gpus).await?;
        Ok((models, scenarios))
    }

    fn entries(&self, models: &Models) -> Vec<Entry> {
        (self.gpus.iter().zip(&models.gpus))
            .map(|(spec, gpu)| Entry {
                service: spec.service.clone(),
                address: gpu.listen,
                gpu: spec.is_reported.then(|| (spec.node.clone(), gpu.gpu_index)),
                draining: false,
            })
            .collect()
    }

    fn workloads(&self, node: &str, models: &Models) -> Vec<Workload> {
        (self.gpus.iter().zip(&models.gpus))
            .filter(|(spec, _)| spec.node == node && spec.is_reported)
            .map(|(spec, gpu)| Workload {
                service: spec.service.clone(),
                endpoint: gpu.listen,
                gpu: gpu.gpu_index,
                slots: spec.slots,
            })
            .collect()
    }
}
