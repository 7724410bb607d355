//! Several Envoys share one control plane: each sees what the others send, and one that dies is
//! forgotten.

use std::time::Duration;

use anyhow::ensure;
use tidegate_tests::eventually::observe;
use tidegate_tests::{GpuSpec, Rig, tools_or_skip, until};
use tokio::time::Instant;

use super::common::{SOON, said, settled};

#[tokio::test]
async fn envoys_know_of_each_others_load() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let spec = GpuSpec::new("a100-80gb").slots(8).beta(0.0);
    let builder = Rig::builder(&tools, "several-envoys").gpus(2, spec).envoys(3).concurrency(1);
    let mut rig = builder.start().await?;
    settled(&rig).await?;
    let live = async |rig: &Rig| -> anyhow::Result<Option<u64>> {
        let page = rig.control_plane().api("/api/fleet").await?;
        Ok(page["services"][0]["proxies_live"].as_u64())
    };
    until(SOON, "three proxies are live", async || Ok(live(&rig).await? == Some(3))).await?;

    // Requests of 3 s straight to GPU 0, past all Envoys, as another fleet would send them.
    let aside = tidegate_tests::Load::new(&[rig.gpu(0)], 2.0).work_ms(3_000.0).start();
    until(SOON, "the control plane counts them", async || {
        Ok(said(&rig, 0, "in_flight").await?.as_u64().is_some_and(|count| count >= 4))
    })
    .await?;
    // 3 Envoys, 60 a second: each alone has about two of its own requests under way.
    let load = rig.load(60.0).work_ms(100.0).start();
    observe(Duration::from_secs(1)).await;
    let from = Instant::now();
    observe(Duration::from_secs(4)).await;
    let busy = load.since(from).share(&[rig.gpu(0)]);
    // By own counts alone it would be 0.5; GPU 0 has 6 of its 8 slots taken by others.
    ensure!(busy < 0.3, "the GPU that others keep busy has {busy}");

    let summary = load.stop().await;
    assert_eq!(summary.failures(), Vec::<String>::new());
    drop(aside);
    rig.envoys[0].process.kill();
    until(SOON, "the dead one is forgotten", async || Ok(live(&rig).await? == Some(2))).await
}
