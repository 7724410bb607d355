//! A GPU that throttles for heat gets less, and not nothing.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use tidegate_tests::eventually::observe;
use tidegate_tests::{GpuSpec, Rig, tools_or_skip};
use tokio::time::Instant;

use super::common::{has_traffic, said, settled};

#[tokio::test]
async fn a_hot_gpu_gets_less_within_two_seconds() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let spec = GpuSpec::new("a100-80gb").slots(4).beta(0.0);
    let mut rig = Rig::builder(&tools, "throttle").gpus(4, spec).start().await?;
    settled(&rig).await?;
    // A GPU ends 4 / 0.1 = 40 a second; 96 a second are a load of 0.6.
    let load = rig.load(96.0).work_ms(100.0).start();
    has_traffic(&rig, 0).await?;
    let before = load.so_far().share(&[rig.gpu(0)]);
    // The driver's word alone: the model server works as fast as before, so its load says nothing.
    let (reporter, index) = rig.reporter(0)?;
    reporter.scenario.throttle(index, 0.4)?;
    rig.models.order(rig.gpu(0), json!({"temperature_c": 92})).await?;
    observe(Duration::from_millis(1_500)).await;
    let from = Instant::now();
    observe(Duration::from_secs(5)).await;
    let summary = load.stop().await;
    let after = summary.since(from).share(&[rig.gpu(0)]);
    let reasons = said(&rig, 0, "reasons").await?.to_string();
    ensure!(reasons.contains("slowdown"), "the fault: {reasons}");
    // A fair share is 0.25; a gate of 0.5 for the slowdown makes it 0.5 / 3.5 = 0.14 or less.
    ensure!(before > 0.17, "before the event it had {before}");
    ensure!((0.01..=0.18).contains(&after), "throttled it has {after}, before {before}");
    assert_eq!(summary.failures(), Vec::<String>::new());
    Ok(())
}
