//! A GPU of which NVML says GPU_IS_LOST gets no requests, and gets them again when it is back.

use anyhow::ensure;
use tidegate_tests::{GpuSpec, Rig, tools_or_skip};

use super::common::{has_traffic, last_request_after, said, settled, unix_ms};

#[tokio::test]
async fn a_lost_gpu_gets_nothing_until_it_is_back() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let builder = Rig::builder(&tools, "gpu-lost").gpus(3, GpuSpec::new("a100-80gb"));
    let mut rig = builder.start().await?;
    settled(&rig).await?;
    let load = rig.load(100.0).start();
    has_traffic(&rig, 1).await?;
    let event_ms = unix_ms();
    rig.lose(1)?;
    let after_ms = last_request_after(&rig, 1, event_ms).await?;
    ensure!(after_ms <= 2_000, "the last request came {after_ms} ms after the loss");
    assert_eq!(said(&rig, 1, "hard").await?, "down");
    for other in [0, 2] {
        assert_eq!(said(&rig, other, "hard").await?, "up", "the others do not suffer");
    }
    rig.recover(1).await?;
    has_traffic(&rig, 1).await?;
    assert_eq!(load.stop().await.failures(), Vec::<String>::new());
    Ok(())
}
