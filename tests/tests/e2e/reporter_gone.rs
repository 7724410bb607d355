//! When a reporter dies its endpoints go stale: they keep their traffic, and stale is not idle.

use std::time::Duration;

use anyhow::ensure;
use tidegate_tests::eventually::observe;
use tidegate_tests::{GpuSpec, Rig, tools_or_skip, until};
use tokio::time::Instant;

use super::common::{SOON, said, settled};

#[tokio::test]
async fn a_dead_reporter_makes_its_endpoints_stale_not_idle() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let spec = GpuSpec::new("a100-80gb").slots(4).beta(0.0);
    let mut rig = Rig::builder(&tools, "reporter-gone")
        .gpus(2, spec.clone().on("node-a"))
        .gpus(2, spec.on("node-b"))
        // Each sees a quarter of what all send: only what is pushed tells of the rest.
        .envoys(4)
        .concurrency(1)
        .start()
        .await?;
    settled(&rig).await?;
    // It dies while its GPUs are idle: whoever believes its last word sends everything there.
    rig.reporter(0)?.0.process.kill();
    until(SOON, "the endpoints grow old", async || {
        Ok(said(&rig, 0, "age_ms").await?.as_u64().is_none_or(|age_ms| age_ms > 3_000))
    })
    .await?;
    // A GPU ends 40 a second: a load of 0.6.
    let load = rig.load(96.0).work_ms(100.0).start();
    observe(Duration::from_secs(1)).await;
    let from = Instant::now();
    observe(Duration::from_secs(5)).await;
    let summary = load.stop().await;
    assert_eq!(summary.failures(), Vec::<String>::new());
    let stale = summary.since(from).share(&[rig.gpu(0), rig.gpu(1)]);
    // A fair share of the two is 0.5: no more for being silent, and not nothing.
    ensure!((0.2..=0.56).contains(&stale), "stale endpoints have {stale}");
    let fresh = said(&rig, 2, "age_ms").await?.as_u64();
    ensure!(fresh.is_some_and(|age_ms| age_ms < 3_000), "node-b is {fresh:?} ms old");
    rig.reporter(0)?.0.restart().await?;
    settled(&rig).await
}
