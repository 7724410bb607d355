//! GPUs get requests in proportion to what they can do.

use std::time::Duration;

use anyhow::ensure;
use tidegate_tests::eventually::observe;
use tidegate_tests::{GpuSpec, Rig, tools_or_skip};

use super::common::settled;

#[tokio::test]
async fn share_follows_capacity() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let fast = GpuSpec::new("a100-80gb").on("node-a").speed(1.0).slots(8).beta(0.0);
    let slow = GpuSpec::new("l4-24gb").on("node-b").speed(0.45).slots(4).beta(0.0);
    let rig = Rig::builder(&tools, "capacity-share").gpus(4, fast).gpus(4, slow).start().await?;
    settled(&rig).await?;
    // 200 ms of work: a fast one ends 8 / 0.2 = 40 a second, a slow one 4 * 0.45 / 0.2 = 9, all
    // together 196. At 137 a second the load is 0.7.
    let load = rig.load(137.0).work_ms(200.0).start();
    observe(Duration::from_secs(3)).await;
    let from = tokio::time::Instant::now();
    observe(Duration::from_secs(10)).await;
    let summary = load.stop().await.since(from);
    assert_eq!(summary.failures(), Vec::<String>::new());
    let slow: Vec<_> = (4..8).map(|gpu| rig.gpu(gpu)).collect();
    let share = summary.share(&slow);
    // In proportion: 36 / 196 = 0.18. Spread alike it would be 0.5.
    ensure!((0.08..=0.27).contains(&share), "the slow half has {share}: {:?}", summary.by_server());
    // On an idle slow GPU a request takes 444 ms; one that waited for a slot takes longer.
    let p99_ms = summary.latency_ms(0.99);
    ensure!(p99_ms < 900.0, "P99 {p99_ms} ms: requests wait while GPUs are free");
    // Within a type, shares are alike: 8 GPUs, none forgotten.
    let by_server = summary.by_server();
    for gpu in 0..4 {
        let share = summary.share(&[rig.gpu(gpu)]);
        ensure!((0.14..=0.28).contains(&share), "fast GPU {gpu} has {share}: {by_server:?}");
    }
    light_load_prefers_the_fast(&rig).await
}

/// With next to nothing under way only the weights tell fast from slow.
async fn light_load_prefers_the_fast(rig: &Rig) -> anyhow::Result<()> {
    let light = rig.load(50.0).work_ms(20.0).seed(2).run_for(Duration::from_secs(8)).await;
    assert_eq!(light.failures(), Vec::<String>::new());
    let slow: Vec<_> = (4..8).map(|gpu| rig.gpu(gpu)).collect();
    let share = light.share(&slow);
    // By weights 0.25 was measured, with all types held alike 0.39.
    ensure!(share < 0.32, "idle, the slow half has {share}: {:?}", light.by_server());
    Ok(())
}
