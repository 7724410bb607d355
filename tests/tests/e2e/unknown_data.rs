//! What nobody knows is not idle: an endpoint without data never gets more than its fair share.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use tidegate_tests::eventually::observe;
use tidegate_tests::{GpuSpec, Rig, tools_or_skip};
use tokio::time::Instant;

use super::common::settled;

#[tokio::test]
async fn unknown_never_gets_more_than_a_fair_share() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let spec = GpuSpec::new("a100-80gb").slots(4).beta(0.0);
    let mut rig = Rig::builder(&tools, "unknown-data")
        .gpus(2, spec.clone().on("node-a"))
        // A driver that supports next to nothing.
        .gpus(1, spec.clone().on("node-b"))
        // Discovery knows an address and no more.
        .gpus(1, spec.on("node-c").unreported())
        // Each sees a quarter of what all send: only what is pushed tells of the rest.
        .envoys(4)
        .concurrency(1)
        .start()
        .await?;
    let (blind, index) = rig.reporter(2)?;
    let unsupported = [
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetCurrentClocksEventReasons",
    ];
    blind.scenario.set(index, json!({ "unsupported": unsupported }))?;
    settled(&rig).await?;
    // A GPU ends 40 a second: all together are loaded to 0.6, and the known ones are never idle.
    let load = rig.load(96.0).work_ms(100.0).start();
    observe(Duration::from_secs(2)).await;
    let from = Instant::now();
    observe(Duration::from_secs(8)).await;
    let summary = load.stop().await.since(from);
    assert_eq!(summary.failures(), Vec::<String>::new());
    for (gpu, what) in [(2, "unsupported"), (3, "unreported")] {
        let share = summary.share(&[rig.gpu(gpu)]);
        // Fair is 0.25; of 768 requests a fifth more is 3 standard deviations.
        ensure!((0.02..=0.30).contains(&share), "{what}: {share} of {:?}", summary.by_server());
    }
    Ok(())
}
