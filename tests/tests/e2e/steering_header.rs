//! A client's own steering header is never obeyed, however it is spelled and whatever state the
//! filter is in.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use http_body_util::Full;
use serde_json::json;
use tidegate_tests::bootstrap::STEERING_HEADER;
use tidegate_tests::client::raw;
use tidegate_tests::{Client, Rig, tools_or_skip, until};

use super::common::{SOON, apply, echo, only, scripted};

mod trap;

/// Requests of each spelling.
const EACH: usize = 50;

/// Header lines with which a client could ask for `target`.
fn spellings(target: SocketAddr) -> Vec<(&'static str, String)> {
    let upper = STEERING_HEADER.to_uppercase();
    let underscored = STEERING_HEADER.replace('-', "_");
    vec![
        ("lower case", format!("{STEERING_HEADER}: {target}\r\n")),
        ("upper case", format!("{upper}: {target}\r\n")),
        ("twice", format!("{STEERING_HEADER}: {target}\r\n{STEERING_HEADER}: {target}\r\n")),
        ("underscores", format!("{underscored}: {target}\r\n")),
        ("spaces", format!("{STEERING_HEADER}: \t {target} \t \r\n")),
        (
            "empty, then set",
            format!("{STEERING_HEADER}: \r\nX-Gateway-Destination-Endpoint: {target}\r\n"),
        ),
        ("a list", format!("{STEERING_HEADER}: {target}, {target},{target}\r\n")),
        (
            "hop by hop",
            format!("Connection: close, {STEERING_HEADER}\r\n{STEERING_HEADER}: {target}\r\n"),
        ),
    ]
}

/// Where a raw request with this header line was served, and its status.
async fn ask(to: SocketAddr, line: &str) -> anyhow::Result<(u16, Option<SocketAddr>)> {
    let close = if line.contains("Connection") { "" } else { "Connection: close\r\n" };
    let request = format!("GET /v1/echo HTTP/1.1\r\nHost: x\r\n{close}{line}\r\n");
    let answer = String::from_utf8_lossy(&raw(to, request.as_bytes()).await?).into_owned();
    let status = answer.split(' ').nth(1).context("no status")?.parse()?;
    let served = answer.lines().find_map(|line| line.strip_prefix("x-served-by: "));
    Ok((status, served.and_then(|address| address.trim().parse().ok())))
}

/// Answers from `target` among `EACH` requests of each spelling, and whether all were answered by
/// an endpoint or refused as malformed.
async fn count(rig: &Rig, target: SocketAddr) -> anyhow::Result<Vec<(&'static str, usize)>> {
    let mut counts = Vec::new();
    for (name, line) in spellings(target) {
        let mut to_target = 0;
        for _ in 0..EACH {
            let (status, served) = ask(rig.envoy().address, &line).await?;
            ensure!(status == 200 || (name == "underscores" && status == 400), "{name}: {status}");
            to_target += usize::from(served == Some(target));
        }
        counts.push((name, to_target));
    }
    Ok(counts)
}

/// Without a decision of the filter, two endpoints share alike; a client that is obeyed gets all.
fn is_fair(counts: &[(&str, usize)]) -> anyhow::Result<()> {
    for (name, to_target) in counts {
        // 50 fair coins: 40 or more is below one in 100,000.
        ensure!(
            *to_target < 40,
            "{name}: {to_target} of {EACH} requests went where the client said"
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_filter_overrules_it() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (rig, fake) = scripted(&tools, "client-header", 2, |builder| builder).await?;
    let all = rig.models.addresses();
    apply(&rig, &fake, only(2, &all, &all[..1])).await?;
    for (name, to_target) in count(&rig, all[1]).await? {
        assert_eq!(to_target, 0, "{name}");
    }
    let http2 = Client::http2();
    for _ in 0..EACH {
        let request = http::Request::get(echo(&rig))
            .header(STEERING_HEADER, all[1].to_string())
            .body(Full::default())?;
        let reply = http2.send(request).await?;
        assert_eq!((reply.status, reply.served_by()), (200, Some(all[0])), "over HTTP/2");
    }
    Ok(())
}

#[tokio::test]
async fn it_is_removed_before_a_disabled_filter() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let rig = pass_through(&tools, "client-header-disabled", |b| b.disable_filter()).await?;
    is_fair(&count(&rig, rig.gpu(1)).await?)?;
    // The proof that this test can fail: without the early removal Envoy obeys.
    let open = pass_through(&tools, "client-header-open", |b| {
        b.disable_filter()?;
        let hcm = b.hcm()?.as_object_mut().context("no object")?;
        hcm.remove("early_header_mutation_extensions").context("nothing to remove")?;
        Ok(())
    })
    .await?;
    let counts = count(&open, open.gpu(1)).await?;
    assert_eq!(counts[0], ("lower case", EACH), "Envoy alone obeys the client");
    Ok(())
}

#[tokio::test]
async fn it_is_removed_when_the_filter_has_no_configuration() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let rig = pass_through(&tools, "client-header-unconfigured", |b| {
        b.set_plugin_text("{\"version\": 0}")
    })
    .await?;
    is_fair(&count(&rig, rig.gpu(1)).await?)
}

#[tokio::test]
async fn it_is_removed_before_a_filter_that_trapped() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let module = tools.work_dir.join("trap.wasm");
    std::fs::create_dir_all(&tools.work_dir)?;
    std::fs::write(&module, trap::module())?;
    let rig = pass_through(&tools, "client-header-trapped", move |b| {
        let wasm = b.wasm()?;
        wasm["vm_config"]["code"]["local"]["filename"] = json!(module);
        wasm["vm_config"]["vm_id"] = json!("trap");
        // The one policy under which a dead filter lets requests through.
        wasm["failure_policy"] = json!("FAIL_OPEN");
        wasm.as_object_mut().context("no object")?.remove("reload_config");
        Ok(())
    })
    .await?;
    // Each worker's first request traps its VM and is lost; afterwards the filter is bypassed.
    let mut answers = Vec::new();
    until(SOON, "both workers have trapped", async || {
        answers.push(ask(rig.envoy().address, "").await?.0);
        Ok(answers.iter().rev().take(20).filter(|status| **status == 200).count() == 20)
    })
    .await?;
    ensure!(answers.contains(&503), "nothing trapped: {answers:?}");
    is_fair(&count(&rig, rig.gpu(1)).await?)
}

/// Two endpoints and no control plane.
async fn pass_through(
    tools: &tidegate_tests::Tools,
    name: &str,
    edit: impl Fn(&mut tidegate_tests::Bootstrap) -> anyhow::Result<()> + Send + Sync + 'static,
) -> anyhow::Result<Rig> {
    let spec = tidegate_tests::GpuSpec::new("a100-80gb");
    let builder = Rig::builder(tools, name).gpus(2, spec).without_control_plane().concurrency(2);
    builder.edit(edit).start().await
}
