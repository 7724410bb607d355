//! A new endpoint warms up before it gets its full share; one that leaves gets nothing more.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use tidegate_tests::eventually::observe;
use tidegate_tests::{GpuSpec, Rig, tools_or_skip, until};
use tokio::time::Instant;

use super::common::{SOON, last_request_after, settled, unix_ms};

#[tokio::test]
async fn scale_out_warms_up_and_scale_in_costs_no_request() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let spec = GpuSpec::new("a100-80gb").slots(8).beta(0.0);
    let rig = Rig::builder(&tools, "scaling")
        .gpus(3, spec.clone())
        .gpus(1, spec.later())
        .plugin(|plugin| plugin["services"][0]["slow_start_ms"] = json!(12_000))
        .start()
        .await?;
    settled(&rig).await?;
    // The first three are as new as the fleet: their warm-up must be over.
    let load = rig.load(100.0).work_ms(50.0).start();
    observe(Duration::from_secs(13)).await;
    let new = rig.gpu(3);
    assert_eq!(rig.models.ledger(new).await?.started, 0, "not discovered, no requests");

    let added = Instant::now();
    rig.control_plane().set_fleet(&rig.entries)?;
    until(Duration::from_secs(5), "the new endpoint gets requests", async || {
        Ok(rig.models.ledger(new).await?.started > 0)
    })
    .await?;
    let first = Instant::now();
    ensure!(first - added < Duration::from_secs(5), "a first request within 5 s");
    observe(Duration::from_secs(3)).await;
    let warming = load.since(first).share(&[new]);
    // A fair share is 0.25; 3 s into 12 s of warm-up it has had at most about a quarter of that.
    ensure!(warming < 0.17, "cold, it has {warming}");
    observe(Duration::from_secs(11)).await;
    let warm_from = Instant::now();
    observe(Duration::from_secs(4)).await;
    let warm = load.since(warm_from).share(&[new]);
    ensure!((0.17..=0.35).contains(&warm), "warm, it has {warm}; cold it had {warming}");

    let removed_ms = unix_ms();
    rig.control_plane().set_fleet(&rig.entries[1..])?;
    let after_ms = last_request_after(&rig, 0, removed_ms).await?;
    ensure!(after_ms <= SOON.as_millis() as u64 / 5, "the last request came {after_ms} ms later");
    assert_eq!(load.stop().await.failures(), Vec::<String>::new());
    Ok(())
}
