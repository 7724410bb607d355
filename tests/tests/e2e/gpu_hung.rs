//! A GPU on which a driver call does not return is taken out; the calls on its neighbours go on.

use anyhow::ensure;
use tidegate_tests::eventually::observe;
use tidegate_tests::{GpuSpec, Rig, tools_or_skip};

use super::common::{has_traffic, last_request_after, said, settled, unix_ms};

#[tokio::test]
async fn a_hung_gpu_is_taken_out_and_its_neighbours_stay_fresh() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let builder = Rig::builder(&tools, "gpu-hung").gpus(3, GpuSpec::new("a100-80gb"));
    let mut rig = builder.start().await?;
    settled(&rig).await?;
    let load = rig.load(100.0).start();
    has_traffic(&rig, 0).await?;
    let event_ms = unix_ms();
    rig.hang(0)?;
    let after_ms = last_request_after(&rig, 0, event_ms).await?;
    ensure!(after_ms <= 5_000, "the last request came {after_ms} ms after the first hung call");
    let gpus = rig.control_plane().api("/api/fleet").await?["nodes"][0]["gpus"].clone();
    ensure!(gpus.to_string().contains("hung"), "the reporter says which: {gpus}");
    // The neighbours' data stays fresh while the call hangs.
    for _ in 0..10 {
        observe(std::time::Duration::from_millis(200)).await;
        for other in [1, 2] {
            let age_ms = said(&rig, other, "age_ms").await?.as_u64();
            ensure!(age_ms.is_some_and(|age| age < 3_000), "GPU {other} is {age_ms:?} ms old");
            assert_eq!(said(&rig, other, "hard").await?, "up");
        }
    }
    assert_eq!(load.stop().await.failures(), Vec::<String>::new());
    Ok(())
}
