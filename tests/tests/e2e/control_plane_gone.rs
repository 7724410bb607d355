//! Requests never wait for the control plane: it may be killed, frozen, back again or never there.

use std::time::Duration;

use anyhow::{Context, ensure};
use tidegate_tests::eventually::observe;
use tidegate_tests::load::Summary;
use tidegate_tests::{GpuSpec, Rig, Tools, tools_or_skip, until};

use super::common::{SOON, settled, steered};

async fn rig(tools: &Tools, name: &str) -> anyhow::Result<Rig> {
    Rig::builder(tools, name).gpus(4, GpuSpec::new("a100-80gb")).start().await
}

/// Time since the filter last heard of the fleet.
async fn age_ms(rig: &Rig) -> anyhow::Result<f64> {
    Ok(rig.envoy().stats().await?.tidegate("tidegate_snapshot_age_ms", &[]))
}

/// No request failed, and all of them were spread over all GPUs.
fn is_unharmed(rig: &Rig, summary: &Summary) -> anyhow::Result<()> {
    assert_eq!(summary.failures(), Vec::<String>::new());
    let by_server = summary.by_server();
    ensure!(by_server.len() == rig.gpus.len(), "some GPUs got nothing: {by_server:?}");
    for share in rig.models.addresses().into_iter().map(|gpu| summary.share(&[gpu])) {
        ensure!((0.12..=0.4).contains(&share), "of four alike: {by_server:?}");
    }
    Ok(())
}

#[tokio::test]
async fn killed_and_back_costs_no_request() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let mut rig = rig(&tools, "control-plane-killed").await?;
    settled(&rig).await?;
    let load = rig.load(100.0).start();
    rig.control_plane_mut().kill();
    until(SOON, "the filter's data grows old", async || Ok(age_ms(&rig).await? > 4_000.0)).await?;
    let ended = rig.envoy().stats().await?.tidegate("tidegate_stream_ends_total", &[]);
    ensure!(ended > 0.0, "the stream did not end");
    let before = steered(&rig).await?;
    observe(Duration::from_secs(1)).await;
    ensure!(steered(&rig).await? > before + 50.0, "the filter steers by what it last knew");
    rig.control_plane_mut().restart().await?;
    until(2 * SOON, "fresh data again", async || Ok(age_ms(&rig).await? < 1_500.0)).await?;
    settled(&rig).await?;
    observe(Duration::from_secs(1)).await;
    is_unharmed(&rig, &load.stop().await)
}

#[tokio::test]
async fn frozen_costs_no_request_and_is_noticed() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    // Without Envoy's keepalive, which is not everywhere: the filter must notice by itself.
    let builder = Rig::builder(&tools, "control-plane-frozen");
    let rig = builder
        .gpus(4, GpuSpec::new("a100-80gb"))
        .edit(|b| {
            let protocol = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
            let cluster = b.cluster("tidegate_control_plane")?;
            let options = &mut cluster["typed_extension_protocol_options"][protocol];
            let http2 = &mut options["explicit_http_config"]["http2_protocol_options"];
            let fields = http2.as_object_mut().context("no options")?;
            fields.remove("connection_keepalive").context("no keepalive to remove")?;
            Ok(())
        })
        .start()
        .await?;
    settled(&rig).await?;
    let load = rig.load(100.0).start();
    rig.control_plane().process.freeze()?;
    until(SOON, "the filter's data grows old", async || Ok(age_ms(&rig).await? > 4_000.0)).await?;
    // A frozen peer sends no reset: only a deadline of the filter's own can end the stream.
    until(2 * SOON, "the silent stream is given up", async || {
        Ok(rig.envoy().stats().await?.tidegate("tidegate_stream_ends_total", &[]) > 0.0)
    })
    .await?;
    rig.control_plane().process.thaw()?;
    until(2 * SOON, "fresh data again", async || Ok(age_ms(&rig).await? < 1_500.0)).await?;
    is_unharmed(&rig, &load.stop().await)
}

#[tokio::test]
async fn never_there_costs_no_request() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let builder = Rig::builder(&tools, "control-plane-never").gpus(4, GpuSpec::new("a100-80gb"));
    let rig = builder.without_control_plane().start().await?;
    // From the very first request on.
    let load = rig.load(100.0).start();
    until(SOON, "attempts to reach it", async || {
        Ok(rig.envoy().stats().await?.tidegate("tidegate_stream_ends_total", &[]) >= 2.0)
    })
    .await?;
    observe(Duration::from_secs(2)).await;
    let stats = rig.envoy().stats().await?;
    assert_eq!(stats.tidegate("tidegate_updates_total", &[]), 0.0);
    is_unharmed(&rig, &load.stop().await)
}
