//! With every GPU lost there is an honest answer, at once, and service again when one is back.

use std::time::Duration;

use anyhow::ensure;
use tidegate_tests::{GpuSpec, Rig, tools_or_skip, until};

use super::common::{SOON, settled};

#[tokio::test]
async fn all_lost_is_a_503_that_says_why() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let builder = Rig::builder(&tools, "no-endpoints").gpus(2, GpuSpec::new("a100-80gb"));
    let mut rig = builder.start().await?;
    settled(&rig).await?;
    let to = rig.envoy().address;
    assert_eq!(rig.client.chat(to, 1.0).await?.status, 200);
    rig.lose(0)?;
    rig.lose(1)?;
    until(SOON, "no endpoint is left", async || Ok(rig.client.chat(to, 1.0).await?.status == 503))
        .await?;
    let started = rig.models.started().await?;
    for _ in 0..20 {
        let reply = rig.client.chat(to, 1.0).await?;
        assert_eq!((reply.status, reply.header("x-tidegate-reason")), (503, "no_endpoints"));
        let retry_after_s: u64 = reply.header("retry-after").parse()?;
        ensure!((1..=60).contains(&retry_after_s), "retry-after: {retry_after_s}");
        ensure!(reply.json()?["error"]["message"].is_string(), "{}", reply.text());
        ensure!(reply.elapsed < Duration::from_millis(200), "{:?} to say no", reply.elapsed);
    }
    assert_eq!(rig.models.started().await?, started, "nothing was sent to a lost GPU");
    rig.recover(0).await?;
    until(2 * SOON, "service again", async || Ok(rig.client.chat(to, 1.0).await?.status == 200))
        .await
}
