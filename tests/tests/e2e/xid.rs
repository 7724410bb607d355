//! A GPU that falls off the bus (Xid 79) gets no more requests within a second.

use anyhow::ensure;
use tidegate_tests::{GpuSpec, Rig, tools_or_skip};

use super::common::{last_request_after, said, settled, unix_ms};

#[tokio::test]
async fn xid_79_ends_the_traffic_within_a_second() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let builder = Rig::builder(&tools, "xid").gpus(4, GpuSpec::new("a100-80gb"));
    let mut rig = builder.start().await?;
    settled(&rig).await?;
    let load = rig.load(120.0).start();
    super::common::has_traffic(&rig, 2).await?;
    let event_ms = unix_ms();
    rig.xid(2, 79)?;
    let after_ms = last_request_after(&rig, 2, event_ms).await?;
    let summary = load.stop().await;
    ensure!(after_ms <= 1_000, "the last request came {after_ms} ms after the event");
    assert_eq!(summary.failures(), Vec::<String>::new());
    assert_eq!(said(&rig, 2, "hard").await?, "down");
    let reasons = said(&rig, 2, "reasons").await?.to_string();
    ensure!(reasons.contains("xid"), "{reasons}");
    // The model server never failed: only the driver's event can have ended its traffic.
    assert_eq!(rig.models.ledger(rig.gpu(2)).await?.failed, 0);
    Ok(())
}
