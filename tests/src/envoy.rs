//! One real Envoy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::bootstrap::Bootstrap;
use crate::client::Client;
use crate::config::Tools;
use crate::ports;
use crate::process::Process;
use crate::scenario::replace;
use crate::stats::Stats;

const READY_WITHIN: Duration = Duration::from_secs(20);

/// Whether the listener can be changed while Envoy runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listener {
    #[default]
    Static,
    /// Read from a file that [`Envoy::push`] replaces.
    FromFile,
}

#[derive(Debug)]
pub struct Envoy {
    /// Where clients send to.
    pub address: SocketAddr,
    pub admin: SocketAddr,
    pub process: Process,
    bootstrap: Bootstrap,
    listener_file: Option<PathBuf>,
    pushes: u64,
    client: Client,
}

impl Envoy {
    /// Starts Envoy on free ports and waits until it is ready.
    ///
    /// # Errors
    /// It does not start; the error carries its last words.
    pub async fn start(
        tools: &Tools,
        dir: &Path,
        name: &str,
        mut bootstrap: Bootstrap,
        concurrency: u32,
        listener: Listener,
    ) -> anyhow::Result<Self> {
        let (address, admin) = (ports::free(), ports::free());
        bootstrap.place(name, address, admin)?;
        let whole = bootstrap.clone();
        std::fs::create_dir_all(dir)?;
        let mut listener_file = None;
        if listener == Listener::FromFile {
            let folder = dir.join(format!("{name}-listener"));
            std::fs::create_dir_all(&folder)?;
            let file = folder.join("lds.json");
            let first = bootstrap.take_listener(&file)?;
            write_listener(&file, &first, 0)?;
            listener_file = Some(file);
        }
        let config = dir.join(format!("{name}.json"));
        std::fs::write(&config, serde_json::to_vec_pretty(&bootstrap.page)?)?;
        let mut command = Command::new(&tools.envoy);
        command.arg("-c").arg(&config).arg("--disable-hot-restart");
        command.args(["--concurrency", &concurrency.to_string(), "--drain-time-s", "2"]);
        command.args(["--log-level", "warning", "--component-log-level", "wasm:info"]);
        let process = Process::spawn(name, dir, command)?;
        let mut envoy = Self {
            address,
            admin,
            process,
            bootstrap: whole,
            listener_file,
            pushes: 0,
            client: Client::new(),
        };
        envoy.ready().await?;
        Ok(envoy)
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let url = format!("http://{}/ready", self.admin);
        let client = &self.client;
        self.process.ready(READY_WITHIN, async || Ok(client.get(&url).await?.status == 200)).await
    }

    /// Changes the configuration of the listener under load, as a control plane of Envoy's would.
    ///
    /// # Errors
    /// The listener is static, or the edit fails.
    pub fn push(
        &mut self,
        edit: impl FnOnce(&mut Bootstrap) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let file = self.listener_file.as_deref().context("the listener is static")?;
        edit(&mut self.bootstrap)?;
        self.pushes += 1;
        write_listener(file, self.bootstrap.listener()?, self.pushes)
    }

    /// All counters and gauges.
    ///
    /// # Errors
    /// The admin port does not answer.
    pub async fn stats(&self) -> anyhow::Result<Stats> {
        let url = format!("http://{}/stats", self.admin);
        Ok(Stats::parse(&self.client.get(&url).await?.text()))
    }

    /// The Prometheus page.
    ///
    /// # Errors
    /// The admin port does not answer.
    pub async fn prometheus(&self) -> anyhow::Result<String> {
        let url = format!("http://{}/stats/prometheus", self.admin);
        Ok(self.client.get(&url).await?.text())
    }
}

fn write_listener(file: &Path, listener: &Value, version: u64) -> anyhow::Result<()> {
    let mut resource = json!({"@type": "type.googleapis.com/envoy.config.listener.v3.Listener"});
    if let (Some(to), Some(from)) = (resource.as_object_mut(), listener.as_object()) {
        to.extend(from.clone());
    }
    let page = json!({"version_info": version.to_string(), "resources": [resource]});
    replace(file, &serde_json::to_vec(&page)?)
}
