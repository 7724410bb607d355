//! Everything together: model servers, reporters, control plane and Envoys, wired on free ports.

mod builder;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;

pub use builder::{Builder, GpuSpec};

use crate::bootstrap::Bootstrap;
use crate::client::Client;
use crate::config::Tools;
use crate::control_plane::{ControlPlane, Entry};
use crate::envoy::{Envoy, Listener};
use crate::eventually::until;
use crate::load::Load;
use crate::models::{Fault, Models};
use crate::reporter::Reporter;
use crate::stats::Stats;

/// How long a fresh rig may take until the filter steers.
const STEERS_WITHIN: Duration = Duration::from_secs(20);

/// Running parts; each ends when the rig is dropped, Envoys first.
#[derive(Debug)]
pub struct Rig {
    pub envoys: Vec<Envoy>,
    pub reporters: Vec<Reporter>,
    pub control_plane: Option<ControlPlane>,
    pub models: Models,
    pub gpus: Vec<GpuSpec>,
    pub entries: Vec<Entry>,
    pub client: Client,
    pub tools: Tools,
    pub dir: PathBuf,
    control_plane_address: SocketAddr,
}

impl Rig {
    /// A rig with its own folder `target/e2e/<name>`.
    #[must_use]
    pub fn builder(tools: &Tools, name: &str) -> Builder {
        Builder::new(tools, name)
    }

    /// Where the model server of GPU `gpu` listens.
    ///
    /// # Panics
    /// There is no such GPU.
    #[must_use]
    pub fn gpu(&self, gpu: usize) -> SocketAddr {
        self.models.gpus[gpu].listen
    }

    /// The first Envoy.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn envoy(&self) -> &Envoy {
        &self.envoys[0]
    }

    /// Where clients send to.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.envoys.iter().map(|envoy| envoy.address).collect()
    }

    /// # Panics
    /// The rig was built without one.
    #[must_use]
    pub fn control_plane(&self) -> &ControlPlane {
        self.control_plane.as_ref().expect("the rig has a control plane")
    }

    /// # Panics
    /// The rig was built without one.
    pub fn control_plane_mut(&mut self) -> &mut ControlPlane {
        self.control_plane.as_mut().expect("the rig has a control plane")
    }

    /// Where the control plane is, or would be.
    #[must_use]
    pub fn control_plane_address(&self) -> SocketAddr {
        self.control_plane_address
    }

    /// The reporter of a GPU's node, and the GPU's index there.
    ///
    /// # Errors
    /// The GPU's node has no reporter.
    pub fn reporter(&mut self, gpu: usize) -> anyhow::Result<(&mut Reporter, usize)> {
        let node = self.gpus[gpu].node.clone();
        let index = self.models.gpus[gpu].gpu_index;
        let reporter = self.reporters.iter_mut().find(|reporter| reporter.node == node);
        Ok((reporter.with_context(|| format!("no reporter on {node}"))?, index))
    }

    /// An Xid event on a GPU; 79 means that it has fallen off the bus.
    ///
    /// # Errors
    /// The scenario cannot be written.
    pub fn xid(&mut self, gpu: usize, code: u32) -> anyhow::Result<()> {
        let (reporter, index) = self.reporter(gpu)?;
        reporter.scenario.xid(index, code)
    }

    /// The driver says that the GPU is lost.
    ///
    /// # Errors
    /// The scenario cannot be written.
    pub fn lose(&mut self, gpu: usize) -> anyhow::Result<()> {
        let (reporter, index) = self.reporter(gpu)?;
        reporter.scenario.lost(index)
    }

    /// Calls on the GPU do not return any more.
    ///
    /// # Errors
    /// The scenario cannot be written.
    pub fn hang(&mut self, gpu: usize) -> anyhow::Result<()> {
        let (reporter, index) = self.reporter(gpu)?;
        reporter.scenario.hang(index)
    }

    /// The GPU is too hot and works at `ratio` of its speed.
    ///
    /// # Errors
    /// The scenario or the model server cannot be changed.
    pub async fn throttle(&mut self, gpu: usize, ratio: f64) -> anyhow::Result<()> {
        let (reporter, index) = self.reporter(gpu)?;
        reporter.scenario.throttle(index, ratio)?;
        let order = json!({"speed": ratio, "temperature_c": 92});
        self.models.order(self.gpu(gpu), order).await
    }

    /// Ends every fault of a GPU, of its driver and of its model server.
    ///
    /// # Errors
    /// The scenario or the model server cannot be changed.
    pub async fn recover(&mut self, gpu: usize) -> anyhow::Result<()> {
        let (reporter, index) = self.reporter(gpu)?;
        reporter.scenario.recover(index)?;
        let order = json!({"speed": 1.0, "temperature_c": -1, "fault": Fault::None.as_str()});
        self.models.order(self.gpu(gpu), order).await
    }

    /// A load on all Envoys in turn.
    #[must_use]
    pub fn load(&self, rate: f64) -> Load {
        Load::new(&self.addresses(), rate)
    }

    /// The shipped Envoy configuration, wired to this rig.
    ///
    /// # Errors
    /// The shipped file has another form than expected.
    pub fn bootstrap(&self) -> anyhow::Result<Bootstrap> {
        let mut bootstrap = Bootstrap::shipped(&self.tools)?;
        bootstrap.set_control_plane(self.control_plane_address)?;
        bootstrap.set_endpoints("llm", &self.models.addresses())?;
        Ok(bootstrap)
    }

    /// Starts one more Envoy, which becomes the last of `envoys`.
    ///
    /// # Errors
    /// It does not start.
    pub async fn add_envoy(
        &mut self,
        bootstrap: Bootstrap,
        concurrency: u32,
        listener: Listener,
    ) -> anyhow::Result<&Envoy> {
        let name = format!("envoy-{}", self.envoys.len());
        let started =
            Envoy::start(&self.tools, &self.dir, &name, bootstrap, concurrency, listener).await?;
        self.envoys.push(started);
        self.envoys.last().context("just pushed")
    }

    /// Waits until every Envoy has applied fleet updates and stands on the top rung.
    ///
    /// # Errors
    /// Not in time.
    pub async fn steers(&self) -> anyhow::Result<()> {
        for envoy in &self.envoys {
            let what = format!("{} steers by fresh data", envoy.process.name());
            until(STEERS_WITHIN, &what, async || Ok(has_fleet(&envoy.stats().await?))).await?;
        }
        Ok(())
    }
}

/// Whether the filter has applied an update, and a service of it stands on the top rung.
fn has_fleet(stats: &Stats) -> bool {
    stats.tidegate("tidegate_updates_total", &[]) > 0.0
        && stats.series("tidegate_ladder_rung").any(|(_, rung)| rung == 0.0)
}
