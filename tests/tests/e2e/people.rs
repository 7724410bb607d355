//! What an operator sees: `tidegate status` and `tidegate explain` tell of a lost GPU and of a refused
//! configuration, by words and by exit code.

use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use tidegate_tests::envoy::Listener;
use tidegate_tests::{GpuSpec, Rig, eventually, tools_or_skip, until};

use super::common::{SOON, said, settled};

/// Exit code for a fleet in trouble.
const DEGRADED: i32 = 3;

/// Runs `tidegate` against the rig's control plane: exit code and output.
fn tidegate(rig: &Rig, arguments: &[&str]) -> anyhow::Result<(i32, String)> {
    let mut command = Command::new(rig.tools.bin("tidegate"));
    let admin = format!("http://{}", rig.control_plane().admin);
    command.args(arguments).args(["--admin", &admin]).env("NO_COLOR", "1");
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.code().unwrap_or(-1), text))
}

#[tokio::test]
async fn status_and_explain_say_what_is_wrong() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let mut rig = Rig::builder(&tools, "people")
        .gpus(2, GpuSpec::new("a100-80gb"))
        .listener(Listener::FromFile)
        .start()
        .await?;
    settled(&rig).await?;
    let addresses: Vec<String> = rig.models.addresses().iter().map(ToString::to_string).collect();
    let (code, text) = eventually(SOON, "a healthy fleet", async || {
        let told = tidegate(&rig, &["status"])?;
        Ok((told.0 == 0).then_some(told))
    })
    .await?;
    assert_eq!(code, 0, "{text}");
    ensure!(addresses.iter().all(|address| text.contains(address)), "{text}");

    rig.lose(1)?;
    until(SOON, "the GPU is lost", async || Ok(said(&rig, 1, "hard").await? == "down")).await?;
    let (_, text) = tidegate(&rig, &["status"])?;
    ensure!(text.contains("gpu_lost"), "status names the reason:\n{text}");
    let (_, json) = tidegate(&rig, &["status", "-o", "json"])?;
    let page: Value = serde_json::from_str(&json)?;
    let endpoints = page["services"][0]["endpoints"].as_array().map(Vec::len);
    assert_eq!(endpoints, Some(2), "{json}");
    let (code, text) = tidegate(&rig, &["explain", &addresses[1]])?;
    ensure!(text.contains("gpu_lost") && text.contains("gate"), "explain, {code}:\n{text}");
    let (code, text) = tidegate(&rig, &["explain", "127.0.0.1:1"])?;
    assert_eq!(code, 1, "an endpoint that nobody knows:\n{text}");

    rig.lose(0)?;
    until(SOON, "the other GPU is lost", async || Ok(said(&rig, 0, "hard").await? == "down"))
        .await?;
    let (code, text) = tidegate(&rig, &["status"])?;
    assert_eq!(code, DEGRADED, "nothing takes requests:\n{text}");
    rig.recover(0).await?;

    let bad = json!({"version": 1, "services": [{"name": "llm", "match": {}}]});
    rig.envoys[0].push(|b| b.set_plugin(&bad))?;
    until(2 * SOON, "status tells of the refused configuration", async || {
        Ok(tidegate(&rig, &["status"])?.1.contains("configuration refused"))
    })
    .await?;

    rig.control_plane_mut().process.end(Duration::from_secs(2)).await?;
    let (code, _) = tidegate(&rig, &["status"])?;
    assert_eq!(code, DEGRADED, "a control plane that cannot be reached");
    Ok(())
}
