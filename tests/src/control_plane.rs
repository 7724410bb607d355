//! The shipped control plane, with its files.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::config::Tools;
use crate::ports;
use crate::process::Process;
use crate::scenario::replace;

const READY_WITHIN: Duration = Duration::from_secs(10);

/// One endpoint of a service in the discovery file.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub service: String,
    pub address: SocketAddr,
    /// Node and index of its GPU.
    pub gpu: Option<(String, usize)>,
    pub draining: bool,
}

#[derive(Debug)]
pub struct ControlPlane {
    /// Where reporters and proxies come.
    pub grpc: SocketAddr,
    /// Where people come.
    pub admin: SocketAddr,
    pub process: Process,
    program: PathBuf,
    dir: PathBuf,
    client: Client,
}

impl ControlPlane {
    /// Writes both files, starts the program and waits until it is ready.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(
        tools: &Tools,
        dir: &Path,
        entries: &[Entry],
        settings: &Value,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (grpc, admin) = (ports::free(), ports::free());
        let mut page = json!({"version": 1, "listen": {"grpc": grpc, "admin": admin},
            "discovery": {"file": "fleet.yaml", "poll_ms": 100}});
        if let (Some(page), Some(more)) = (page.as_object_mut(), settings.as_object()) {
            page.extend(more.clone());
        }
        // JSON is YAML.
        std::fs::write(dir.join("control-plane.yaml"), serde_json::to_vec_pretty(&page)?)?;
        write_fleet(dir, entries)?;
        let program = tools.bin("tidegate");
        let process = spawn(&program, dir)?;
        let mut control_plane =
            Self { grpc, admin, process, program, dir: dir.to_path_buf(), client: Client::new() };
        control_plane.ready().await?;
        Ok(control_plane)
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let url = format!("http://{}/healthz", self.admin);
        let client = &self.client;
        self.process.ready(READY_WITHIN, async || Ok(client.get(&url).await?.status == 200)).await
    }

    /// Ends it without asking, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same ports, with nothing of its memory.
    ///
    /// # Errors
    /// It does not start.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill();
        self.process = spawn(&self.program, &self.dir)?;
        self.ready().await
    }

    /// Replaces the discovery file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_fleet(&self, entries: &[Entry]) -> anyhow::Result<()> {
        write_fleet(&self.dir, entries)
    }

    /// Replaces the discovery file by any text.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_fleet_text(&self, text: &str) -> anyhow::Result<()> {
        replace(&self.dir.join("fleet.yaml"), text.as_bytes())
    }

    /// A page of the admin API.
    ///
    /// # Errors
    /// It does not answer with JSON.
    pub async fn api(&self, path: &str) -> anyhow::Result<Value> {
        self.client.get(&format!("http://{}{path}", self.admin)).await?.json()
    }

    /// What the control plane says of one endpoint, from `/api/fleet`: the object in it whose
    /// `address` (or `endpoint`) is the wanted one.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn endpoint(&self, address: SocketAddr) -> anyhow::Result<Option<Value>> {
        let page = self.api("/api/fleet").await?;
        Ok(find(&page, &address.to_string()).cloned())
    }

    /// The Prometheus page.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        Ok(self.client.get(&format!("http://{}/metrics", self.admin)).await?.text())
    }
}

fn find<'a>(page: &'a Value, address: &str) -> Option<&'a Value> {
    match page {
        Value::Object(fields) => {
            let named = ["address", "endpoint"].iter().any(|key| {
                fields.get(*key).and_then(Value::as_str).is_some_and(|text| text == address)
            });
            if named { Some(page) } else { fields.values().find_map(|value| find(value, address)) }
        }
        Value::Array(items) => items.iter().find_map(|value| find(value, address)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn spawn(program: &Path, dir: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(dir.join("control-plane.yaml"));
    Process::spawn("control-plane", dir, command)
}

fn write_fleet(dir: &Path, entries: &[Entry]) -> anyhow::Result<()> {
    let mut services: Vec<(&str, Vec<Value>)> = Vec::new();
    for entry in entries {
        let mut endpoint = json!({"address": entry.address.to_string()});
        if let Some((node, gpu)) = &entry.gpu {
            endpoint["node"] = json!(node);
            endpoint["gpus"] = json!([gpu]);
        }
        if entry.draining {
            endpoint["draining"] = json!(true);
        }
        match services.iter_mut().find(|(name, _)| *name == entry.service) {
            Some((_, endpoints)) => endpoints.push(endpoint),
            None => services.push((&entry.service, vec![endpoint])),
        }
    }
    let services: Vec<Value> = services
        .into_iter()
        .map(|(name, endpoints)| json!({"name": name, "endpoints": endpoints}))
        .collect();
    let page = json!({"version": 1, "services": services});
    replace(&dir.join("fleet.yaml"), &serde_json::to_vec_pretty(&page)?)
}
